package tui

import (
	"fmt"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"pgregory.net/rapid"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
)

// losses are the moments of a recovery that are worth a picture; "" is before
// anything failed.
var losses = []falcon.RecoveryState{
	"", falcon.RecoveryProposed, falcon.RecoverySuspend, falcon.RecoveryReplace,
	falcon.RecoveryRejoin, falcon.RecoveryFailed, falcon.RecoveryResumed,
}

func lossName(s falcon.RecoveryState) string {
	if s == "" {
		return "idle"
	}
	return string(s)
}

// lossScreen composes a page while a rank is lost.
func lossScreen(
	t testing.TB,
	o enginetest.Options,
	state falcon.RecoveryState,
	p key.Scope,
	w, h int,
	ascii bool,
) *Model {
	t.Helper()
	e := enginetest.New(o)
	e.AdvanceTo(30)
	if state != "" {
		e.Lose(state)
	}
	profile := colorprofile.TrueColor
	if ascii {
		profile = colorprofile.ASCII
	}
	m, err := New(&still{state: pictureOf(t, e, wide)}, Options{
		Theme:   "dark",
		Profile: &profile,
		Now:     newClock().now,
		ASCII:   ascii,
	})
	if err != nil {
		t.Fatal(err)
	}
	m.Update(tea.WindowSizeMsg{Width: w, Height: h})
	m.work.showPage(p)
	m.screen.dirty = true
	return m
}

func TestGoldenRecovery(t *testing.T) {
	for _, state := range losses {
		for _, s := range sizes[:2] {
			m := lossScreen(
				t,
				enginetest.Options{},
				state,
				key.Recovery,
				s[0],
				s[1],
				false,
			)
			checkGeometry(t, m.View().Content, s[0], s[1])
			golden(
				t,
				fmt.Sprintf("text/loss-%s-%dx%d.txt", lossName(state), s[0], s[1]),
				trimRows(text(m)),
			)
		}
	}
	m := lossScreen(
		t,
		enginetest.Options{},
		falcon.RecoveryReplace,
		key.Recovery,
		80,
		24,
		true,
	)
	golden(t, "text/loss-replace-80x24-ascii.txt", trimRows(text(m)))
	m = lossScreen(
		t,
		enginetest.Options{TP: 8, DP: 64, PP: 36},
		falcon.RecoverySuspend,
		key.Recovery,
		80,
		24,
		false,
	)
	golden(t, "text/loss-suspend-18432-80x24.txt", trimRows(text(m)))
	m = lossScreen(
		t,
		enginetest.Options{},
		falcon.RecoveryReplace,
		key.Overview,
		80,
		24,
		false,
	)
	golden(t, "text/overview-replace-80x24.txt", trimRows(text(m)))
}

// Any size and state: never a panic, never a burst row, whatever is pressed.
func TestRecoveryIsExactAtEverySize(t *testing.T) {
	drawsAlone(t)
	for _, state := range losses {
		for _, world := range []enginetest.Options{{}, {TP: 4, DP: 8, PP: 8}} {
			for w := 20; w < 140; w += 20 {
				for h := 8; h < 50; h += 8 {
					m := lossScreen(t, world, state, key.Recovery, w, h, false)
					for _, k := range []string{
						"", "j", "l", "ctrl+d", "n", "N", "k", "h", "[", "]", "f", "esc", "r",
						"esc", "X", "esc", "a",
					} {
						if k != "" {
							m.Update(keyMsg(k))
						}
						checkGeometry(t, m.View().Content, w, h)
					}
				}
			}
		}
	}
}

// A mark of several ranks shows the one that is least far: one lost rank among
// 18,432 is seen.
func TestOneLostRankIsSeenAmongMany(t *testing.T) {
	m := lossScreen(
		t,
		enginetest.Options{TP: 8, DP: 64, PP: 36},
		falcon.RecoveryReplace,
		key.Recovery,
		80,
		24,
		false,
	)
	s := text(m)
	if strings.Count(s, "▲") != 3 || !containsAll(s, "least far of", "rank 16 ▲ starting", "■ 18431 parked") {
		t.Errorf("one mark, one in the tally and one in the detail should show the rank that starts:\n%s", s)
	}
}

