package plain

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/internal/enginetest"
)

// picture is what the scripted engine shows.
func picture(t testing.TB, e *enginetest.Engine) *feed.State {
	t.Helper()
	r, err := e.Snapshot(context.Background(), &falconv1.SnapshotRequest{Rank: -1})
	if err != nil {
		t.Fatal(err)
	}
	return &feed.State{
		Snap:     r,
		Conn:     feed.Live,
		Received: time.Unix(1, 0),
	}
}

// sitting is an asker with a clock that the test drives.
type sitting struct {
	t   testing.TB
	ask *asker
	s   *feed.State
	now time.Time
	out string
}

func sitAt(t testing.TB, s *feed.State) *sitting {
	x := &sitting{
		t:   t,
		ask: newAsker(),
		s:   s,
		now: time.Unix(1000, 0),
	}
	x.show(s)
	return x
}

func (x *sitting) show(s *feed.State) {
	x.s = s
	x.out = strings.Join(x.ask.state(s, x.now), "\n")
}

// types waits until the question has been read, then types a line.
func (x *sitting) types(line string) *request {
	x.now = x.now.Add(decision.Guard)
	return x.typesAtOnce(line)
}

func (x *sitting) typesAtOnce(line string) *request {
	out, r := x.ask.line(line, x.s, x.now)
	x.out = strings.Join(out, "\n")
	return r
}

func (x *sitting) said(parts ...string) {
	x.t.Helper()
	for _, p := range parts {
		if !strings.Contains(x.out, p) {
			x.t.Errorf("said %q, want %q", x.out, p)
		}
	}
}

func proposed(t testing.TB) *feed.State {
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(enginetest.Proposed + 1)
	return picture(t, e)
}

func TestApproveTakesTwoAnswers(t *testing.T) {
	x := sitAt(t, proposed(t))
	x.said("DECISION NEEDED: S2 (shift micro-batches) for INC-0001, plan 9f2c41d0",
		"1) approve  2) veto  3) show evidence")
	if r := x.types("3"); r != nil {
		t.Error("evidence sends something")
	}
	x.said("GPU degradation on n1.g0", "+ ", "expected: 400 ms → 262 ms", "if it is wrong", "1) approve")
	if r := x.types("1"); r != nil {
		t.Error("one answer approves")
	}
	x.said("approve S2 for INC-0001 with plan 9f2c41d0? type yes to approve")
	r := x.types("yes")
	want := &falconv1.DecideRequest{
		Incident: "INC-0001",
		Action:   "INC-0001/S2/1",
		PlanHash: "9f2c41d0",
		Approve:  true,
		JobEpoch: 1,
	}
	if r == nil || !proto.Equal(r.Decide, want) {
		t.Errorf("sent %v", r)
	}
	if r := x.types("1"); r != nil {
		t.Error("a decision that is under way is sent again")
	}
}

// Of two incidents that wait both are asked about, the present one first; a
// question stays on its incident when another comes to the front.
func TestEveryOpenIncidentIsAskedAbout(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(enginetest.SecondFrom + 1)
	first := picture(t, e)
	x := sitAt(t, first)
	x.said("DECISION NEEDED: S2 (shift micro-batches) for INC-0001")
	e = enginetest.New(enginetest.Options{Second: true})
	e.AdvanceTo(enginetest.SecondFrom + 1)
	x.show(picture(t, e))
	x.types("1")
	r := x.types("yes")
	if r == nil || r.Decide.Incident != "INC-0001" || r.Decide.PlanHash != "9f2c41d0" {
		t.Fatalf("sent %v", r)
	}
	x.ask.answered(answer{own: true, text: "approved"})
	x.show(x.s)
	x.said("DECISION NEEDED: S3 (change topology) for INC-0002, plan " + enginetest.SecondHash)
	x.types("1")
	if r := x.types("yes"); r == nil || r.Decide.Action != "INC-0002/S3/1" {
		t.Errorf("sent %v", r)
	}
}

func TestWhatWasTypedBeforeDoesNotCount(t *testing.T) {
	x := sitAt(t, proposed(t))
	for _, l := range []string{"1", "yes", "1"} {
		if r := x.typesAtOnce(l); r != nil {
			t.Fatalf("%q sent %v", l, r)
		}
		x.said("too early")
	}
	x.types("1")
	if r := x.typesAtOnce("yes"); r != nil {
		t.Error("yes counts before its question was read")
	}
	for _, l := range []string{"y", "YES", "yes please", ""} {
		x.types("cancel")
		x.types("1")
		if r := x.types(l); r != nil {
			t.Errorf("%q approves", l)
		}
		x.said("cancelled, nothing was sent")
	}
}

