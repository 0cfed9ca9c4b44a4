package tui

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/key"
)

// path is a second implementation of the dialogs that knows one thing only: the
// way that leads from a dialog's opening to what it may send. It sees the keys
// and the clock, and of the console no more than which question was opened.
type path struct {
	id     int
	kind   kind
	s4     bool
	reason bool // one must be given
	opened time.Time
	at     int // in the ring of stops, 0 = Cancel
	ring   int
	texts  [2]string // the word or reason; a restart's reason
	plan   bool      // a plan is asked about
	other  bool      // it was the other plan
	stale  bool      // what is asked about is not what would be done now
	shown  shown     // what the screen named when the question was opened
}

// shown is what a dialog's text says that it is about.
type shown struct{ incident, plan string }

var (
	shownIncident = regexp.MustCompile(`(INC-\d+): (?:APPROVE|VETO|WITHDRAW|TAKE) S`)
	shownPlan     = regexp.MustCompile(`for (INC-\d+), plan (\w+):`)
)

// readShown reads it off the screen: title and first line must agree.
func readShown(screen string) shown {
	title := shownIncident.FindStringSubmatch(screen)
	line := shownPlan.FindStringSubmatch(screen)
	if title == nil || line == nil || title[1] != line[1] {
		return shown{}
	}
	return shown{title[1], line[2]}
}

// kind is which question a dialog asks.
type kind string

const (
	kindApprove  kind = "Approve"
	kindVeto     kind = "Veto"
	kindTake     kind = "Take"
	kindUnfreeze kind = "Unfreeze"
	kindRecovery kind = "Recovery"
	kindDemand   kind = "Demand"
	kindTest     kind = "Test"
	kindLeave    kind = "Leave"
)

func kindOf(d *dialog) kind {
	if d == nil {
		return ""
	}
	return kind(strings.TrimPrefix(fmt.Sprintf("%T", d.question), "*decision."))
}

// startsOnDo are the questions whose focus is not on Cancel at first.
var startsOnDo = map[kind]bool{kindVeto: true}

func begin(d *dialog, now time.Time, other bool) *path {
	p := &path{
		id:     d.id,
		kind:   kindOf(d),
		opened: now,
		ring:   2,
		other:  other,
	}
	switch q := d.question.(type) {
	case *decision.Approve:
		p.plan, p.s4 = true, q.Action.Rung == "S4"
	case *decision.Take:
		p.plan, p.s4 = true, q.Rung.Rung == "S4"
	case *decision.Veto, *decision.Recovery:
		p.plan = true
	case *decision.Demand:
		p.reason = true
	}
	if p.s4 {
		p.ring = 4
	}
	if startsOnDo[p.kind] {
		p.at = p.ring - 1
	}
	return p
}

// press takes a key and says whether it may be the last of the way.
func (p *path) press(k string, now time.Time) bool {
	if now.Sub(p.opened) < 400*time.Millisecond {
		return false
	}
	switch k {
	case "tab", "right":
		p.at = (p.at + 1) % p.ring
	case "shift+tab", "left":
		p.at = (p.at + p.ring - 1) % p.ring
	case "enter":
		return p.enter()
	default:
		p.write(k)
	}
	return false
}

func (p *path) enter() bool {
	switch {
	case p.at == 0:
		return false
	case p.at < p.ring-1:
		p.at++
		return false
	}
	return !p.stale && p.said()
}

// said is that all is typed that the question wants.
func (p *path) said() bool {
	switch {
	case p.s4:
		return p.texts[0] == "gpt-lab 8" && strings.TrimSpace(p.texts[1]) != ""
	}
	return !p.reason || strings.TrimSpace(p.texts[0]) != ""
}

func (p *path) write(k string) {
	field := 0
	if p.s4 && p.at == 2 {
		field = 1
	}
	t := &p.texts[field]
	if k == "space" {
		k = " "
	}
	switch {
	case p.s4 && p.at != 1 && p.at != 2 && utf8.RuneCountInString(k) > 1:
	case k == "backspace", k == "ctrl+h":
		_, n := utf8.DecodeLastRuneInString(*t)
		*t = (*t)[:len(*t)-n]
	case k == "ctrl+u":
		*t = ""
	case k == "ctrl+w":
		*t = strings.TrimRight(*t, " ")
		*t = (*t)[:strings.LastIndex(*t, " ")+1]
	case utf8.RuneCountInString(k) == 1:
		*t = atMost(*t + k)
		if p.s4 && field == 0 {
			p.at = 1
		}
	}
}

