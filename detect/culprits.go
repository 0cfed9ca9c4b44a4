package detect

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// pastMost bounds the culprits of past incidents that are remembered.
const pastMost = 1024

// Recurrence is how often a device or a link was named before.
type Recurrence struct {
	Device falcon.Device // empty for links
	Link   falcon.Link   // zero for devices
	Times  int           // incidents that named it, open ones included
	Jobs   int           // different jobs among them
	First  time.Time
	Last   time.Time
}

// restore takes over whom incidents of the past named, of this job and of
// others; the newest count where there are too many.
func (c *culpritHistory) restore(in Culprits) {
	for _, n := range in.Past[max(0, len(in.Past)-pastMost):] {
		n.epoch = c.job.desc.Epoch
		c.remember(n)
	}
}

// jobName names the job in which a culprit was named; "" is the present one.
func (c *culpritHistory) jobName(n Named) string {
	if n.Job == "" && n.epoch != c.job.desc.Epoch {
		return fmt.Sprintf("epoch %d", n.epoch)
	}
	return n.Job
}

// remember adds a named culprit, once per incident.
func (c *culpritHistory) remember(n Named) {
	same := func(o Named) bool {
		return o.Job == n.Job &&
			o.Incident == n.Incident &&
			o.Device == n.Device &&
			o.Link == n.Link
	}
	if (n.Device == "") == (n.Link == falcon.Link{}) || slices.ContainsFunc(c.past, same) {
		return
	}
	c.past = append(c.past, n)
	c.past = slices.Delete(c.past, 0, max(0, len(c.past)-pastMost))
}

// conclude gives an incident its verdict, with a line for each culprit named before. Severity
// and confidence are of this slowdown alone.
func (c *culpritHistory) conclude(s *incidentState, v falcon.Verdict) {
	if len(s.tests.ownLinks) > 0 {
		v.Links = slices.DeleteFunc(slices.Clone(v.Links), func(l falcon.Link) bool {
			return !slices.Contains(s.tests.ownLinks, l)
		})
	}
	if s.burst.evidence != "" {
		v.Evidence = append(v.Evidence, falcon.Evidence{
			Kind: falcon.EvidenceHistory,
			Text: s.burst.evidence,
		})
	}
	for _, d := range v.Devices {
		c.addRecurrence(
			&v,
			string(d),
			c.pastIncidents(s, func(n Named) bool { return n.Device == d }),
		)
	}
	for _, l := range v.Links {
		c.addRecurrence(
			&v,
			l.String(),
			c.pastIncidents(s, func(n Named) bool { return n.Link == l }),
		)
	}
	s.Verdict = v
}

// pastIncidents are the past incidents that match, without the incident's own.
func (c *culpritHistory) pastIncidents(s *incidentState, match func(Named) bool) []Named {
	var out []Named
	for _, n := range c.past {
		if match(n) && (n.Incident != s.ID || c.jobName(n) != "" || s.ID == "") {
			out = append(out, n)
		}
	}
	return out
}

func (c *culpritHistory) addRecurrence(v *falcon.Verdict, name string, past []Named) {
	if len(past) == 0 {
		return
	}
	first := slices.MinFunc(past, func(a, b Named) int {
		return a.At.Compare(b.At)
	})
	times := "once"
	if len(past) > 1 {
		times = fmt.Sprintf("%d times", len(past))
	}
	v.Evidence = append(v.Evidence, falcon.Evidence{
		Kind: falcon.EvidenceHistory,
		Text: fmt.Sprintf(
			"%s was named %s before in the last %s, last by %s",
			name, times, formatSpan(c.clock.now.Sub(first.At)), c.incidentName(past[len(past)-1])),
	})
}

func (c *culpritHistory) incidentName(n Named) string {
	if job := c.jobName(n); job != "" {
		return n.Incident + " of job " + job
	}
	return n.Incident
}

// formatSpan says a length of time in its largest whole unit, rounded up.
func formatSpan(d time.Duration) string {
	for _, u := range []struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, "days"}, {time.Hour, "hours"}, {time.Minute, "minutes"}} {
		if d >= u.of {
			return fmt.Sprintf("%d %s", int((d+u.of-1)/u.of), u.name)
		}
	}
	return "minute"
}

// namedBy are the culprits that an incident names now.
func (c *culpritHistory) namedBy(s *incidentState) []Named {
	var out []Named
	for _, d := range s.Verdict.Devices {
		out = append(out, Named{
			Incident: s.ID,
			At:       c.clock.now,
			Device:   d,
			epoch:    c.job.desc.Epoch,
		})
	}
	for _, l := range s.Verdict.Links {
		out = append(out, Named{
			Incident: s.ID,
			At:       c.clock.now,
			Link:     l,
			epoch:    c.job.desc.Epoch,
		})
	}
	return out
}

// recordIncident remembers the culprits that an incident named, once it is over.
func (c *culpritHistory) recordIncident(s *incidentState) {
	for _, n := range c.namedBy(s) {
		c.remember(n)
	}
}

// recurring are the devices and links that at least two incidents named, of
// this job and of those handed over, the most often named first.
func (c *culpritHistory) recurring() []Recurrence {
	all := slices.Clone(c.past)
	for _, s := range c.incidents.openIncidents() {
		all = append(all, c.namedBy(s)...)
	}
	type culprit struct {
		device falcon.Device
		link   falcon.Link
	}
	found := map[culprit]*Recurrence{}
	jobs := map[culprit]map[string]bool{}
	for _, n := range all {
		k := culprit{n.Device, n.Link}
		r := found[k]
		if r == nil {
			r = &Recurrence{Device: n.Device, Link: n.Link, First: n.At}
			found[k], jobs[k] = r, map[string]bool{}
		}
		jobs[k][c.jobName(n)] = true
		r.Times, r.Jobs, r.Last = r.Times+1, len(jobs[k]), n.At
	}
	var out []Recurrence
	for _, r := range found {
		if r.Times > 1 {
			out = append(out, *r)
		}
	}
	slices.SortFunc(out, func(a, b Recurrence) int {
		return cmp.Or(
			b.Times-a.Times,
			cmp.Compare(a.Device, b.Device),
			cmp.Compare(a.Link.String(), b.Link.String()),
		)
	})
	return out
}

// Recurring are the devices and links that at least two incidents named, of
// this job and of those handed over, the most often named first.
func (m *Machine) Recurring() []Recurrence { return m.culprits.recurring() }

// culpritHistory remembers the culprits of incidents that are over.
type culpritHistory struct {
	clock     *clock
	job       *jobState
	incidents *incidentSet
	past      []Named // newest last
}