func TestStaleQuestionsAreWithdrawn(t *testing.T) {
	change := func(f func(*falconv1.SnapshotReply)) *feed.State {
		s := proposed(t)
		s.Snap = proto.CloneOf(s.Snap)
		f(s.Snap)
		return s
	}
	act := func(r *falconv1.SnapshotReply) *falconv1.Action {
		return r.Ladder.Actions[len(r.Ladder.Actions)-1]
	}
	lost := proposed(t)
	lost.Conn = feed.Lost
	for say, s := range map[string]*feed.State{
		"the plan of INC-0001/S2/1 has changed": change(func(r *falconv1.SnapshotReply) {
			act(r).PlanHash = "0badc0de"
		}),
		"no longer waits for a decision": change(func(r *falconv1.SnapshotReply) {
			act(r).State = "vetoed"
		}),
		"the job's epoch has changed": change(func(r *falconv1.SnapshotReply) { r.Job.Epoch++ }),
		"the engine is unreachable":   lost,
	} {
		x := sitAt(t, proposed(t))
		x.types("1")
		x.show(s)
		x.said("question withdrawn: ", say)
		if r := x.types("yes"); r != nil {
			t.Errorf("%s: yes still sends %v", say, r)
		}
	}
}

func TestNobodyIsAskedWhoMayNot(t *testing.T) {
	s := proposed(t)
	for _, role := range []string{"viewer", "operator", "", "agent"} {
		s.Snap = proto.CloneOf(s.Snap)
		s.Snap.Role = role
		x := sitAt(t, s)
		if x.out != "" {
			t.Errorf("%s is asked: %q", role, x.out)
		}
		for _, l := range []string{"1", "yes", "2"} {
			if r := x.types(l); r != nil {
				t.Errorf("%s sends %v", role, r)
			}
		}
		if r := x.types("freeze"); (r != nil) != (role == "operator") {
			t.Errorf("%s freezes: %v", role, r)
		}
	}
}

func TestClosedInputDecidesNothing(t *testing.T) {
	x := sitAt(t, proposed(t))
	x.types("1")
	x.ask.closed = true
	out := strings.Join(x.ask.withdraw(x.s), "\n")
	if !strings.Contains(out, "is left to others") {
		t.Errorf("said %q", out)
	}
	x.show(x.s)
	if x.out != "" || x.types("yes") != nil {
		t.Errorf("asked again: %q", x.out)
	}
}

func TestVetoTakesAReason(t *testing.T) {
	x := sitAt(t, proposed(t))
	x.types("2")
	x.said("reason for the veto?")
	if x.types("") != nil || x.types("cancel") != nil {
		t.Error("an empty reason sends")
	}
	x.types("2")
	r := x.types("maintenance at ten\x1b[2J")
	if r == nil ||
		r.Decide.Approve ||
		r.Decide.Reason != "maintenance at ten" ||
		r.Decide.PlanHash != "9f2c41d0" {
		t.Errorf("sent %v", r)
	}
	x = sitAt(t, proposed(t))
	x.types("2")
	if r := x.types("-"); r == nil || r.Decide.Approve || r.Decide.Reason != "" {
		t.Errorf("sent %v", r)
	}
}

func TestRestartTakesTypedWordsAndAReason(t *testing.T) {
	s := proposed(t)
	s.Snap = proto.CloneOf(s.Snap)
	s.Snap.Ladder.Actions[len(s.Snap.Ladder.Actions)-1].Rung = "S4"
	x := sitAt(t, s)
	x.types("1")
	x.said(`type "gpt-lab 8" to approve`)
	if x.types("yes") != nil {
		t.Error("yes restarts the job")
	}
	x.types("1")
	if x.types("gpt-lab 8") != nil {
		t.Error("no reason is asked for")
	}
	if x.types("-") != nil {
		t.Error("a restart without a reason")
	}
	r := x.types("node n1 is condemned")
	if r == nil || !r.Decide.Approve || r.Decide.Reason != "node n1 is condemned" {
		t.Errorf("sent %v", r)
	}
}

