package events

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/filter"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// Zoom is 1 while the incidents are on screen, for links.
func (p *Page) Zoom() (level int, chosen bool) {
	if p.past.shown {
		return 1, true
	}
	return 0, false
}

// SetZoom shows the events, or from 1 on the incidents.
func (p *Page) SetZoom(level int) {
	p.past.shown = level > 0
}

// allIncidents are those that last and those that are over, newest first. The history has an
// incident once it is closed; until then the snapshot has it.
func allIncidents(s *page.State) []*falconv1.PastIncident {
	out := slices.Clone(s.Feed.History.GetPast())
	for _, i := range s.Snap().GetIncidents() {
		if slices.ContainsFunc(out, func(v *falconv1.PastIncident) bool {
			return v.GetIncident() == i.GetId()
		}) {
			continue
		}
		v := i.GetVerdict()
		out = append(out, &falconv1.PastIncident{
			Incident:    i.GetId(),
			OnsetUnixNs: i.GetOnsetUnixNs(),
			EndUnixNs:   i.GetEndUnixNs(),
			HealthyMs:   i.GetHealthyMs(),
			SlowMs:      i.GetSlowMs(),
			LostMs:      s.LadderOf(i.GetId()).GetImpactMs(),
			Cause:       v.GetCause(),
			Devices:     v.GetDevices(),
			Links:       v.GetLinks(),
			Nics:        v.GetNics(),
		})
	}
	slices.SortStableFunc(out, func(a, b *falconv1.PastIncident) int {
		return cmp.Compare(b.GetOnsetUnixNs(), a.GetOnsetUnixNs())
	})
	return out
}

// chosenIncidents are those that the filter chooses, all where it has a mistake.
func chosenIncidents(s *page.State, all []*falconv1.PastIncident) ([]*falconv1.PastIncident, error) {
	f, err := filter.ParseCases(s.Filter, s.EngineNow(), s.Zone)
	if err != nil {
		return all, err
	}
	var out []*falconv1.PastIncident
	for _, v := range all {
		if f.Match(caseOf(s, v)) {
			out = append(out, v)
		}
	}
	return out, nil
}

func caseOf(s *page.State, v *falconv1.PastIncident) *filter.Case {
	c := &filter.Case{
		Text: strings.Join(
			[]string{v.GetIncident(), v.GetCause(), phrase.Cause(v.GetCause()), pastTime(s, v)},
			" ",
		),
		Class:   v.GetCause(),
		State:   "ended",
		Places:  slices.Concat(v.GetDevices(), v.GetLinks(), v.GetNics()),
		BeganNs: v.GetOnsetUnixNs(),
		EndedNs: v.GetEndUnixNs(),
	}
	if v.GetEndUnixNs() == 0 {
		c.State = "open"
	}
	for _, d := range v.GetDevices() {
		c.Nodes = append(c.Nodes, string(falcon.Device(d).Node()))
	}
	for _, l := range v.GetLinks() {
		if pair, err := falcon.ParseLink(l); err == nil {
			c.Nodes = append(c.Nodes, string(pair.A), string(pair.B))
		}
	}
	for _, n := range v.GetNics() {
		node, _, _ := strings.Cut(n, ".")
		c.Nodes = append(c.Nodes, node)
	}
	return c
}

func pastTime(s *page.State, v *falconv1.PastIncident) string {
	return time.Unix(0, v.GetOnsetUnixNs()).In(cmp.Or(s.Zone, time.UTC)).Format("2006-01-02 15:04")
}

// zoneName is the zone of the times on screen.
func zoneName(s *page.State) string {
	return s.EngineNow().In(cmp.Or(s.Zone, time.UTC)).Format("MST")
}

// deviceTerm begins a filter of one device, whose own record is then shown above the incidents.
const deviceTerm = "device:"

// aboutDevice is what is known of the device that the filter names, besides its incidents: where
// it is now, when it was tested, and whether it is barred.
func aboutDevice(s *page.State, w int) []page.Line {
	name, is := strings.CutPrefix(s.Filter, deviceTerm)
	if !is || name == "" || strings.ContainsAny(name, " *,") {
		return nil
	}
	var out []page.Line
	add := func(role themes.Role, text string) {
		for _, l := range widget.Wrap(text, max(1, w)) {
			out = append(out, page.Line{Text: l, Role: role})
		}
	}
	add(themes.Title, name+": "+placeText(s, name))
	node := string(falcon.Device(name).Node())
	if slices.Contains(s.Snap().GetFenced(), node) {
		add(themes.Warn, node+" is fenced: nothing of it is used until the fence is lifted")
	}
	for _, v := range s.ValidationList() {
		if text := phrase.TestedIn(v, name); text != "" {
			add(themes.Text, text)
			break
		}
	}
	if text := page.BarText(s, name); text != "" {
		add(themes.Warn, text)
	}
	return out
}

func placeText(s *page.State, name string) string {
	if here := ranksAt(s, name); len(here) > 0 {
		return fmt.Sprintf("%s now", phrase.Ranks(here, 4))
	}
	if l, err := falcon.ParseLink(name); err == nil {
		a := ranksAt(s, string(l.A))
		b := ranksAt(s, string(l.B))
		if len(a) > 0 && len(b) > 0 {
			return fmt.Sprintf("joins %s and %s now", phrase.Ranks(a, 4), phrase.Ranks(b, 4))
		}
	}
	return "no rank of the job is on it"
}

// ranksAt are the ranks that run on a device or node.
func ranksAt(s *page.State, name string) []int32 {
	var ranks []int32
	for r, v := range s.Roster.Views() {
		d := v.GetDevice()
		if d == name || string(falcon.Device(d).Node()) == name {
			ranks = append(ranks, r)
		}
	}
	return ranks
}
