package tui

import (
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"pgregory.net/rapid"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/keyguard"
)

func TestValidatePath(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(enginetest.Located + 4)
	x := openTerm(t, e, 120, 40)
	x.shows("gpt-lab")
	x.press('6')
	x.shows("VAL-0001 done")
	x.shows("n1.g0 is SLOW: 12.4 ms, 2.0 x the 6.2 ms of the others")
	x.press('d')
	x.shows("4 of 8 picked")
	x.press('x')
	s := x.shows("HOLD THE JOB AND TEST?")
	if !strings.Contains(s, "Test GPUs and the links of ranks 0-3") {
		t.Errorf("the dialog does not say what is tested:\n%s", s)
	}
	x.armed()
	x.press(tea.KeyTab)
	x.shows("▸ Test")
	x.press(tea.KeyEnter)
	x.shows("VAL-0002 testing")
	e.Advance(enginetest.TestIterations)
	x.shows("VAL-0002 done")
	x.shows("job held 182 ms")
	v := e.Validates()
	if len(v) != 1 ||
		!slices.Equal(v[0].Ranks, []int32{0, 1, 2, 3}) ||
		!v[0].Gemm ||
		!v[0].LinkTest {
		t.Errorf("requests: %v", v)
	}
}

func TestATestIsEndedWithTwoKeys(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(enginetest.Located + 4)
	x := openTerm(t, e, 80, 24)
	x.shows("gpt-lab")
	x.press('6')
	x.shows("VAL-0001")
	x.types(":test n0-n1")
	x.press(tea.KeyEnter)
	x.shows("Test links n0-n1")
	x.armed()
	x.press(tea.KeyTab)
	x.press(tea.KeyEnter)
	x.shows("VAL-0002 testing")
	x.press('X')
	x.shows("END VAL-0002?")
	x.armed()
	x.press(tea.KeyEnter)
	x.shows("ended by maria")
	v := e.Validates()
	if len(v) != 2 ||
		v[1].Cancel != "VAL-0002" ||
		!slices.Equal(v[0].Links, []string{"n0-n1"}) {
		t.Errorf("requests: %v", v)
	}
}

func TestARefusedTestIsExplained(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(30)
	e.Refuse("no consistent boundary: rank 3 makes 20 calls an iteration on pp0 and rank 1 makes 21")
	x := openTerm(t, e, 80, 24)
	x.shows("gpt-lab")
	x.press('6')
	x.shows("nothing has been tested yet")
	x.press('x')
	x.shows("HOLD THE JOB AND TEST?")
	x.armed()
	x.press(tea.KeyTab)
	x.press(tea.KeyEnter)
	x.shows("no consistent boundary")
}

func TestAViewerCannotTest(t *testing.T) {
	e := enginetest.New(enginetest.Options{Role: "viewer"})
	e.AdvanceTo(30)
	x := openTerm(t, e, 80, 24)
	x.shows("gpt-lab")
	x.press('6')
	x.shows("RESULTS")
	x.press('x')
	x.shows("a test needs the role approver")
}

// As for approvals: the job is held only after x, a dialog older than the
// guard, its focus moved, and enter.
func TestNoTestWithoutTheFullPath(t *testing.T) {
	state := stateAt(t, enginetest.Options{}, enginetest.Located+4, 0, wide)
	keys := append(slices.Clone(sessionKeys), slices.Repeat([]string{"6", "x", "x", "tab", "enter"}, 60)...)
	held := 0
	rapid.Check(t, func(t *rapid.T) {
		src := &still{state: state}
		clk := newClock()
		m := quiet(t, src, Options{Theme: "dark", Now: clk.now}, 80, 24)
		m.work.showPage(key.Validate)
		for _, s := range drawSession(t, keys, "x") {
			k := s.key
			clk.pass(s.pass)
			d := m.decisions.dialog
			may := m.help == nil && kindOf(d) == kindTest && k == "enter" && d.focus == buttonDo &&
				!d.sending && m.decisions.keyTime().Add(personGap).Sub(d.opened) >= decision.Guard
			before := len(src.tests)
			send(m, k)
			m.View()
			if len(src.tests) > before {
				held++
				if !may {
					t.Fatalf("%q held the job without the full path", k)
				}
			}
		}
	})
	if held == 0 && !testing.Short() {
		t.Error("no random session came as far as a test: this proves nothing")
	}
}

// endTest presses the key that ends a test, and enter.
func endTest(m *Model) {
	m.work.showPage(key.Validate)
	send(m, "X")
	pass(m, keyguard.Look)
	send(m, "enter")
}

// The engine's answer may be ahead of the next snapshot: the key that ends a
// test works from the moment the test is said to run.
func TestATestCanBeEndedBeforeASnapshotHasIt(t *testing.T) {
	m, src, _ := proposed(t, Options{})
	m.Update(answerMsg{begun: &falconv1.Validation{Id: "VAL-0007", State: "testing"}})
	endTest(m)
	if len(src.tests) != 1 || src.tests[0].Cancel != "VAL-0007" {
		t.Errorf("asked for %v, says %q", src.tests, m.notes.text)
	}
	m.Update(answerMsg{begun: &falconv1.Validation{Id: "VAL-0007", State: "failed"}})
	endTest(m)
	if len(src.tests) != 1 {
		t.Errorf("asked for %v after it had ended", src.tests)
	}
}

// The link that the overview names is tested with three keys.
func TestTheNamedLinkIsTestedInThreeKeys(t *testing.T) {
	state := stateAt(t, enginetest.Options{}, enginetest.Located+4, 0, wide)
	for _, i := range state.Snap.GetIncidents() {
		i.Verdict.Links = []string{"n1-n2"}
	}
	src := &still{state: state}
	clk := newClock()
	m := quiet(t, src, Options{Theme: "dark", Now: clk.now}, 80, 24)
	m.View()
	for _, k := range []string{"x", "tab", "enter"} {
		send(m, k)
		m.View()
		clk.pass(decision.Guard + time.Millisecond)
	}
	if len(src.tests) != 1 ||
		!slices.Equal(src.tests[0].Links, []string{"n1-n2"}) ||
		!src.tests[0].LinkTest {
		t.Errorf("asked for %v", src.tests)
	}
}
