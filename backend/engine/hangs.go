package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/fleet"
	"github.com/failslow/falcon/detect/standstill"
	"github.com/failslow/falcon/recovery"
)

// Bounds of what is asked for, and of what is believed.
const (
	askedCalls = 1 << 18 // of all processes together
	askedLeast = 16      // of one
	askedMost  = 256
	numberMost = 1 << 48 // calls of a communicator
	statusLook = time.Second
)

// hangWatch asks for the calls of a job that stands still and shows who holds it up. It
// orders nothing. An ask is no command and is not persisted: it changes nothing, and
// what an engine asks after its restart has a higher number. What was judged is not
// persisted but for its line, as it is judged again within seconds.
type hangWatch struct {
	*shared

	machine *standstill.Machine
	arbiter *arbiter
	status  *jobStatus
	idle    bool // by its status the job does not train
	looked  time.Time
}

func newHangWatch(s *shared, a *arbiter, st *jobStatus) *hangWatch {
	first := uint64(max(s.cfg.Now().UnixNano(), 0))
	return &hangWatch{
		shared:  s,
		arbiter: a,
		status:  st,
		machine: standstill.New(standstill.Config{Beat: s.cfg.beatPeriod()}, first),
	}
}

// takeSign takes a rank's sign of life.
func (w *hangWatch) takeSign(now time.Time, r falcon.Rank, b *falconv1.RankBeat) {
	w.machine.Step(now, standstill.Sign{
		Rank:         r,
		Pid:          int(b.GetPid()),
		Iteration:    b.GetIteration(),
		Calls:        b.GetCalls(),
		HookAgeMs:    finite(b.GetHookAgeMs(), msMost),
		WaitingMs:    finite(b.GetWaitingMs(), msMost),
		WaitingKnown: b.GetWaitingKnown(),
	})
}

// tick has the machine ask and judge; it returns true when what is shown has changed.
func (w *hangWatch) tick(now time.Time) bool {
	steady := w.det.Steady()
	w.machine.Step(now, standstill.Pace{
		Known: steady.CurrentMs > 0,
		Held:  w.mayStandStill(now),
	})
	w.machine.Tick(now)
	r := w.machine.Ready()
	if r.Empty() {
		return false
	}
	if r.Ask != 0 {
		w.ask(now, r.Ask)
	}
	if r.Changed {
		w.tell(now, r)
	}
	w.machine.Advance(now)
	return r.Changed
}

// mayStandStill reports whether nothing is to be concluded from a job without calls.
func (w *hangWatch) mayStandStill(now time.Time) bool {
	if now.Sub(w.looked) >= statusLook {
		w.looked = now
		switch w.status.current(now) {
		case falcon.JobLearning, falcon.JobSteady, falcon.JobSlow:
			w.idle = false
		case falcon.JobLost: // an agent may be away alone
			w.idle = w.job.someLost(now)
		default:
			w.idle = true
		}
	}
	return w.idle ||
		w.arbiter.present(now).mayStandStill() ||
		w.cluster.recovering() != nil ||
		w.cluster.unadopted() != nil
}

// ask asks the agents of all ranks.
func (w *hangWatch) ask(now time.Time, id uint64) {
	job := w.jobNow()
	w.machine.Forget(len(job.Seats))
	w.machine.Step(now, job)
	q := &falconv1.Ask{
		Id:    id,
		Calls: uint32(min(max(askedCalls/max(len(job.Seats), 1), askedLeast), askedMost)),
	}
	asked := map[falcon.Node]bool{}
	for _, s := range job.Seats {
		n := w.nodes.Node(s.Node)
		if asked[s.Node] || n == nil || !n.Connected() {
			continue
		}
		asked[s.Node] = true
		n.Session.Send(&falconv1.EngineFrame{Body: &falconv1.EngineFrame_Ask{Ask: q}})
	}
}

// jobNow is the ranks and communicators as agents describe them.
func (w *hangWatch) jobNow() standstill.Job {
	out := standstill.Job{Seats: make([]standstill.Seat, w.job.world())}
	groups := groupTable{at: map[uint64]int{}}
	for r := range out.Seats {
		p := w.job.ranks[falcon.Rank(r)]
		if p == nil {
			continue
		}
		s := &out.Seats[r]
		s.Node = p.node
		s.Device = p.device
		s.Pid = int(p.state.GetPid())
		s.Alive = p.state.GetAlive()
		s.Hidden = p.state.GetUnhooked()
		for _, c := range p.liveComms() {
			s.Hidden = s.Hidden || c.GetUnseen()&trafficUnseen != 0
			groups.enter(falcon.Rank(r), c)
		}
	}
	groups.into(&out, w.state.job.Layout)
	return out
}

// groupTable gathers the members of communicators.
type groupTable struct {
	at   map[uint64]int // index by id
	list []gathered
}

// gathered is what the members of a communicator say of it.
type gathered struct {
	id    uint64
	name  string
	size  int
	ranks []falcon.Rank
	place []int32 // of each of them
}

func (t *groupTable) enter(r falcon.Rank, c *falconv1.Comm) {
	at, known := t.at[c.GetId()]
	if !known {
		at = len(t.list)
		t.at[c.GetId()] = at
		t.list = append(t.list, gathered{
			id:   c.GetId(),
			name: clean(c.GetName()),
			size: int(c.GetSize()),
		})
	}
	t.list[at].ranks, t.list[at].place = append(t.list[at].ranks, r), append(t.list[at].place, c.GetRank())
}

