package tui

import (
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/internal/enginetest"
)

// slowTerm is a console on an incident, with another person at another one.
func slowTerm(t *testing.T, o enginetest.Options) (*term, *enginetest.Engine) {
	t.Helper()
	e := enginetest.New(o)
	e.AdvanceTo(enginetest.Proposed + 3)
	e.Look(&falconv1.Operator{Name: "maria"}, &falconv1.Operator{Name: "lee"})
	x := openTerm(t, e, 120, 40)
	x.shows("INC-0001 located")
	return x, e
}

// A shift by keys: seen 1, snoozed 2, handed over to the other person at a console 2.
func TestTriageByKeys(t *testing.T) {
	x, e := slowTerm(t, enginetest.Options{})
	x.press('A')
	x.shows("seen by maria at")
	x.press('S')
	x.shows(":snooze 1h")
	x.press(tea.KeyEnter)
	x.shows("snoozed until")
	x.press('H')
	x.shows(":handover lee")
	x.press(tea.KeyEnter)
	x.shows("lee's, snoozed until")
	x.press('W')
	x.types("fan of n1 is loud")
	x.press(tea.KeyEnter)
	x.shows("note by maria: fan of n1 is loud")
	x.press(':')
	x.types("wake")
	x.press(tea.KeyEnter)
	x.gone("snoozed until")
	want := []falconv1.TriageRequest{
		{Incident: "INC-0001", Verb: "ack"},
		{Incident: "INC-0001", Verb: "snooze", ForNs: int64(time.Hour)},
		{Verb: "handover", To: "lee"},
		{Incident: "INC-0001", Verb: "note", Text: "fan of n1 is loud"},
		{Incident: "INC-0001", Verb: "wake"},
	}
	got := e.Said()
	if len(got) != len(want) {
		t.Fatalf("sent %v", got)
	}
	for i := range want {
		g := got[i]
		w := &want[i]
		if g.GetIncident() != w.GetIncident() ||
			g.GetVerb() != w.GetVerb() ||
			g.GetTo() != w.GetTo() ||
			g.GetText() != w.GetText() ||
			g.GetForNs() != w.GetForNs() {
			t.Errorf("sent %v, want %v", g, w)
		}
	}
	if d := e.Decides(); len(d) != 0 {
		t.Errorf("it decided: %v", d)
	}
}

func TestTriageIsRefusedWithAReason(t *testing.T) {
	x, e := slowTerm(t, enginetest.Options{})
	for _, c := range []struct{ typed, says string }{
		{"snooze tomorrow", `"tomorrow" is no time: snooze takes a time, such as 30m or 2h, then why`},
		{"assign", "assign needs a name behind it"},
		{"handover ", "handover needs a name behind it"},
	} {
		x.press(':')
		x.types(c.typed)
		x.press(tea.KeyEnter)
		if c.typed == "assign" {
			x.press(tea.KeyEnter) // the first completes it
		}
		x.shows(c.says)
	}
	if len(e.Said()) != 0 {
		t.Errorf("sent %v", e.Said())
	}
	e.Refuse("the incident is closed\x1b[2J")
	x.press('A')
	x.shows("not taken down (ack): the incident is closed")
}

func TestAViewerSaysNothing(t *testing.T) {
	x, e := slowTerm(t, enginetest.Options{Role: "viewer"})
	x.press('A')
	x.shows("ack needs the role operator; yours is viewer")
	if len(e.Said()) != 0 {
		t.Errorf("sent %v", e.Said())
	}
}

// Times are in the operator's zone, with its name.
func TestTimesInAZone(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(enginetest.Proposed + 3)
	profile := colorprofile.TrueColor
	zone := time.FixedZone("CET", 3600)
	m, err := New(&still{state: pictureOf(t, e, wide)}, Options{
		Theme:   "dark",
		Profile: &profile,
		Now:     newClock().now,
		Zone:    zone,
	})
	if err != nil {
		t.Fatal(err)
	}
	m.Update(tea.WindowSizeMsg{Width: 120, Height: 40})
	s := text(m)
	for _, want := range []string{"15:00:30 CET", "slow since 15:00:12 CET (", "15:00:00       0   agent"} {
		if !strings.Contains(s, want) {
			t.Errorf("no %q:\n%s", want, s)
		}
	}
	for page, wants := range map[rune][]string{
		'4': {"15:00:", "(newest, 15:00:", "clock "},
		'5': {"LADDER INC-0001 since 15:00:12 CET (", "proposed at 50 (15:00:1"},
	} {
		m.Update(tea.KeyPressMsg{Code: page, Text: string(page)})
		for s, i := text(m), 0; i < len(wants); i++ {
			if !strings.Contains(s, wants[i]) {
				t.Errorf("page %c: no %q:\n%s", page, wants[i], s)
			}
		}
	}
}