// paste goes into reasons alone.
func (p *path) paste(text string) {
	switch {
	case p.kind == kindVeto || p.kind == kindRecovery || p.kind == kindDemand:
		p.texts[0] = atMost(p.texts[0] + text)
	case p.s4 && p.at == 2:
		p.texts[1] = atMost(p.texts[1] + text)
	}
}

// atMost is what a text entry holds of a text.
func atMost(s string) string {
	r := []rune(s)
	return string(r[:min(len(r), 120)])
}

// scene is a moment that sessions start from, and the same with other plans;
// each also with another incident as the present one.
type scene struct {
	now, other             *feed.State
	nowTurned, otherTurned *feed.State
	closed                 falcon.Rung // can't be approved here
	// nor can another: the engine refuses what comes before an approval has gone out
	busy bool
}

// bars reports whether nobody may approve a rung here; "" is the one proposed.
func (s scene) bars(r string) bool {
	return s.busy || s.closed != "" && (r == "" || r == string(s.closed))
}

// at is the scene as it stands.
func (s scene) at(stale, turned bool) *feed.State {
	switch {
	case stale && turned:
		return s.otherTurned
	case stale:
		return s.other
	case turned:
		return s.nowTurned
	}
	return s.now
}

// turned is a state in which the last of the open incidents is the present one,
// as if the others had been opened before it.
func turned(s *feed.State) *feed.State {
	if len(s.Snap.Others) == 0 {
		return s
	}
	out := *s
	out.Snap = proto.CloneOf(s.Snap)
	slices.Reverse(out.Snap.Incidents)
	out.Snap.Ladder, out.Snap.Others[0] = out.Snap.Others[0], out.Snap.Ladder
	return &out
}

var sceneOptions = []enginetest.Options{{}, {Rung: "S3"}, {Rung: "S4"}, {Auto: true}}

func scenes(t interface{ Fatal(...any) }) []scene {
	var out []scene
	for _, o := range sceneOptions {
		out = append(out, pairOf(stateAt(t, o, enginetest.Proposed+2, 0, wide)))
	}
	frozen := stateAt(t, enginetest.Options{}, enginetest.Proposed+2, 0, wide)
	frozen.Snap.Policy.Frozen = true
	out = append(out, pairOf(frozen))
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(30)
	e.Lose(falcon.RecoveryProposed)
	out = append(out, pairOf(pictureOf(t, e, wide)))
	out = append(out, pairOf(stateAt(t, enginetest.Options{Second: true}, enginetest.SecondFrom+2, 0, wide)))
	return append(out, approvedScenes(t)...)
}

// approvedScenes are approvals that have not gone out: one that waits for the
// end of its undo time, one for a second approver, the same by oneself.
func approvedScenes(t interface{ Fatal(...any) }) []scene {
	var out []scene
	for _, by := range []string{"li", "maria"} {
		for _, o := range []enginetest.Options{{Rung: "S3", Undo: 600}, {Rung: "S3", Two: true}} {
			e := enginetest.New(o)
			e.AdvanceTo(enginetest.Proposed + 2)
			e.Elsewhere(true, by, "")
			s := pairOf(pictureOf(t, e, wide))
			s.busy = o.Undo > 0
			if s.busy || by == "maria" {
				s.closed = falcon.RungS3
			}
			out = append(out, s)
		}
	}
	return out
}

// pairOf adds the same moment with every plan changed.
func pairOf(s *feed.State) scene {
	other := *s
	other.Snap = proto.CloneOf(s.Snap)
	for _, l := range append(slices.Clone(other.Snap.Others), other.Snap.Ladder) {
		if p := l.GetProposal(); p != nil {
			p.PlanHash = "other"
		}
		for _, a := range l.GetActions() {
			a.PlanHash = "other"
		}
		for _, g := range l.GetRungs() {
			g.PlanHash = "other"
		}
	}
	if r := other.Snap.Recovery; r != nil {
		r.PlanHash = "other"
	}
	return scene{
		now:         s,
		other:       &other,
		nowTurned:   turned(s),
		otherTurned: turned(&other),
	}
}

// moves of a session: every key of the table, text, and what else can happen.
const (
	doPaste  = "<paste>"
	doShrink = "<shrink>"
	doGrow   = "<grow>"
	doChange = "<change>"
	doBack   = "<back>"
	doTurn   = "<turn>"
	doWord   = "<word>"
)

var sessionMoves = func() []string {
	list := []string{doPaste, doShrink, doGrow, doChange, doBack, doTurn, doWord, "g", "p", "8", "-", "y"}
	for _, b := range key.Default().Table() {
		if b.Action != key.Quit {
			list = append(list, b.Keys()...)
		}
	}
	return list
}()

