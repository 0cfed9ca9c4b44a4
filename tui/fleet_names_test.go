package tui

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon/tui/fleet"
	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/link"
)

// Alerts of any job name it: of those on the list by the list, of the one that is visited by its
// own console, and of none twice.
func TestAlertsNameTheJob(t *testing.T) {
	s := &standing{}
	clk := newClock()
	s.add(t, "prod-a", scriptedJob("llama", 40, enginetest.Options{Healthy: true}))
	s.add(t, "prod-b", scriptedJob("qwen", 40, enginetest.Options{Healthy: true}))
	f := quietFleet(t, s, Options{Theme: "dark", Now: clk.now}, 120, 40)
	f.Update(tea.EnvMsg{"TERM=xterm-kitty", "KITTY_WINDOW_ID=1", "TERM_PROGRAM=ghostty"})
	f.Update(tea.BlurMsg{})
	if cmd := f.alertIfDue(); cmd != nil {
		t.Fatal("what was there is news")
	}
	worse := func(name string) {
		broken := &standing{}
		j := broken.add(
			t,
			name,
			scriptedJob("x", enginetest.Proposed+4, enginetest.Options{}),
		)
		i := slices.IndexFunc(s.jobs, func(x *fleet.Job) bool { return x.Name == name })
		s.jobs[i] = j
		f.jobs = s.Jobs()
	}
	worse("prod-b")
	cmd := f.alertIfDue()
	if cmd == nil {
		t.Fatal("nothing rings for prod-b")
	}
	raw := fmt.Sprint(cmd())
	if !strings.Contains(raw, "Falcon prod-b: ") || !strings.Contains(raw, "\a") {
		t.Errorf("%q", raw)
	}
	pass := func() { // and pictures go on coming
		clk.pass(time.Minute)
		for _, j := range s.jobs {
			j.State.Received = clk.now()
		}
	}
	pass()
	f.table.Choose("prod-a")
	pressAll(f, "enter")
	worse("prod-a") // its own console says so
	if cmd := f.alertIfDue(); cmd != nil {
		t.Errorf("the list rings for the job that is visited: %q", fmt.Sprint(cmd()))
	}
	next := &still{state: s.sources["prod-a"].state}
	next.state = pictureOf(
		t,
		scriptedJob("llama", enginetest.Proposed+4, enginetest.Options{}),
		wide,
	)
	f.visit.model.alertIfDue() // primes
	f.Update(jobMsg{f.visit.number, updateMsg{next.state}})
	pressAll(f, "0")
	pass()
	if cmd := f.alertIfDue(); cmd != nil {
		t.Errorf("what the operator has seen in the job rings on the list: %q", fmt.Sprint(cmd()))
	}
}

// A visited job's own alerts name it as the list does.
func TestVisitedAlertsNameTheJob(t *testing.T) {
	clk := newClock()
	src := &still{state: stateAt(t, enginetest.Options{Healthy: true}, 40, 0, wide)}
	m := quiet(
		t,
		src,
		Options{Theme: "dark", Now: clk.now, Context: "prod-a"},
		100,
		30,
	)
	m.Update(tea.EnvMsg{"TERM=xterm-kitty", "KITTY_WINDOW_ID=1"})
	m.Update(tea.BlurMsg{})
	m.alertIfDue()
	m.work.live.Update(stateAt(t, enginetest.Options{}, enginetest.Proposed+2, 0, wide))
	clk.pass(time.Minute)
	cmd := m.alertIfDue()
	if cmd == nil {
		t.Fatal("nothing rings")
	}
	if raw := fmt.Sprint(cmd()); !strings.Contains(raw, "Falcon prod-a: ") {
		t.Errorf("%q", raw)
	}
}

// A link leads into its job, from the list and from another job; Y writes the job into it.
func TestLinksNameTheJob(t *testing.T) {
	s := mixed(t)
	to, err := link.Parse("inc/INC-0001?job=llama-70b")
	if err != nil {
		t.Fatal(err)
	}
	f := quietFleet(t, s, Options{Theme: "dark", Open: &to}, 120, 40)
	f.Update(jobsMsg{})
	if f.visit == nil || f.visit.name != "prod-a" {
		t.Fatalf("--open does not lead into prod-a:\n%s", stripped(f))
	}
	f.visit.model.Update(updateMsg{s.sources["prod-a"].state})
	if got := f.visit.model.work.linkToHere().String(); got != "inc/INC-0001?view=ladder&job=llama-70b" {
		t.Errorf("Y copies %s", got)
	}
	cmd := f.visit.model.work.openTyped("rank/3?job=prod-b")
	f.Update(ofVisit(f.visit.number, cmd)())
	if f.visit == nil || f.visit.name != "prod-b" {
		t.Fatalf("a link from one job to another: %+v", f.visit)
	}
	f.visit.model.Update(updateMsg{s.sources["prod-b"].state})
	w := f.visit.model.work
	if w.current != key.Ranks || w.state.Rank() != 3 {
		t.Errorf("it shows %s, rank %d", w.current, w.state.Rank())
	}
	cmd = f.visit.model.work.openTyped("rank/3?job=nobody")
	f.Update(ofVisit(f.visit.number, cmd)())
	if f.visit == nil || !strings.Contains(stripped(f), "no job here is called nobody") {
		t.Errorf("\n%s", stripped(f))
	}
	m := quiet(
		t,
		s.sources["prod-b"],
		Options{Theme: "dark", Now: newClock().now},
		100,
		30,
	)
	if m.work.openTyped("rank/3?job=other") != nil ||
		!strings.Contains(text(m), "this console shows qwen-moe") {
		t.Errorf("\n%s", text(m))
	}
}

// Files that are written in a job carry its name, whatever characters it has.
func TestExportsNameTheJob(t *testing.T) {
	for job, want := range map[string]string{
		"prod-a":      "prod-a-INC-0001.md",
		"../../x y/é": "x-y---INC-0001.md",
		"..":          "-INC-0001.md",
	} {
		got := ""
		_, _ = savePrefixed(func(name string, _ []byte) (string, error) {
			got = name
			return name, nil
		}, job)("INC-0001.md", nil)
		if got != want {
			t.Errorf("%q: %q, want %q", job, got, want)
		}
	}
	if savePrefixed(nil, "a") != nil {
		t.Error("there is somewhere to write")
	}
}
