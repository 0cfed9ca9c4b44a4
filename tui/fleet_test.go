package tui

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/filter"
	"github.com/failslow/falcon/tui/fleet"
	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
)

// standing is a fleet that stays as a test has made it.
type standing struct {
	jobs    []*fleet.Job
	sources map[string]*still
	closed  []string
	pulled  []string
	blurred bool
}

func (s *standing) Jobs() []*fleet.Job       { return slices.Clone(s.jobs) }
func (s *standing) Changed() <-chan struct{} { return nil }
func (s *standing) Done() <-chan struct{}    { return nil }
func (s *standing) Blur(away bool) {
	s.blurred = away
}

func (s *standing) Pull(name string) {
	s.pulled = append(s.pulled, name)
}

func (s *standing) Open(name string) (feed.Source, func(), error) {
	src := s.sources[name]
	if src == nil {
		return nil, nil, errors.New("its engine is not connected yet")
	}
	return src, func() { s.closed = append(s.closed, name) }, nil
}

// add adds a job as its engine has it.
func (s *standing) add(t interface{ Fatal(...any) }, name string, e *enginetest.Engine) *fleet.Job {
	r, err := e.Snapshot(context.Background(), &falconv1.SnapshotRequest{Brief: true})
	if err != nil {
		t.Fatal(err)
	}
	at := newClock().now()
	j := &fleet.Job{
		Name:     name,
		Address:  "/run/falcon/" + name + ".sock",
		Revision: int(r.GetBrief().GetRevision()),
		State: &feed.State{
			Snap:     proto.CloneOf(r),
			Conn:     feed.Live,
			Since:    at,
			Received: at,
		},
	}
	s.jobs = append(s.jobs, j)
	if s.sources == nil {
		s.sources = map[string]*still{}
	}
	state := pictureOf(t, e, wide)
	state.Memo = &feed.Memo{}
	page.Prepare(state, filter.Filter{})
	s.sources[name] = &still{state: state}
	return j
}

func scriptedJob(job string, iter int64, o enginetest.Options) *enginetest.Engine {
	o.Job = job
	e := enginetest.New(o)
	e.AdvanceTo(iter)
	return e
}

// mixed is a fleet with a job in each state.
func mixed(t interface{ Fatal(...any) }) *standing {
	s := &standing{}
	at := newClock().now()
	s.add(
		t,
		"prod-a",
		scriptedJob("llama-70b", enginetest.Proposed+4, enginetest.Options{
			TP: 4,
			DP: 16,
			PP: 8,
		}),
	)
	s.add(t, "prod-b", scriptedJob("qwen-moe", enginetest.Proposed+4, enginetest.Options{
		TP:     8,
		DP:     16,
		PP:     1,
		Role:   "viewer",
		Second: true,
	}))
	s.add(t, "prod-c", scriptedJob("mixtral-8x22b-pretraining-of-november", 40, enginetest.Options{
		DP:      64,
		TP:      8,
		PP:      4,
		Healthy: true,
	}))
	hang := scriptedJob("dbrx", 40, enginetest.Options{Healthy: true})
	hang.Hang(true)
	s.add(t, "prod-d", hang)
	asked := scriptedJob("falcon-40b", 30, enginetest.Options{Healthy: true})
	asked.Lose(falcon.RecoveryProposed)
	s.add(t, "staging", asked)
	back := scriptedJob("falcon-7b", 30, enginetest.Options{Healthy: true})
	back.Lose(falcon.RecoveryReplace)
	s.add(t, "staging-2", back)
	auto := s.add(
		t,
		"auto",
		scriptedJob("phi", enginetest.Proposed+1, enginetest.Options{Auto: true}),
	)
	auto.State.Snap.GetLadder().GetProposal().DeadlineUnixNs = auto.State.Snap.AtUnixNs +
		int64(42*time.Second)
	s.add(t, "new", scriptedJob("olmo", 5, enginetest.Options{}))
	s.add(t, "done", scriptedJob("gpt-2", enginetest.End, enginetest.Options{}))
	s.add(t, "old", scriptedJob("bert", 40, enginetest.Options{Healthy: true})).Revision = 0
	lost := s.add(
		t,
		"away-since",
		scriptedJob("opt-175b", 40, enginetest.Options{Healthy: true}),
	)
	lost.State.Conn = feed.Lost
	lost.State.Err = "dial unix /run/falcon/away-since.sock: connect: connection refused"
	lost.State.Since = at.Add(-4 * time.Minute)
	lost.State.Received = at.Add(-5 * time.Minute)
	lost.Retry = at.Add(12 * time.Second)
	lost.Tries = 7
	s.jobs = append(s.jobs, &fleet.Job{
		Name:    "lab-1",
		Found:   true,
		Address: "/tmp/falcon-lab-0/run-1/falcon.sock",
		State:   &feed.State{Snap: &falconv1.SnapshotReply{}, Since: at},
	})
	return s
}

