package tui

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"pgregory.net/rapid"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/key"
)

// still is a source without goroutines: it records what is submitted.
type still struct {
	state   *feed.State
	decides []*falconv1.DecideRequest
	freezes int
	tests   []*falconv1.ValidateRequest
	said    []*falconv1.TriageRequest
	words   []*falconv1.RecoverRequest
	past    *falconv1.IncidentsReply // what Incidents answers

	mu       sync.Mutex // of what was decided, which another goroutine may count
	policies []*falconv1.Policy
	want     feed.Want
	err      error // answers decisions
}

func (s *still) Latest() *feed.State      { return s.state }
func (s *still) Changed() <-chan struct{} { return nil }
func (s *still) Done() <-chan struct{}    { return nil }
func (s *still) Ask(w feed.Want) {
	s.want = w
}
func (s *still) Blur(bool) {}

func (s *still) Decide(_ context.Context, r *falconv1.DecideRequest) (*falconv1.Action, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.decides = append(s.decides, r)
	if s.err != nil {
		return nil, s.err
	}
	return &falconv1.Action{Rung: "S2", State: "dispatched"}, nil
}

func (s *still) Validate(_ context.Context, r *falconv1.ValidateRequest) (*falconv1.Validation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tests = append(s.tests, r)
	return &falconv1.Validation{Id: "VAL-0001", State: "surveying"}, nil
}

func (s *still) Recover(_ context.Context, r *falconv1.RecoverRequest) (*falconv1.Recovery, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.words = append(s.words, r)
	return &falconv1.Recovery{Id: "REC-0001", State: "suspend"}, nil
}

func (s *still) Peek(_ context.Context, q *falconv1.PeekRequest) (*falconv1.PeekReply, error) {
	return enginetest.Peek(q)
}

func (s *still) Triage(_ context.Context, r *falconv1.TriageRequest) (*falconv1.TriageReply, error) {
	s.said = append(s.said, r)
	return &falconv1.TriageReply{
		Triage: []*falconv1.Triage{{
			Incident:    "INC-0001",
			Owner:       r.To,
			AckedBy:     "maria",
			AckedUnixNs: 1,
		}},
	}, s.err
}

func (s *still) Incidents(_ context.Context, id string) (*falconv1.IncidentsReply, error) {
	if s.past == nil || s.past.Incidents[0].Id != id {
		return nil, errors.New("no incident " + id)
	}
	return s.past, nil
}

func (s *still) SetPolicy(_ context.Context, p *falconv1.Policy) (*falconv1.Policy, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.policies = append(s.policies, p)
	return p, nil
}

func (s *still) Freeze(context.Context) (*falconv1.Policy, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freezes++
	return &falconv1.Policy{Frozen: true}, s.err
}

