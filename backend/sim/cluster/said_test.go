package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/engine"
	"github.com/failslow/falcon/backend/statements"
)

// oracle holds what consoles say of the job against what is true of it. It takes from package
// statements what is said and none of its judgements: what is true is in the emulated job, and what
// waits in the engine's own lists.
type oracle struct {
	c      *Cluster
	took   []time.Duration // by the newest iterations, oldest first
	begun  time.Duration   // the newest one, as it was looked at
	heard  time.Duration   // since when nothing has kept the engine from hearing the nodes
	life   int             // of the engine
	engine *engine.Engine
	shown  int64 // when the newest picture of this life was drawn, by its clock; 0 = there is none
	looks  int
	kinds  map[statements.Kind]int
	false  map[string]string // the first false statement of each kind, by what is wrong
	times  map[string]int
}

func newOracle(c *Cluster) *oracle {
	return &oracle{
		c:     c,
		kinds: map[statements.Kind]int{},
		false: map[string]string{},
		times: map[string]int{},
	}
}

// What the oracle allows. An agent looks at its processes every 0.2 to 0.6 s and sends what it found;
// the engine draws pictures every 0.1 s. A latency of the network comes on top, twice.
const (
	lookFor  = 900 * time.Millisecond
	tookKept = 8
	firstFew = 3 // statements, on the first screen of 80 columns and 24 rows
	calmFor  = 15 * time.Second
	againFor = 2 * time.Second // an engine that was started again looks again for whom a recovery waits
)

// look judges what is said now.
func (o *oracle) look(h *host) {
	o.follow(h)
	if h.engine == nil ||
		h.stopped ||
		h.dying ||
		o.c.rival != nil ||
		h != o.c.host {
		return
	}
	snap := o.picture(h)
	if snap == nil || h.engine == nil {
		return
	}
	list := statements.Of(statements.Picture{Snap: snap, Now: h.engine.Time()})
	o.looks++
	o.kinds[list[0].Kind]++
	o.judgeGoodNews(list)
	o.judgeFinished(list)
	o.judgeAlarms(list)
	o.judgeOrder(list, snap)
	o.judgeWaits(list, snap)
}

// pictureAge is the age below which Engine.Latest answers with the picture that it has.
const pictureAge = time.Second

// picture is what the engine shows now, nil where it does not answer. While a picture is young it is
// at hand: only an engine that has to draw one takes a turn for it.
func (o *oracle) picture(h *host) *falconv1.SnapshotReply {
	var snap *falconv1.SnapshotReply
	latest := func(ctx context.Context, e *engine.Engine) error {
		s, err := e.Latest(ctx)
		if s != nil {
			snap = s.Reply
		}
		return err
	}
	ask := h.call
	if o.shown != 0 && h.engine.Time().UnixNano()-o.shown < int64(pictureAge) {
		ask = func(f func(context.Context, *engine.Engine) error) error {
			return f(context.Background(), h.engine)
		}
	}
	if err := ask(latest); err != nil {
		return nil
	}
	o.shown = snap.GetAtUnixNs()
	return snap
}

// follow takes the truth.
func (o *oracle) follow(h *host) {
	if at := o.c.job.begun; at != o.begun {
		if o.begun > 0 {
			o.took = append(o.took[max(0, len(o.took)+1-tookKept):], at-o.begun)
		}
		o.begun = at
	}
	// a full disk lets it take nothing
	if h.engine == nil || h.stopped || h.full > 0 || h.life != o.life {
		o.life, o.heard = h.life, o.c.now
	}
	if h.engine != o.engine {
		o.engine = h.engine
		o.shown = 0
	}
	for _, n := range o.c.order {
		if at := n.reach(h); o.c.now-at.reached > 2*watchEvery || n.paused {
			o.heard = o.c.now
		}
	}
}

// wrong notes a false statement.
func (o *oracle) wrong(what, format string, args ...any) {
	o.times[what]++
	if o.false[what] == "" {
		o.false[what] = fmt.Sprintf("seed %d at %.1f s: ", o.c.seed, o.c.now.Seconds()) +
			fmt.Sprintf(format, args...)
		o.c.log("FALSE: %s: %s", what, o.false[what])
	}
}

// usual is an upper bound of what an iteration takes at present.
func (o *oracle) usual() time.Duration {
	if len(o.took) == 0 {
		return o.c.setup.iteration
	}
	sorted := slices.Sorted(slices.Values(o.took))
	return max(sorted[len(sorted)*3/4], o.c.setup.iteration)
}

// late is how much later than it happens something is known at most.
func (o *oracle) late() time.Duration {
	late := time.Duration(0)
	for _, n := range o.c.order {
		late = max(late, n.path.up.slow, n.path.down.slow)
	}
	return lookFor + statements.Sampling + 2*late
}

// judgeGoodNews wants no good news while no iteration has begun for three usual times.
func (o *oracle) judgeGoodNews(list []statements.Statement) {
	quiet := min(o.c.now-o.c.job.begun, o.c.now-o.heard)
	if o.c.job.finished || quiet <= 3*o.usual()+o.late() {
		return
	}
	for _, s := range list {
		if s.Kind == statements.Running ||
			s.Kind == statements.Slow ||
			s.Kind == statements.Slower ||
			s.Kind == statements.Learning ||
			s.Severity == statements.Good {
			o.wrong("runs, while it stands", "%s (%s), no iteration for %v, usually %v; the job: %s",
				s.Kind, s.Severity, o.c.now-o.c.job.begun, o.usual(), o.c.job.broken())
			return
		}
	}
}