func quietFleet(t interface{ Fatal(...any) }, src FleetSource, opts Options, w, h int) *Fleet {
	if opts.Now == nil {
		opts.Now = newClock().now
	}
	f, err := NewFleet(src, opts)
	if err != nil {
		t.Fatal(err)
	}
	f.Update(tea.WindowSizeMsg{Width: w, Height: h})
	return f
}

// pressAll presses keys, and hands back what their commands bring.
func pressAll(f *Fleet, keys ...string) {
	for _, k := range keys {
		visited := f.visit != nil
		if visited {
			pass(f.visit.model, personGap)
		}
		_, cmd := f.Update(keyMsg(k))
		if f.visit != nil { // the injected clock stands in for it
			f.visit.model.decisions.redraw = func(time.Duration) tea.Cmd { return nil }
		}
		if visited != (f.visit != nil) {
			if f.visit != nil {
				pacePerson(f.visit.model)
			}
			continue // what begins a visit only waits
		}
		takeBrought(f, cmd)
		if f.visit != nil {
			behold(f.visit.model)
			takeBrought(f, ofVisit(f.visit.number, stayQuiet(f.visit.model)))
		}
	}
}

// takeBrought hands back what a command brings.
func takeBrought(f *Fleet, cmd tea.Cmd) {
	if cmd == nil {
		return
	}
	if msg, ok := cmd().(jobMsg); ok {
		_, last := f.Update(msg)
		closeAll(f, last)
	}
}

// closeAll runs what ends a visit.
func closeAll(f *Fleet, cmd tea.Cmd) {
	if cmd == nil || f.visit != nil {
		return
	}
	if batch, ok := cmd().(tea.BatchMsg); ok {
		for _, c := range batch {
			c()
		}
	}
}

func fleetText(f *Fleet) string {
	f.screen.dirty = true
	return trimRows(stripped(f))
}

// fleetScenes are the list at moments worth a picture.
var fleetScenes = []struct {
	name string
	src  func(t interface{ Fatal(...any) }) *standing
	keys []string
}{
	{"list", mixed, nil},
	{"away", mixed, strings.Fields("j j j j j j j j")},
	{"older", mixed, strings.Fields("G k k")},
	{"several", mixed, strings.Fields("j j j j j j")},
	{"filter", mixed, append(strings.Split("/state:slow", ""), "enter")},
	{"typing", mixed, strings.Split("/is:wai", "")},
	{"none", mixed, append(strings.Split("/nothing", ""), "enter")},
	{"help", mixed, []string{"?"}},
	{"name", mixed, []string{"o", "j"}},
	{"empty", func(interface{ Fatal(...any) }) *standing { return &standing{} }, nil},
	{
		"hundred",
		func(t interface{ Fatal(...any) }) *standing { return hundred(t, 100) },
		strings.Fields("n n ctrl+d"),
	},
}

// sceneSources are the scenes' fleets, made once: a hundred take a while.
var sceneSources = map[int]*standing{}