// stateAt is the scripted engine's picture at an iteration, approved at
// approve (0 = not).
func stateAt(
	t interface{ Fatal(...any) },
	o enginetest.Options,
	iter, approve int64,
	w feed.Want,
) *feed.State {
	e := enginetest.New(o)
	if approve > 0 {
		e.AdvanceTo(approve)
		_, err := e.Decide(context.Background(), &falconv1.DecideRequest{
			Action:   "INC-0001/S2/1",
			PlanHash: "9f2c41d0",
			Approve:  true,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	e.AdvanceTo(iter)
	return pictureOf(t, e, w)
}

// pictureOf is what a console holds of an engine, recoveries included.
func pictureOf(t interface{ Fatal(...any) }, e *enginetest.Engine, w feed.Want) *feed.State {
	snap, err := e.Snapshot(context.Background(), &falconv1.SnapshotRequest{
		Rank:       w.Rank,
		Columns:    w.Columns,
		RunLengths: w.RunLengths,
		Recent:     w.Recent,
	})
	if err != nil {
		t.Fatal(err)
	}
	list, err := e.Recoveries(context.Background(), &falconv1.RecoveriesRequest{
		Map: !feed.Recovering(snap.Recovery),
	})
	if err != nil {
		t.Fatal(err)
	}
	at := newClock().now()
	return &feed.State{
		Snap:       snap,
		Events:     snap.Events,
		Conn:       feed.Live,
		Since:      at,
		Received:   at,
		Recoveries: list,
	}
}

// run runs a key's command to its end, and hands its answer back.
func run(m *Model, cmd tea.Cmd) {
	if cmd == nil {
		return
	}
	switch msg := cmd().(type) {
	case answerMsg:
		m.Update(msg)
	}
}

// quiet makes a model on a source that has no goroutines.
func quiet(t interface{ Fatal(...any) }, src feed.Source, opts Options, w, h int) *Model {
	m, err := New(src, opts)
	if err != nil {
		t.Fatal(err)
	}
	m.decisions.redraw = func(time.Duration) tea.Cmd { return nil } // the injected clock stands in for it
	pacePerson(m)
	m.Update(tea.WindowSizeMsg{Width: w, Height: h})
	return m
}

// wide asks for what an 80-column screen shows.
var wide = feed.Want{Rank: -1, Columns: 70}

// step is one event of a random session, as the model below sees it.
type step struct {
	key  string
	pass time.Duration
}

// An approval leaves the console only after: a, with a dialog opened by it
// that is older than the guard, its focus moved to Approve, and enter. A
// second, much simpler model of the dialog says when that is the case.
func TestNoApprovalWithoutTheFullPath(t *testing.T) {
	state := stateAt(t, enginetest.Options{}, enginetest.Proposed+2, 0, wide)
	approvals := 0
	rapid.Check(t, func(t *rapid.T) {
		src := &still{state: state}
		clk := newClock()
		m := quiet(t, src, Options{Theme: "dark", Now: clk.now}, 80, 24)
		for _, s := range drawSession(t, sessionKeys, "a") {
			clk.pass(s.pass)
			may := fullPath(m, s.key)
			before := len(src.decides)
			send(m, s.key)
			m.View()
			if len(src.decides) == before {
				continue
			}
			r := src.decides[len(src.decides)-1]
			if r.Approve {
				approvals++
			}
			if r.Approve && !may {
				t.Fatalf("%q approved without the full path", s.key)
			}
			if r.PlanHash != "9f2c41d0" ||
				r.JobEpoch != 1 ||
				(r.Action == "") == (r.Rung == "") {
				t.Fatalf("a decision lacks what was seen: %v", r)
			}
		}
	})
	t.Logf("%d approvals", approvals)
	if approvals == 0 && !testing.Short() {
		t.Error("no random session came as far as an approval: the test proves nothing")
	}
}

// drawSession draws random keys, with a person's path from a dialog's key to its confirmation among
// them now and then: by chance alone hardly any session leaves the guard the pauses that it asks for.
func drawSession(t *rapid.T, keys []string, open string) []step {
	var out []step
	for range rapid.IntRange(1, 60).Draw(t, "n") {
		out = append(out, step{
			key: rapid.SampledFrom(keys).Draw(t, "key"),
			pass: time.Duration(rapid.SampledFrom([]int{0, 50, 390, 410, 1600}).Draw(t, "ms")) *
				time.Millisecond,
		})
		if rapid.IntRange(0, 9).Draw(t, "path") > 0 {
			continue
		}
		for _, k := range []string{"esc", open, "tab", "enter"} {
			ms := rapid.SampledFrom([]int{390, 410, 1600, 1700}).Draw(t, "path's ms")
			out = append(out, step{
				key:  k,
				pass: time.Duration(ms) * time.Millisecond,
			})
		}
	}
	return out
}

// fullPath reports whether this key, now, is the last step of the whole path.
func fullPath(m *Model, k string) bool {
	d := m.decisions.dialog
	return m.help == nil &&
		(kindOf(d) == kindApprove || kindOf(d) == kindTake) &&
		k == "enter" &&
		d.focus == buttonDo &&
		!d.sending &&
		m.decisions.keyTime().Add(personGap).Sub(d.opened) >= decision.Guard
}

// sessionKeys are every key of the table, some text and a paste; the keys of
// the path come often.
var sessionKeys = func() []string {
	list := []string{"x", "y", "Y", " ", "paste", "ctrl+v", "A"}
	for _, b := range key.Default().Table() {
		if b.Action != key.Quit {
			list = append(list, b.Keys()...)
		}
	}
	for range 100 {
		list = append(list, "a", "tab", "enter")
	}
	return list
}()

func send(m *Model, k string) {
	if k == "paste" {
		m.Update(tea.PasteMsg{Content: "a\t\r\nunfreeze"})
		return
	}
	pass(m, personGap)
	_, cmd := m.Update(keyMsg(k))
	run(m, cmd)
	behold(m)
	run(m, stayQuiet(m))
}

var named = map[string]tea.Key{
	"space":     {Code: tea.KeySpace, Text: " "},
	"tab":       {Code: tea.KeyTab},
	"shift+tab": {Code: tea.KeyTab, Mod: tea.ModShift},
	"enter":     {Code: tea.KeyEnter},
	"esc":       {Code: tea.KeyEscape},
	"up":        {Code: tea.KeyUp},
	"down":      {Code: tea.KeyDown},
	"left":      {Code: tea.KeyLeft},
	"right":     {Code: tea.KeyRight},
	"home":      {Code: tea.KeyHome},
	"end":       {Code: tea.KeyEnd},
	"pgup":      {Code: tea.KeyPgUp},
	"pgdown":    {Code: tea.KeyPgDown},
	"backspace": {Code: tea.KeyBackspace},
	"ctrl+c":    {Code: 'c', Mod: tea.ModCtrl},
	"ctrl+u":    {Code: 'u', Mod: tea.ModCtrl},
	"ctrl+d":    {Code: 'd', Mod: tea.ModCtrl},
	"ctrl+h":    {Code: 'h', Mod: tea.ModCtrl},
	"ctrl+w":    {Code: 'w', Mod: tea.ModCtrl},
	"ctrl+a":    {Code: 'a', Mod: tea.ModCtrl},
	"ctrl+e":    {Code: 'e', Mod: tea.ModCtrl},
	"ctrl+v":    {Code: 'v', Mod: tea.ModCtrl},
}

func keyMsg(k string) tea.KeyPressMsg {
	if n, ok := named[k]; ok {
		return tea.KeyPressMsg(n)
	}
	return tea.KeyPressMsg{Code: []rune(k)[0], Text: k}
}

// The names in the key table are those that the library gives to keys.
func TestKeyNamesAreTheLibrarys(t *testing.T) {
	for _, b := range key.Default().Table() {
		for _, k := range b.Keys() {
			if got := keyMsg(k).String(); got != k {
				t.Errorf("%s %q is called %q", b.Action, k, got)
			}
		}
	}
}

func TestEveryKeyIsInHelp(t *testing.T) {
	for _, p := range key.Pages {
		h := newHelpBox(key.Default(), p)
		text := ""
		for _, l := range h.helpLines(72) {
			text += l.Text + "\n"
		}
		for _, s := range []key.Scope{p, key.Global, key.Dialog, key.Prompt, key.Help} {
			for _, b := range key.Default().In(s) {
				if !containsAll(text, "  "+b.Help().Key+" ") {
					t.Errorf("help of %s lacks %q of %s", p, b.Help().Key, s)
				}
			}
		}
	}
}

// A plan that changes while the dialog is open can't be approved there.
func TestChangedPlanBlocksTheDialog(t *testing.T) {
	state := stateAt(t, enginetest.Options{}, enginetest.Proposed+2, 0, wide)
	src := &still{state: state}
	clk := newClock()
	m := quiet(t, src, Options{Theme: "dark", Now: clk.now}, 80, 24)
	send(m, "a")
	clk.pass(decision.Guard)
	changed := stateAt(t, enginetest.Options{}, enginetest.Proposed+3, 0, wide)
	changed.Snap.Ladder.Proposal.PlanHash = "other"
	m.Update(updateMsg{changed})
	send(m, "tab")
	send(m, "enter")
	if len(src.decides) != 0 {
		t.Errorf("approved a plan that was not the one seen: %v", src.decides)
	}
	if s := text(m); !containsAll(s, "the plan has changed") {
		t.Errorf("the dialog does not say so:\n%s", s)
	}
}

func TestLeavingAsksWhenTheEngineWouldStop(t *testing.T) {
	open := func(iter int64) *Model {
		src := &still{state: stateAt(t, enginetest.Options{}, iter, 0, wide)}
		return quiet(
			t,
			src,
			Options{
				Theme:    "dark",
				Now:      newClock().now,
				QuitNote: "the engine stops too",
			},
			80,
			24,
		)
	}
	m := open(30)
	send(m, "q")
	if m.leaving || !containsAll(text(m), "LEAVE?", "the engine stops too") {
		t.Errorf("q must ask:\n%s", text(m))
	}
	send(m, "esc")
	send(m, "ctrl+c")
	send(m, "ctrl+c")
	if !m.leaving {
		t.Error("the second interrupt must leave")
	}
	m = open(enginetest.End)
	send(m, "q")
	if !m.leaving {
		t.Error("nothing is lost once the job has finished")
	}
}

// What can't be seen can't be decided: a screen too small for the dialog takes
// no approval, and still lets the operator leave.
func TestSmallScreenDecidesNothing(t *testing.T) {
	src := &still{state: stateAt(
		t,
		enginetest.Options{},
		enginetest.Proposed+2,
		0,
		wide,
	)}
	clk := newClock()
	m := quiet(
		t,
		src,
		Options{
			Theme:    "dark",
			Now:      clk.now,
			QuitNote: "the engine stops too",
		},
		80,
		24,
	)
	send(m, "a")
	m.Update(tea.WindowSizeMsg{Width: 40, Height: 10})
	for _, k := range []string{"tab", "enter", "F", "esc", "a", "v", "c"} {
		clk.pass(decision.Guard)
		send(m, k)
	}
	if len(src.decides)+src.freezes > 0 || m.decisions.dialog != nil {
		t.Errorf("decided blindly: %v, %d freezes, dialog %v", src.decides, src.freezes, m.decisions.dialog)
	}
	send(m, "q")
	clk.pass(decision.Guard)
	if s := text(m); !containsAll(s, "LEAVE?", "tab, then enter, leaves") {
		t.Errorf("q on a small screen:\n%s", s)
	}
	send(m, "tab")
	send(m, "enter")
	if !m.leaving {
		t.Error("tab, then enter, does not leave")
	}
}