func TestRecoveryShowsOnEveryPage(t *testing.T) {
	for _, p := range key.Pages {
		m := lossScreen(t, enginetest.Options{}, falcon.RecoveryReplace, p, 80, 24, false)
		if s := text(m); !containsAll(s, "REC-0001 replace, generation 3", "12 s to its deadline") {
			t.Errorf("page %s says nothing of the recovery:\n%s", p, s)
		}
		m = lossScreen(t, enginetest.Options{}, falcon.RecoveryProposed, p, 80, 24, false)
		if s := text(m); !containsAll(s, "RECOVERY PROPOSED  REC-0001", "a approve  v deny") {
			t.Errorf("page %s does not ask:\n%s", p, s)
		}
	}
	m := lossScreen(
		t,
		enginetest.Options{},
		falcon.RecoveryProposed,
		key.Overview,
		50,
		12,
		false,
	)
	if s := text(m); !containsAll(s, "REC-0001 WAITS for an approver") {
		t.Errorf("the small summary says nothing of the recovery:\n%s", s)
	}
}

// recoveryTerm is a console on page 7 with a recovery in a state.
func recoveryTerm(t *testing.T, state falcon.RecoveryState, role string) (*term, *enginetest.Engine) {
	e := enginetest.New(enginetest.Options{Role: role})
	e.AdvanceTo(30)
	if state != "" {
		e.Lose(state)
	}
	x := openTerm(t, e, 100, 30)
	x.shows("gpt-lab")
	x.press('7')
	return x, e
}

func TestApproveRecovery(t *testing.T) {
	x, e := recoveryTerm(t, falcon.RecoveryProposed, "")
	x.shows("RECOVERY PROPOSED")
	x.press('a')
	x.shows("APPROVE RECOVERY REC-0001?")
	x.shows("▸ Cancel")
	x.shows("ended: signal 9")
	x.armed()
	x.press(tea.KeyTab)
	x.shows("▸ Approve")
	x.press(tea.KeyEnter)
	x.shows("REC-0001 suspend")
	r := e.Recovers()
	if len(r) != 1 ||
		r[0].Verb != "approve" ||
		r[0].Recovery != "REC-0001" ||
		r[0].PlanHash != enginetest.RecoveryHash {
		t.Errorf("sent %v", r)
	}
}

func TestDenyRecoveryWithReason(t *testing.T) {
	x, e := recoveryTerm(t, falcon.RecoveryProposed, "")
	x.shows("RECOVERY PROPOSED")
	x.press('v')
	x.shows("DENY RECOVERY REC-0001?")
	x.armed()
	x.types("maintenance")
	x.press(tea.KeyEnter) // on Cancel
	x.gone("DENY RECOVERY")
	if len(e.Recovers()) != 0 {
		t.Fatal("enter alone denied")
	}
	x.press('v')
	x.shows("DENY RECOVERY REC-0001?")
	x.armed()
	x.types("maintenance")
	x.press(tea.KeyTab)
	x.shows("▸ Deny")
	x.press(tea.KeyEnter)
	x.shows("denied by maria: maintenance")
	r := e.Recovers()
	if len(r) != 1 ||
		r[0].Verb != "deny" ||
		r[0].Reason != "maintenance" ||
		r[0].PlanHash != enginetest.RecoveryHash {
		t.Errorf("sent %v", r)
	}
}