// hundred is a fleet of n jobs of 1,000 ranks each.
func hundred(t interface{ Fatal(...any) }, n int) *standing {
	s := &standing{}
	for i := range n {
		o := enginetest.Options{
			TP:      4,
			DP:      125,
			PP:      2,
			Healthy: i%7 != 0,
		}
		e := enginetest.New(o)
		e.AdvanceTo(int64(40 + i%13))
		s.add(t, fmt.Sprintf("job-%03d", i), e)
		s.sources = nil // no one goes in
	}
	return s
}

func fleetScreen(t *testing.T, i, w, h int, theme string, profile colorprofile.Profile, ascii bool) *Fleet {
	x := fleetScenes[i]
	if sceneSources[i] == nil {
		sceneSources[i] = x.src(t)
	}
	f := quietFleet(
		t,
		sceneSources[i],
		Options{Theme: theme, Profile: &profile, ASCII: ascii},
		w,
		h,
	)
	pressAll(f, x.keys...)
	f.screen.dirty = true
	return f
}

// The list of jobs: words at every size and in ASCII, and the styles of every size, profile and
// theme.
func TestGoldenFleet(t *testing.T) {
	drawsAlone(t)
	styles := inks{}
	for i, x := range fleetScenes {
		for _, s := range sizes {
			f := fleetScreen(
				t,
				i,
				s[0],
				s[1],
				"dark",
				colorprofile.TrueColor,
				false,
			)
			golden(
				t,
				fmt.Sprintf("text/fleet-%s-%dx%d.txt", x.name, s[0], s[1]),
				fleetText(f),
			)
			styles.add(picture(t, "fleet-"+x.name, s[0], s[1], func(l look) string {
				view := fleetScreen(t, i, s[0], s[1], l.theme, l.profile, false).View().Content
				if x.name != "help" { // a layer cuts blanks at the end
					checkGeometry(t, view, s[0], s[1])
				}
				return view
			}))
		}
		f := fleetScreen(t, i, 80, 24, "dark", colorprofile.ASCII, true)
		for _, r := range f.View().Content {
			if r > 126 {
				t.Fatalf("%s: %q with ASCII only", x.name, r)
			}
		}
		golden(t, fmt.Sprintf("text/fleet-%s-80x24-ascii.txt", x.name), fleetText(f))
	}
	golden(t, "styled/fleet.txt", styles.table())
}

// At no size is anything drawn outside, and nothing fails.
func TestFleetGeometry(t *testing.T) {
	drawsAlone(t)
	for w := 1; w < 210; w += 19 {
		for h := 3; h < 70; h += 9 {
			f := quietFleet(t, mixed(t), Options{Theme: "dark"}, w, h)
			for _, k := range []string{"j", "?", "esc", "/", "a", "esc", "G", "n", "o", "ctrl+d"} {
				pressAll(f, k)
				if h >= headerRows+footerRows+1 && f.help == nil {
					checkGeometry(t, f.View().Content, w, h)
				}
			}
		}
	}
}

// enter goes into a job, esc comes back once there is nothing else to go back to, and 0 at once;
// the console that was left is closed.
func TestEnterAndBack(t *testing.T) {
	s := mixed(t)
	f := quietFleet(t, s, Options{Theme: "dark"}, 120, 40)
	const name = "prod-d"
	f.table.Choose(name)
	pressAll(f, "enter")
	if f.visit == nil || !containsAll(stripped(f), name+" · dbrx", "0 jobs", "1 overview") {
		t.Fatalf("enter shows:\n%s", stripped(f))
	}
	pressAll(f, "2", "esc")
	if f.visit == nil || f.visit.model.work.current != key.Overview {
		t.Fatal("esc leaves the job while there is a page to go back to")
	}
	pressAll(f, "esc")
	if f.visit != nil ||
		!slices.Equal(s.closed, []string{name}) ||
		f.table.Chosen(f.presentRows()).Name != name {
		t.Fatalf("esc does not come back: %v closed", s.closed)
	}
	pressAll(f, "enter", "2", "5", "0")
	if f.visit != nil || len(s.closed) != 2 {
		t.Fatalf("0 does not come back: %v closed", s.closed)
	}
	pressAll(f, "G", "g", "G")
	if pressAll(f, "enter"); f.visit == nil {
		t.Error("a finished job can't be looked at")
	}
}

