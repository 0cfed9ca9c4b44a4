package events

import (
	"fmt"
	"slices"
	"strings"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
)

// class is a group of kinds that an operator asks for together.
type class struct {
	name  string
	kinds []string // nil = all
}

// classes in the order in which the key steps through them.
var classes = [...]class{
	{"everything", nil},
	{"audit: who did what", []string{"audit"}},
	{"incidents", []string{"incident", "hang", "verdict", "proposal", "decision", "action"}},
	{"recoveries", []string{"recovery", "fault", "kernel"}},
	{"tests", []string{"validation"}},
	{"detector's notes", []string{"jitter", "profile", "rebase", "settled", "learned", "skip"}},
	{"cluster", []string{"agent", "rank", "policy", "alarm", "silicon"}},
}

func (c class) includes(kind string) bool {
	return c.kinds == nil || slices.Contains(c.kinds, kind)
}

// severities are the least severities shown, in the order of their key.
var severities = [...]struct {
	least int32
	name  string
}{{0, ""}, {2, "warnings"}, {3, "serious"}}

// filteredEvents lists what kind, severity and text leave.
func (p *Page) filteredEvents(s *page.State) []*falconv1.EventLine {
	want := strings.ToLower(s.Filter)
	class := classes[p.class]
	least := severities[p.severity].least
	if want == "" && class.kinds == nil && least == 0 {
		return foldJitter(s.Feed.Events)
	}
	var out []*falconv1.EventLine
	for _, e := range s.Feed.Events {
		if class.includes(e.Kind) &&
			e.Severity >= least &&
			strings.Contains(strings.ToLower(e.Kind+" "+e.Text), want) {
			out = append(out, e)
		}
	}
	return out
}

// narrowedText returns in words what is left out, "" = nothing.
func (p *Page) narrowedText(s *page.State) string {
	var parts []string
	if p.class != 0 {
		parts = append(parts, classes[p.class].name)
	}
	if name := severities[p.severity].name; name != "" {
		parts = append(parts, name+" only")
	}
	if s.Filter != "" {
		parts = append(parts, `text "`+s.Filter+`"`)
	}
	return strings.Join(parts, ", ")
}

// emptyReason returns why no event is shown and what to do.
func (p *Page) emptyReason(s *page.State) string {
	kind := s.Key(key.Events, key.Kind)
	severity := s.Key(key.Events, key.Severity)
	switch {
	case len(s.Feed.Events) == 0:
		return "nothing has happened yet; events come here as soon as agents attach"
	case s.Filter != "":
		return fmt.Sprintf("no event held is of this kind and text; %s drops the text, %s and %s the rest",
			s.Key(key.Events, key.Back), kind, severity)
	}
	return fmt.Sprintf("no event held is of this kind; %s shows the next kind, %s all severities",
		kind, severity)
}

// jitterKind is the detector's note of a change that did not last; a steady job has one a minute.
const jitterKind = "jitter"

// foldJitter leaves the newest of notes of jitter that follow each other, with how many it
// stands for; the class of the detector's notes has each.
func foldJitter(list []*falconv1.EventLine) []*falconv1.EventLine {
	isRun := func(i int) bool {
		return i+1 < len(list) &&
			list[i].Kind == jitterKind &&
			list[i+1].Kind == jitterKind
	}
	folded := -1
	for i := range list {
		if isRun(i) {
			folded = i
			break
		}
	}
	if folded < 0 {
		return list
	}
	out := slices.Clone(list[:folded])
	before := 0
	for i := folded; i < len(list); i++ {
		e := list[i]
		if isRun(i) {
			before++
			continue
		}
		if before > 0 {
			e = &falconv1.EventLine{
				Seq:       e.Seq,
				AtUnixNs:  e.AtUnixNs,
				Iteration: e.Iteration,
				Kind:      e.Kind,
				Severity:  e.Severity,
				About:     e.About,
				Text:      fmt.Sprintf("%s (and %d before it)", e.Text, before),
			}
			before = 0
		}
		out = append(out, e)
	}
	return out
}

// withoutJitter are the events for a few lines on another page.
func withoutJitter(list []*falconv1.EventLine) []*falconv1.EventLine {
	return slices.DeleteFunc(slices.Clone(list), func(e *falconv1.EventLine) bool {
		return e.GetKind() == jitterKind
	})
}