func TestAbortUntilNoReturn(t *testing.T) {
	x, e := recoveryTerm(t, falcon.RecoveryReplace, "")
	x.shows("REC-0001 replace")
	x.press('X')
	x.shows("ABORT RECOVERY REC-0001?")
	x.armed()
	x.press(tea.KeyTab)
	e.Lose(falcon.RecoveryRejoin)
	x.shows("too late: the ranks were ordered to rejoin")
	x.press(tea.KeyEnter)
	x.press(tea.KeyEscape)
	x.gone("ABORT RECOVERY")
	x.press('X')
	x.shows("can't be aborted: the ranks were ordered to rejoin")
	if r := e.Recovers(); len(r) != 0 {
		t.Fatalf("sent past the point of no return: %v", r)
	}
	e.Lose(falcon.RecoveryTable)
	x.shows("REC-0001 ranktable")
	x.press('X')
	x.shows("ABORT RECOVERY REC-0001?")
	x.armed()
	x.press(tea.KeyTab)
	x.shows("▸ Abort it")
	x.press(tea.KeyEnter)
	x.shows("REC-0001 cancelled")
	if r := e.Recovers(); len(r) != 1 || r[0].Verb != "abort" {
		t.Errorf("sent %v", r)
	}
}

func TestStateThatAllHasEnded(t *testing.T) {
	x, e := recoveryTerm(t, falcon.RecoverySuspend, "")
	x.shows("REC-0001 suspend")
	x.press('E')
	x.shows("does not wait for a proof")
	e.AwaitProof()
	x.shows("nothing proves that")
	x.press('E')
	x.shows("HAS ALL ENDED? REC-0001?")
	x.shows("two jobs will train")
	x.armed()
	x.press(tea.KeyTab)
	x.press(tea.KeyTab)
	x.press(tea.KeyEnter)
	if r := e.Recovers(); len(r) != 0 {
		t.Fatalf("sent without the word: %v", r)
	}
	x.press(tea.KeyEscape)
	x.gone("HAS ALL ENDED")
	x.press('E')
	x.shows("type ENDED")
	x.armed()
	x.press(tea.KeyTab)
	x.types("ENDED")
	x.press(tea.KeyTab)
	x.types("no power, I looked")
	x.press(tea.KeyTab)
	x.shows("▸ It has ended")
	x.press(tea.KeyEnter)
	x.shows("REC-0001 replace")
	if r := e.Recovers(); len(r) != 1 ||
		r[0].Verb != "ended" ||
		r[0].Reason != "no power, I looked" ||
		r[0].PlanHash != enginetest.RecoveryHash {
		t.Errorf("sent %v", r)
	}
}

func TestFenceWantsNodeReasonAndConfirmation(t *testing.T) {
	x, e := recoveryTerm(t, "", "")
	x.shows("IF IT FAILED NOW")
	x.press(':')
	x.types("fence n9 hot")
	x.press(tea.KeyEnter)
	x.shows(`no rank of the job is on node "n9"`)
	for range 4 {
		x.press('j')
	}
	x.shows("▸ n2")
	x.press('f')
	x.shows(":fence n2")
	x.press(tea.KeyEnter)
	x.shows("FENCE NODE n2?")
	x.shows("n2 holds ranks 4-5")
	x.shows("say why")
	x.armed()
	x.press(tea.KeyTab)
	x.press(tea.KeyEnter)
	x.types("ECC errors rise")
	x.shows("▸ Fence it")
	if len(e.Recovers()) != 0 {
		t.Fatal("fenced without a reason")
	}
	x.press(tea.KeyEnter)
	x.shows("REC-0001 suspend")
	r := e.Recovers()
	if len(r) != 1 ||
		r[0].Verb != "fence" ||
		r[0].Node != "n2" ||
		r[0].Reason != "ECC errors rise" {
		t.Errorf("sent %v", r)
	}
}

func TestRenewTakesRankAndReason(t *testing.T) {
	x, e := recoveryTerm(t, "", "")
	x.shows("IF IT FAILED NOW")
	x.press(':')
	x.types("renew 5 leaks memory")
	x.press(tea.KeyEnter)
	x.shows("REPLACE RANK 5?")
	x.shows("leaks memory")
	x.armed()
	x.press(tea.KeyTab)
	x.shows("▸ Replace it")
	x.press(tea.KeyEnter)
	x.shows("REC-0001 suspend")
	r := e.Recovers()
	if len(r) != 1 ||
		r[0].Verb != "renew" ||
		r[0].Rank != 5 ||
		r[0].Reason != "leaks memory" {
		t.Errorf("sent %v", r)
	}
}