// A job whose engine was never dialled says why it can't be opened; in a console of one job 0
// says where the others are.
func TestNothingToEnter(t *testing.T) {
	s := mixed(t)
	f := quietFleet(t, s, Options{Theme: "dark"}, 120, 40)
	f.table.Choose("lab-1")
	if pressAll(f, "enter"); f.visit != nil ||
		!strings.Contains(stripped(f), "lab-1 can't be opened: its engine is not connected yet") {
		t.Errorf("\n%s", stripped(f))
	}
	pressAll(f, "r")
	if !slices.Equal(s.pulled, []string{"lab-1"}) {
		t.Errorf("pulled %v", s.pulled)
	}
	m := quiet(
		t,
		s.sources["prod-a"],
		Options{Theme: "dark", Now: newClock().now},
		80,
		24,
	)
	m.Update(keyMsg("0"))
	m.Update(keyMsg("esc"))
	if !strings.Contains(text(m), "falcon console --all") {
		t.Errorf("\n%s", text(m))
	}
}

// Roles are those of each engine: what is refused in one job is offered in another.
func TestRoleIsTheEnginesOwn(t *testing.T) {
	s := mixed(t)
	f := quietFleet(t, s, Options{Theme: "dark"}, 120, 40)
	f.table.Choose("prod-b") // viewer
	pressAll(f, "enter", "a")
	if f.visit.model.decisions.dialog != nil || !strings.Contains(stripped(f), "approver") {
		t.Errorf("a viewer is asked:\n%s", stripped(f))
	}
	pressAll(f, "0")
	f.table.Choose("prod-a") // approver
	pressAll(f, "enter", "a")
	if f.visit.model.decisions.dialog == nil {
		t.Errorf("an approver is not asked:\n%s", stripped(f))
	}
}

// While a dialog is open nothing leaves its job, and with the job the dialog ends: it is not
// there in the next job, nor on coming back.
func TestDialogStaysInItsJob(t *testing.T) {
	s := mixed(t)
	clk := newClock()
	f := quietFleet(t, s, Options{Theme: "dark", Now: clk.now}, 120, 40)
	f.table.Choose("prod-a")
	pressAll(f, "enter", "a", "0", "tab")
	if f.visit == nil ||
		f.visit.name != "prod-a" ||
		f.visit.model.decisions.dialog == nil {
		t.Fatal("0 left the job with its dialog open")
	}
	_, last := f.Update(jobMsg{f.visit.number, leaveMsg{}}) // however it comes about
	closeAll(f, last)
	for _, name := range []string{"auto", "prod-a"} {
		f.table.Choose(name)
		pressAll(f, "enter")
		clk.pass(time.Second)
		if f.visit.model.decisions.dialog != nil {
			t.Errorf("the dialog is open in %s", name)
		}
		pressAll(f, "tab", "enter", "0")
	}
	for name, src := range s.sources {
		if len(src.decides) > 0 {
			t.Errorf("%s was decided on: %v", name, src.decides)
		}
	}
}

// What a command of a job's console brings after the job was left reaches no other job.
func TestLateAnswersAreDropped(t *testing.T) {
	s := mixed(t)
	f := quietFleet(t, s, Options{Theme: "dark"}, 120, 40)
	f.table.Choose("prod-a")
	pressAll(f, "enter")
	old := f.visit.number
	cmd := ofVisit(old, tea.Batch(func() tea.Msg {
		return answerMsg{done: "S2 is approved"}
	}, func() tea.Msg { return leaveMsg{} }))
	pressAll(f, "0")
	f.table.Choose("auto")
	pressAll(f, "enter")
	batch, ok := cmd().(tea.BatchMsg)
	if !ok || len(batch) != 2 {
		t.Fatalf("%v", batch)
	}
	for _, c := range batch {
		f.Update(c())
	}
	if f.visit == nil ||
		f.visit.name != "auto" ||
		strings.Contains(stripped(f), "approved") {
		t.Errorf("an answer of prod-a reached auto:\n%s", stripped(f))
	}
}