// session plays moves, two bytes each, and checks every effect against the path.
type session struct {
	t      interface{ Fatalf(string, ...any) }
	src    *still
	clk    *clock
	m      *Model
	way    *path
	scene  scene
	stale  bool
	turns  bool // another incident is the present one
	small  bool
	done   int // effects that came by the whole way
	vetoes int
}

// playedBytes bounds a session: the fuzzer gives an input ten seconds, on busy
// machines too. The random ones have fewer.
const playedBytes = 161

// failer is what a test, a fuzz target and a random check have in common.
type failer interface {
	Fatal(...any)
	Fatalf(string, ...any)
}

func play(t failer, all []scene, moves []byte) int {
	if len(moves) == 0 {
		return 0
	}
	return replayed(t, all, moves).done
}

func replayed(t failer, all []scene, moves []byte) *session {
	s := &session{
		t:     t,
		clk:   newClock(),
		scene: all[int(moves[0])%len(all)],
	}
	s.src = &still{state: s.scene.now}
	s.m = quiet(t, s.src, Options{Theme: "dark", Now: s.clk.now}, 80, 24)
	for i := 1; i+1 < min(len(moves), playedBytes); i += 2 {
		s.clk.pass([]time.Duration{0, 50, 390, 410, 1000}[int(moves[i])%5] * time.Millisecond)
		s.move(sessionMoves[int(moves[i+1])%len(sessionMoves)])
	}
	return s
}

func (s *session) move(what string) {
	switch what {
	case doPaste:
		const text = "gpt-lab 8"
		s.m.Update(tea.PasteMsg{Content: text})
		if s.way != nil {
			s.way.paste(text)
		}
		s.check(false, "a paste")
	case doShrink, doGrow:
		s.small = what == doShrink
		w, h := 80, 24
		if s.small {
			w, h = 40, 10
		}
		s.m.Update(tea.WindowSizeMsg{Width: w, Height: h})
		s.check(false, "a resize")
	case doChange, doBack, doTurn:
		if what == doTurn {
			s.turns = !s.turns
		} else {
			s.stale = what == doChange
		}
		s.src.state = s.scene.at(s.stale, s.turns)
		s.m.Update(updateMsg{s.src.state})
		s.check(false, "an update")
	case doWord:
		s.write("gpt-lab 8")
	default:
		s.press(what)
	}
}

func (s *session) write(text string) {
	for _, r := range text {
		k := string(r)
		if r == ' ' {
			k = "space"
		}
		s.press(k)
	}
}

func (s *session) press(k string) {
	may := false
	if s.way != nil && !s.small { // on a small screen nothing but cancelling works
		s.way.stale = s.way.plan && s.way.other != s.stale
		may = s.way.press(k, s.clk.now())
	}
	send(s.m, k)
	s.m.View()
	s.check(may, k)
}

// check wants no effect that the path doesn't allow, and follows the dialog.
func (s *session) check(may bool, what string) {
	for _, d := range s.src.decides {
		if !d.Approve {
			s.vetoes++
		}
		got := (shown{d.Incident, d.PlanHash})
		if s.way == nil || got != s.way.shown {
			s.t.Fatalf("%q decided on %v; the dialog showed another incident or plan (%+v)", what, d, s.way)
		}
	}
	if e := s.effects(); e != "" {
		if !may {
			s.t.Fatalf("%q led to %s without the full path (%+v)", what, e, s.way)
		}
		s.done++
	}
	s.src.decides = nil
	s.src.tests = nil
	s.src.words = nil
	s.src.policies = nil
	switch d := s.m.decisions.dialog; {
	case d == nil:
		s.way = nil
	case s.way == nil || s.way.id != d.id:
		s.way = begin(d, s.clk.now(), s.stale)
		s.way.shown = readShown(text(s.m))
	}
}

// effects are what was submitted and is no step to the safe side.
func (s *session) effects() string {
	var out []string
	for _, d := range s.src.decides {
		if d.Approve && s.scene.bars(d.Rung) {
			s.t.Fatalf("%v was sent, though %s is approved here", d, s.scene.closed)
		}
		if d.Approve {
			out = append(out, fmt.Sprintf("decision %v", d))
		}
	}
	for _, w := range s.src.words {
		out = append(out, fmt.Sprintf("recovery %v", w))
	}
	for _, v := range s.src.tests {
		if v.Cancel == "" {
			out = append(out, fmt.Sprintf("test %v", v))
		}
	}
	for _, p := range s.src.policies {
		out = append(out, fmt.Sprintf("policy %v", p))
	}
	return strings.Join(out, "; ")
}