// into gives the job its groups, with the names of their dimensions and the kinds by
// which those of other ranks are found that do the same: the first, second, … of a
// dimension on its rank. A group of which most members are not known is left out.
func (t *groupTable) into(out *standstill.Job, l falcon.Layout) {
	count := map[string]int{}
	for _, in := range t.list {
		if in.size < len(in.ranks) || in.size > 2*len(in.ranks) {
			for _, r := range in.ranks {
				out.Seats[r].Hidden = true
			}
			continue
		}
		kind := string(dimensionOf(l, in.ranks)) // entered in their order
		g := standstill.Group{
			ID:     in.id,
			Name:   cmp.Or(in.name, kind, fmt.Sprintf("%016x", in.id)),
			Places: slices.Repeat([]falcon.Rank{-1}, in.size),
		}
		if kind != "" {
			key := fmt.Sprint(kind, in.ranks[0])
			count[key]++
			g.Kind = fmt.Sprint(kind, "#", count[key])
		}
		for i, r := range in.ranks {
			if at := in.place[i]; at >= 0 && int(at) < in.size {
				g.Places[at] = r
			}
		}
		out.Groups = append(out.Groups, g)
	}
}

// onCalls takes an agent's answer.
func (w *hangWatch) onCalls(n *fleet.Node, in *falconv1.Calls, now time.Time) {
	a := standstill.Answer{Ask: in.GetAsk(), Node: n.Name}
	for _, r := range in.GetRanks()[:min(len(in.GetRanks()), gpusMax)] {
		p := w.job.ranks[falcon.Rank(r.GetRank())]
		if p == nil || p.node != n.Name || w.state.fences.processFenced(p.name) {
			continue
		}
		a.Ranks = append(a.Ranks, callsFrom(r))
	}
	w.machine.Step(now, a)
}

// callsFrom reads one process's calls; what can't be is left out.
func callsFrom(in *falconv1.RankCalls) standstill.Calls {
	out := standstill.Calls{Sign: standstill.Sign{
		Rank:         falcon.Rank(in.GetRank()),
		Pid:          int(in.GetPid()),
		Iteration:    falcon.NoIteration,
		Calls:        in.GetTotal(),
		HookAgeMs:    finite(in.GetHookAgeMs(), msMost),
		WaitingMs:    finite(in.GetWaitingMs(), msMost),
		WaitingKnown: in.GetWaitingKnown(),
	}}
	for _, c := range in.GetComms() {
		k := standstill.CommCalls{
			Comm:   c.GetComm(),
			Pairs:  c.GetPairs(),
			Inside: int(min(c.GetInside(), askedMost)),
		}
		if c.GetKnown() && c.GetCollectives() < numberMost {
			k.Collectives = c.GetCollectives()
			k.Known = true
		}
		out.Comms = append(out.Comms, k)
	}
	for _, c := range in.GetCalls()[:min(len(in.GetCalls()), askedMost)] {
		if c.GetOp() > uint32(falcon.OpWaitSignal) ||
			int(c.GetComm()) >= len(out.Comms) ||
			c.GetNumber() >= numberMost {
			continue
		}
		out.Calls = append(out.Calls, standstill.Call{
			Comm:     int(c.GetComm()),
			Number:   c.GetNumber(),
			Op:       falcon.Op(c.GetOp()),
			Count:    c.GetCount(),
			Dtype:    uint8(min(c.GetDtype(), 255)),
			Peer:     int(c.GetPeer()),
			Stream:   c.GetStream(),
			Group:    c.GetGroup(),
			Open:     c.GetOpen(),
			Failed:   c.GetFailed(),
			Captured: c.GetCaptured(),
		})
	}
	return out
}

// tell writes the line of a verdict, or that it is over, and has recoveries know of it.
func (w *hangWatch) tell(now time.Time, r standstill.Ready) {
	text := sentence(r.Hang)
	w.rec.Step(now, recovery.Standstill{Text: text})
	switch {
	case r.Hang == nil && r.TakenUp:
		by := "something else"
		if v := w.cluster.recovering(); v != nil {
			by = v.ID
		}
		w.oplog.logf("hang", 0, "", "the standstill of %.0f s is taken up by %s", r.Lasted.Seconds(), by)
	case r.Hang == nil:
		w.oplog.logf("hang", 0, "", "the job goes on after it stood still for %.0f s", r.Lasted.Seconds())
	case r.Hang.Sure():
		p := &r.Hang.Culprits[0]
		w.oplog.logf("hang", 3, falcon.RankSubject(p.Ranks[0]), "the job stands still: %s. %s",
			text, p.Advice)
	default:
		w.oplog.logf("hang", 2, "", "the job stands still: %s", text)
	}
}

// sentence is a verdict in short; "" for none.
func sentence(h *falcon.Hang) string {
	switch {
	case h == nil:
		return ""
	case h.Sure():
		return lowered(h.Culprits[0].Text) + more(len(h.Culprits)-1)
	}
	text := "no rank can be named: " + lowered(h.Candidates[0].Text) + more(len(h.Candidates)-1)
	if len(h.Doubts) > 0 {
		text += ". " + h.Doubts[0]
	}
	return text
}

func lowered(text string) string {
	if text == "" {
		return text
	}
	return strings.ToLower(text[:1]) + text[1:]
}

func more(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(" (and %d more)", n)
}

// view is the verdict in force; nil without one.
func (w *hangWatch) view() *falconv1.Hang {
	h := w.machine.Ready().Hang
	if h == nil {
		return nil
	}
	return convert.HangToProto(*h)
}