// Messages of the library are the program's: they are not marked.
func TestLibrarysMessagesPass(t *testing.T) {
	for _, cmd := range []tea.Cmd{tea.Quit, tea.Raw("x"), tea.SetClipboard("x"), tea.RequestBackgroundColor} {
		msg := ofVisit(3, cmd)()
		if fmt.Sprintf("%T", msg) != fmt.Sprintf("%T", cmd()) {
			t.Errorf("%T became %T", cmd(), msg)
		}
	}
	if msg, ok := ofVisit(3, func() tea.Msg { return tickMsg{} })().(jobMsg); !ok || msg.visit != 3 {
		t.Errorf("%v", msg)
	}
	if ofVisit(3, nil) != nil || ofVisit(3, func() tea.Msg { return nil })() != nil {
		t.Error("nothing became something")
	}
}

// In random sessions over three jobs an approval reaches the job whose dialog was opened in this
// visit, shows its plan, and no other.
func TestNoApprovalReachesAnotherJob(t *testing.T) {
	sent := 0
	base := map[string]*feed.State{}
	for i, name := range []string{"a", "b", "c"} {
		state := stateAt(
			t,
			enginetest.Options{Job: "job-" + name},
			enginetest.Proposed+2,
			0,
			wide,
		)
		state.Snap = proto.CloneOf(state.Snap)
		state.Snap.GetLadder().GetProposal().PlanHash = "plan-" + name
		for _, x := range state.Snap.GetLadder().GetActions() {
			x.PlanHash = "plan-" + name
		}
		if i == 2 {
			state.Snap.Role = "viewer"
		}
		base[name] = state
	}
	rapid.Check(t, func(t *rapid.T) {
		clk := newClock()
		s := &standing{sources: map[string]*still{}}
		for _, name := range []string{"a", "b", "c"} {
			s.sources[name] = &still{state: base[name]}
			s.jobs = append(s.jobs, &fleet.Job{
				Name:     name,
				Revision: 1,
				State:    base[name],
			})
		}
		f := quietFleet(t, s, Options{Theme: "dark", Now: clk.now}, 100, 30)
		for range rapid.IntRange(1, 80).Draw(t, "n") {
			k := rapid.SampledFrom([]string{
				"enter", "enter", "a", "a", "a", "tab", "tab", "esc", "0", "j", "k", "n", "v", "x",
				"F", "5", "left", "right", "down", "y",
			}).Draw(t, "key")
			clk.pass(
				time.Duration(rapid.SampledFrom([]int{0, 50, 500, 1600}).Draw(t, "ms")) * time.Millisecond,
			)
			at, may := "", false
			if f.visit != nil {
				at, may = f.visit.name, fullPath(f.visit.model, k)
			}
			before := map[string]int{}
			for name, src := range s.sources {
				before[name] = len(src.decides)
			}
			pressAll(f, k)
			for name, src := range s.sources {
				if len(src.decides) == before[name] {
					continue
				}
				r := src.decides[len(src.decides)-1]
				if name != at || r.PlanHash != "plan-"+name || r.Approve && !may || name == "c" {
					t.Fatalf("%q at %q sent to %s: %v (full path %v)", k, at, name, r, may)
				}
				if r.Approve {
					sent++
				}
			}
		}
	})
	t.Logf("%d approvals", sent)
	if sent == 0 && !testing.Short() {
		t.Error("no random session came as far as an approval: the test proves nothing")
	}
}

// Nothing can be decided on the list: no key there does.
func TestNothingIsDecidedOnTheList(t *testing.T) {
	for _, b := range key.Default().In(key.Fleet) {
		if key.Decides(b.Action) || decision.Guard == 0 {
			t.Errorf("%s decides", b.Action)
		}
	}
}

func stripped(f *Fleet) string {
	f.screen.dirty = true
	if f.visit != nil {
		f.visit.model.screen.dirty = true
	}
	return ansi.Strip(f.View().Content)
}