// judgeFinished wants a job called finished that has come to its own end, and no other.
func (o *oracle) judgeFinished(list []statements.Statement) {
	for _, s := range list {
		switch {
		case s.Kind == statements.Finished && o.c.job.over:
			// All its iterations are made. A rank whose node dies before it has ended, or as it
			// ends, can't be told from one that ended with the others.
		case s.Kind == statements.Finished && !o.c.job.finished:
			o.wrong("finished, which it has not", "over %v; the job: %s",
				o.c.job.over, o.c.job.broken())
		case (s.Kind == statements.Ended ||
			s.Kind == statements.Failed ||
			s.Kind == statements.Gone ||
			s.Kind == statements.Stopped) &&
			o.c.job.broken() == "" &&
			o.c.now-o.c.job.begun < o.usual():
			o.wrong("ended, while it trains", "%s", s.Kind)
		}
	}
}

// judgeAlarms wants no standstill of a job that trains before an engine that hears all of it.
func (o *oracle) judgeAlarms(list []statements.Statement) {
	if o.c.now-o.heard < calmFor ||
		len(o.took) < tookKept ||
		o.c.now-o.c.job.begun > o.usual() ||
		o.late() > lookFor+statements.Sampling {
		return
	}
	if slices.Max(o.took) > 2*o.c.setup.iteration || o.c.now-o.c.judge.sick < calmFor {
		return
	}
	for _, s := range list {
		if s.Kind == statements.Standing {
			o.wrong("stands, while it trains", "since %v, usually %v", s.Since, s.Usual)
		}
	}
}

// judgeOrder wants no closed incident before an open one.
func (o *oracle) judgeOrder(list []statements.Statement, snap *falconv1.SnapshotReply) {
	open := map[string]bool{}
	for _, v := range snap.GetIncidents() {
		open[v.GetId()] = v.GetState() == "verified" || v.GetState() == "located"
	}
	closed := ""
	for _, s := range list {
		id := s.IncidentID()
		switch {
		case id == "":
		case !open[id]:
			closed = id
		case closed != "":
			o.wrong("closed before open", "%s before %s", closed, id)
		}
	}
}

// judgeWaits wants all that is pending and may end processes among the first, with its time, and all
// that waits for a person with whom it waits for, and since when.
func (o *oracle) judgeWaits(list []statements.Statement, snap *falconv1.SnapshotReply) {
	frozen := snap.GetPolicy().GetFrozen() || snap.GetPolicy().GetMode() == "observe"
	for _, l := range append([]*falconv1.Ladder{snap.GetLadder()}, snap.GetOthers()...) {
		for _, a := range l.GetActions() {
			if a.GetState() != "proposed" && a.GetState() != "approved" {
				continue
			}
			at := slices.IndexFunc(list, func(s statements.Statement) bool {
				return s.Action.GetId() == a.GetId()
			})
			person := frozen || a.GetState() == "proposed" && a.GetDeadlineUnixNs() == 0
			switch {
			case at < 0:
				o.wrong("an action is not said", "%s is %s", a.GetId(), a.GetState())
			case a.GetRung() == "S4" && at >= firstFew:
				o.wrong("an end of processes is not among the first", "%s is %s, at place %d",
					a.GetId(), a.GetState(), at)
			case person && (list[at].Who == statements.Nobody || list[at].Since.IsZero()):
				o.wrong("who must act, or since when, is not said", "%s is %s", a.GetId(), a.GetState())
			case !person &&
				a.GetDeadlineUnixNs() != 0 &&
				list[at].Until.UnixNano() != a.GetDeadlineUnixNs():
				o.wrong("a countdown is not said", "%s is %s", a.GetId(), a.GetState())
			}
		}
	}
	r := snap.GetRecovery()
	waits := r.GetState() == "proposed" && r.GetDeadlineUnixNs() == 0 ||
		o.c.now-o.heard > againFor &&
			strings.Contains(r.GetReason(), "connect a spare node") &&
			o.c.host.belief.waits
	at := slices.IndexFunc(list, func(s statements.Statement) bool {
		return s.Kind == statements.Recovery
	})
	if waits &&
		(at < 0 || at >= firstFew || list[at].Who == statements.Nobody || list[at].Since.IsZero()) {
		o.wrong("a recovery that waits does not say so", "%s is %s: %s",
			r.GetId(), r.GetState(), r.GetReason())
	}
}

// truths is what all runs together have said.
type truths struct {
	mu    sync.Mutex
	total map[string]int // seeds with a false statement, by what is wrong
	kinds map[statements.Kind]int
	seeds int
	looks int
}

// check fails where a kind of statement was never met: nothing is known of it then.
func (y *truths) check(t *testing.T) {
	t.Helper()
	t.Logf("%d looks; first statements: %v; false, by seeds: %v", y.looks, y.kinds, y.total)
	for _, k := range []statements.Kind{
		statements.Running,
		statements.Standing,
		statements.Recovery,
		statements.Incident,
	} {
		if y.seeds > 4 && y.kinds[k] == 0 {
			t.Errorf("%s was never said first: the test proves nothing of it", k)
		}
	}
}

func newTruths() *truths {
	return &truths{total: map[string]int{}, kinds: map[statements.Kind]int{}}
}

func (y *truths) add(t *testing.T, c *Cluster) {
	t.Helper()
	y.mu.Lock()
	defer y.mu.Unlock()
	y.seeds++
	y.looks += c.oracle.looks
	for k, n := range c.oracle.kinds {
		y.kinds[k] += n
	}
	for what, text := range c.oracle.false {
		if y.total[what] < 3 {
			t.Errorf("%s: %s (%d times)", what, text, c.oracle.times[what])
			at := slices.IndexFunc(c.lines, func(line string) bool {
				return strings.Contains(line, "FALSE: "+what)
			})
			t.Log("\n" + strings.Join(c.lines[max(0, at-*linesShown):at+1], "\n"))
		}
		y.total[what]++
	}
}