func TestViewerSeesTheRecoveryAndWhyNot(t *testing.T) {
	x, e := recoveryTerm(t, falcon.RecoveryProposed, "viewer")
	x.shows("needs role approver")
	x.press('a')
	x.shows("a decision on a recovery needs the role approver; yours is viewer")
	x.press(':')
	x.types("fence n1 hot")
	x.press(tea.KeyEnter)
	x.shows("a fence needs the role approver; yours is viewer")
	if len(e.Recovers()) != 0 {
		t.Error("a viewer's word was sent")
	}
}

func TestRefusedRecoveryIsSaid(t *testing.T) {
	x, e := recoveryTerm(t, falcon.RecoveryProposed, "")
	x.shows("RECOVERY PROPOSED")
	e.Refuse("recovery: the plan has changed\x1b[2J")
	x.press('a')
	x.shows("APPROVE RECOVERY")
	x.armed()
	x.press(tea.KeyTab)
	x.press(tea.KeyEnter)
	x.shows("not done (approve): recovery: the plan has changed")
}

// A plan that changes while the dialog is open can't be approved there.
func TestChangedRecoveryBlocksTheDialog(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(30)
	e.Lose(falcon.RecoveryProposed)
	src, clk := &still{state: pictureOf(t, e, wide)}, newClock()
	m := quiet(t, src, Options{Theme: "dark", Now: clk.now}, 80, 24)
	send(m, "a")
	clk.pass(decision.Guard)
	changed := pictureOf(t, e, wide)
	changed.Snap.Recovery.PlanHash = "other"
	m.Update(updateMsg{changed})
	send(m, "tab")
	send(m, "enter")
	if len(src.words) != 0 || !containsAll(text(m), "the plan has changed") {
		t.Errorf("sent %v:\n%s", src.words, text(m))
	}
}

func TestHostileRecoveryNeverReachesTheTerminal(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.Hostile("\x1b]0;owned\x07\x1b[2J\u202e")
	e.AdvanceTo(30)
	x := openTerm(t, e, 120, 40)
	x.shows("gpt-lab")
	x.press('7')
	x.shows("IF IT FAILED NOW")
	e.Lose(falcon.RecoveryReplace)
	x.shows("REC-0001 replace")
	x.shows("ended: signal 9")
	for _, bad := range []string{"owned", "\u202e", "\x1b]0;o"} {
		if strings.Contains(x.raw.String(), bad) {
			t.Errorf("%q was written", bad)
		}
	}
}

// A word on a recovery leaves the console only after: a dialog opened for it
// that is older than the guard, its focus moved from Cancel, and enter.
func TestNoWordWithoutTheFullPath(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(enginetest.Proposed + 2)
	e.Lose(falcon.RecoveryProposed)
	state := pictureOf(t, e, wide)
	words := 0
	rapid.Check(t, func(t *rapid.T) {
		src, clk := &still{state: state}, newClock()
		m := quiet(t, src, Options{Theme: "dark", Now: clk.now}, 80, 24)
		for _, s := range drawSession(t, sessionKeys, "a") {
			k := s.key
			clk.pass(s.pass)
			d := m.decisions.dialog
			may := m.help == nil &&
				(kindOf(d) == kindRecovery || kindOf(d) == kindDemand) &&
				k == "enter" &&
				d.focus == buttonDo &&
				!d.sending &&
				m.decisions.keyTime().Add(personGap).Sub(d.opened) >= decision.Guard
			before := len(src.words)
			send(m, k)
			m.View()
			if len(src.words) == before {
				continue
			}
			words++
			r := src.words[len(src.words)-1]
			if !may ||
				r.Recovery != "" && r.PlanHash != enginetest.RecoveryHash ||
				r.Recovery == "" && r.Reason == "" {
				t.Fatalf("%q sent %v without the full path", k, r)
			}
		}
	})
	if words == 0 && !testing.Short() {
		t.Error("no random session came as far as a word: the test proves nothing")
	}
}