func TestRecoveriesAreAskedFirst(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(enginetest.Proposed + 1)
	e.Lose(falcon.RecoveryProposed)
	x := sitAt(t, picture(t, e))
	x.said("DECISION NEEDED: recovery REC-", "2) deny")
	x.types("3")
	x.said("faults:", "it waits because")
	x.types("1")
	r := x.types("yes")
	if r == nil ||
		r.Recover == nil ||
		r.Recover.Verb != "approve" ||
		r.Recover.PlanHash == "" {
		t.Errorf("sent %v", r)
	}
}

// Approving through Run: what is piped in at once decides nothing; what is
// typed after reading does.
func TestRunApproves(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(enginetest.Proposed + 1)
	in, keys := io.Pipe()
	out := newSink()
	cl := client(t, e)
	ended := make(chan error, 1)
	go func() {
		ended <- Run(context.Background(), cl, out, Options{In: in})
	}()
	out.until(t, "3) show evidence")
	enter := func(s string) {
		if _, err := io.WriteString(keys, s); err != nil {
			t.Error(err)
		}
	}
	enter("1\nyes\n")
	out.until(t, "too early")
	if len(e.Decides()) != 0 {
		t.Fatal("decided by what was piped in")
	}
	for len(e.Decides()) == 0 { // the guard is real time here
		enter("1\n")
		time.Sleep(decision.Guard)
		enter("yes\n")
		time.Sleep(decision.Guard)
	}
	out.until(t, "decided by maria")
	enter("quit\n")
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	_ = keys.Close()
	if d := e.Decides(); len(d) != 1 || !d[0].Approve {
		t.Errorf("decided %v", d)
	}
}

// A pipe that holds all answers and ends approves nothing.
func TestRunWithAllAnswersPiped(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(enginetest.Proposed + 1)
	out := newSink()
	cl := client(t, e)
	ended := make(chan error, 1)
	go func() {
		ended <- Run(context.Background(), cl, out, Options{
			In: strings.NewReader(strings.Repeat("1\nyes\n", 50)),
		})
	}()
	out.until(t, "waits for a decision")
	e.AdvanceTo(enginetest.End)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if d := e.Decides(); len(d) != 0 {
		t.Errorf("decided %v", d)
	}
}

// FuzzAsker types anything at any pace while the picture changes, and checks
// by a second, simple account of the last lines that an approval was asked for
// only by 1 and yes, each typed after its question had been read, with no
// change of the picture in between.
func FuzzAsker(f *testing.F) {
	f.Add([]byte{0, 2, 6, 0})
	f.Add([]byte{0, 8, 2, 6, 0, 6, 9, 1, 6})
	lines := []string{"1", "yes", "2", "3", "cancel", "-", "status", "freeze", "x"}
	base := proposed(f)
	other := proposed(f)
	other.Snap = proto.CloneOf(other.Snap)
	other.Snap.Ladder.Actions[len(other.Snap.Ladder.Actions)-1].PlanHash = "0badc0de"
	f.Fuzz(func(t *testing.T, ops []byte) {
		x := sitAt(t, base)
		var path []string // since the last question or change
		for _, op := range ops {
			switch n := int(op) % 16; {
			case n < len(lines):
				x.now = x.now.Add(time.Duration(op/16) * decision.Guard / 4)
				read := x.now.Sub(since(x.ask)) >= decision.Guard
				r := x.typesAtOnce(lines[n])
				if read {
					path = append(path, lines[n])
				}
				if r != nil && r.Decide != nil && r.Decide.Approve {
					n := len(path)
					if n < 2 ||
						path[n-2] != "1" ||
						path[n-1] != "yes" ||
						r.Decide.PlanHash != hashOf(x.s) {
						t.Fatalf("approved by %v with %s", path, r.Decide.PlanHash)
					}
				}
			case n == 9, n == 10:
				to := base
				if n == 9 {
					to = other
				}
				if x.s != to { // the same picture again changes nothing
					path = nil
				}
				x.show(to)
			case n == 11 && x.ask.open != nil && x.ask.open.step == sending:
				x.ask.answered(answer{own: true, err: feed.ErrRefused})
				x.show(x.s)
				path = nil
			}
		}
	})
}

func since(a *asker) time.Time {
	if a.open == nil {
		return time.Time{}
	}
	return a.open.since
}

func hashOf(s *feed.State) string {
	return s.Snap.Ladder.Actions[len(s.Snap.Ladder.Actions)-1].PlanHash
}