// A fence is lifted only with a reason and a confirmation, too.
func TestLiftTakesNodeAndReason(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(30)
	src, clk := &still{state: pictureOf(t, e, wide)}, newClock()
	m := quiet(t, src, Options{Theme: "dark", Now: clk.now}, 80, 24)
	for _, k := range append(strings.Split(":lift|n1", ""), "enter") {
		if k == "|" {
			k = "space"
		}
		send(m, k)
	}
	if s := text(m); !containsAll(s, "LIFT THE FENCE OF n1?", "say why", "▸ Cancel") {
		t.Fatalf("the dialog:\n%s", s)
	}
	clk.pass(decision.Guard)
	for _, k := range []string{"tab", "enter", "o", "k", "enter"} {
		send(m, k)
	}
	if len(src.words) != 1 ||
		src.words[0].Verb != "lift" ||
		src.words[0].Node != "n1" ||
		src.words[0].Reason != "ok" {
		t.Errorf("sent %v:\n%s", src.words, text(m))
	}
}

// The approval of a recovery names the ranks that change, with their devices, and what
// incidents have said of those.
func TestRecoveryDialogNamesWhatChanges(t *testing.T) {
	e := enginetest.New(enginetest.Options{Past: true})
	e.AdvanceTo(30)
	e.Lose(falcon.RecoveryProposed)
	live := page.NewState(pictureOf(t, e, wide))
	v := live.Recovering()
	for _, c := range []struct {
		name   string
		change func()
		want   []string
	}{
		{
			"in place",
			func() {},
			[]string{
				"Changes: rank 2 restarts on n1.g0. 7 processes stay.",
				"It would run on n1.g0: culprit of INC-0907",
			},
		},
		{
			"another node",
			func() { v.Replaced = map[int32]string{2: "n4.g0", 3: "n4.g1"} },
			[]string{"rank 2 moves from n1.g0 to n4.g0, rank 3 moves from n1.g1 to n4.g1. 7"},
		},
		{"no spare left", func() { v.Replaced = nil }, []string{"No spare is there for rank 2."}},
		{"whole", func() {
			v.Replaced = map[int32]string{2: "n1.g1"}
			v.Whole = true
		}, []string{"rank 2 moves from n1.g0 to n1.g1 of the same node."}},
	} {
		c.change()
		q := &decision.Recovery{Verb: decision.VerbApprove, Recovery: v}
		var lines []string
		for _, l := range dialogLines(q, live, 200) {
			lines = append(lines, l.Text)
		}
		if got := strings.Join(lines, "\n"); !containsAll(got, c.want...) {
			t.Errorf("%s: want %q in\n%s", c.name, c.want, got)
		}
	}
}

// A list of recoveries that is newer than the picture shows nothing that keys do not mean:
// until the picture has the recovery, a is about what the picture has.
func TestAListNewerThanThePicture(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(enginetest.Proposed)
	old := pictureOf(t, e, wide)
	e.Lose(falcon.RecoveryProposed)
	now := pictureOf(t, e, wide)
	old.Recoveries = now.Recoveries
	m := quiet(
		t,
		&still{state: old},
		Options{Theme: "dark", Now: newClock().now},
		120,
		40,
	)
	m.work.showPage(key.Recovery)
	m.screen.dirty = true
	if s := text(m); strings.Contains(s, "REC-0001") {
		t.Errorf("page 7 shows a recovery that no key is about:\n%s", s)
	}
	m.Update(updateMsg{now})
	m.screen.dirty = true
	if s := text(m); !strings.Contains(s, "REC-0001 proposed") {
		t.Errorf("the recovery is missing:\n%s", s)
	}
	drive(m, "a")
	if s := text(m); !strings.Contains(s, "APPROVE RECOVERY REC-0001?") {
		t.Errorf("a is about something else:\n%s", s)
	}
}
