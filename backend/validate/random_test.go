package validate

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/detect/passes"
)

var (
	worlds     = flag.Int("worlds", 500, "emulated link tests that TestRandomLinkTests plays")
	firstWorld = flag.Uint64("first", 1, "seed of the first of them")
)

// noise is what a host adds to the times that a world's links and devices take.
type noise struct {
	name   string
	jitter float64 // of each repeat, relative
	run    float64 // of all repeats of one run on one path, relative: it lasts for a test
	tail   float64 // probability of a delay with a heavy tail
	delay  float64 // scale of that delay, ms
}

var noises = []noise{
	{"quiet", 0.005, 0.003, 0, 0},
	{"usual", 0.03, 0.01, 0.02, 0.1},
	{"busy", 0.10, 0.05, 0.15, 0.5},
	{"overloaded", 0.30, 0.30, 0.40, 3},
}

// emulated is a job whose links have known speeds. All of it is emulated: no
// process, no link.
type emulated struct {
	*rand.Rand

	members []Member
	noise   noise
	perByte map[falcon.LinkClass]float64 // ms
	latency map[falcon.LinkClass]float64 // ms, of a message
	slow    map[string]float64           // factor by path
	oneWay  bool                         // slow from the lesser device only
	// factor of all paths within nodes: the hosts are busier than in an earlier test
	busy float64
	gemm map[falcon.Rank]float64 // factor
	now  time.Time
	next uint64
}

func newEmulated(seed uint64) *emulated {
	w := &emulated{
		Rand: rand.New(rand.NewPCG(seed, 16)),
		now:  time.Unix(1000, 0),
		slow: map[string]float64{},
		gemm: map[falcon.Rank]float64{},
	}
	nodes, gpus, rails := 2+w.IntN(7), 1+w.IntN(4), w.IntN(2) == 0
	for n := range nodes {
		for g := range gpus {
			nic := 0
			if rails {
				nic = g
			}
			node := fmt.Sprintf("n%d", n)
			w.members = append(w.members, Member{
				Device: falcon.NewDevice(falcon.Node(node), g),
				NIC:    falcon.NIC(fmt.Sprintf("%s.nic%d", node, nic)),
			})
		}
	}
	w.noise = noises[w.IntN(len(noises))]
	mib := 1.0 / (1 << 20)
	same := mib * math.Exp(w.between(-1, 3)) // 0.4 to 20 ms for 1 MiB
	w.perByte = map[falcon.LinkClass]float64{
		falcon.LinkSameRail:  same,
		falcon.LinkCrossRail: 1.3 * same,
		falcon.LinkIntraNode: mib * math.Exp(w.between(-5, -1)),
	}
	w.latency = map[falcon.LinkClass]float64{
		falcon.LinkSameRail:  0.02,
		falcon.LinkCrossRail: 0.03,
		falcon.LinkIntraNode: 0.005,
	}
	w.breakLinks(nodes)
	w.oneWay = w.IntN(3) == 0
	w.busy = 1
	if w.IntN(2) == 0 {
		w.busy = w.between(1, 4)
	}
	if w.IntN(4) == 0 {
		w.gemm[falcon.Rank(w.IntN(len(w.members)))] = w.between(1.6, 4)
	}
	return w
}

func (w *emulated) between(lo, hi float64) float64 {
	return lo + (hi-lo)*w.Float64()
}

// breakLinks slows up to three links between nodes, half of them at most but for
// the only one there is, and perhaps a path within a node.
func (w *emulated) breakLinks(nodes int) {
	links := nodes * (nodes - 1) / 2
	for range min(w.IntN(4), max(1, links/2)) {
		a := w.IntN(nodes)
		b := (a + 1 + w.IntN(nodes-1)) % nodes
		w.slow[falcon.NewLink(falcon.Node(fmt.Sprintf("n%d", a)), falcon.Node(fmt.Sprintf("n%d", b))).String()] = w.between(
			1.6,
			10,
		)
	}
	if gpus := len(w.members) / nodes; gpus > 1 && w.IntN(4) == 0 {
		i := w.IntN(nodes) * gpus
		w.slow[falcon.PathBetween(w.members[i].Device, w.members[i+1].Device)] = w.between(1.6, 10)
	}
}

// factor is by how much a direction is slower than a healthy one.
func (w *emulated) factor(from, to falcon.Device) float64 {
	if w.oneWay && from > to {
		return 1
	}
	return max(1, w.slow[falcon.PathBetween(from, to)])
}

// sample is the times of some repeats that take ms each without noise.
func (w *emulated) sample(ms float64, repeats int) (median, best float64) {
	run := math.Exp(math.Abs(w.NormFloat64()) * w.noise.run)
	list := make([]float64, repeats)
	for i := range list {
		list[i] = ms * run * math.Exp(math.Abs(w.NormFloat64())*w.noise.jitter)
		if w.Float64() < w.noise.tail {
			list[i] += w.noise.delay * min(1000, math.Pow(1-w.Float64(), -1/1.2)) // Pareto
		}
	}
	slices.Sort(list)
	return falcon.Median(list), list[0]
}

// ask picks a few ranks, a link, or all.
func (w *emulated) ask() falcon.ValidationAsk {
	a := falcon.ValidationAsk{By: "ann", Why: "test"}
	world := len(w.members)
	switch w.IntN(4) {
	case 0: // one link
		x := w.IntN(world)
		y := (x + 1 + w.IntN(world-1)) % world
		a.Pairs = [][2]falcon.Rank{{falcon.Rank(min(x, y)), falcon.Rank(max(x, y))}}
	case 1: // some ranks
		var ring []falcon.Rank
		for _, r := range w.Perm(world)[:2+w.IntN(world-1)] {
			ring = append(ring, falcon.Rank(r))
		}
		slices.Sort(ring)
		a.Rings = [][]falcon.Rank{ring}
	default:
		ring := make([]falcon.Rank, world)
		for r := range ring {
			ring[r] = falcon.Rank(r)
		}
		a.Rings = [][]falcon.Rank{ring}
	}
	if w.IntN(2) == 0 {
		a.GEMM = slices.Clone(slices.Concat(a.Rings...))
	}
	return a
}

// play has one validation done by a machine on this world.
func (w *emulated) play(t *testing.T, id string, own passes.Own, ask falcon.ValidationAsk) falcon.Validation {
	t.Helper()
	m := New(Config{Life: time.Minute, MessageBytes: 1 << 20}, func() uint64 {
		w.next++
		return w.next
	})
	m.Step(w.now, Begin{
		ID:      id,
		Ask:     ask,
		Members: w.members,
		Own:     own,
	})
	var queue []Command
	for steps := 0; m.Active() && steps < 10_000; steps++ {
		queue = append(queue, m.Ready().Commands...)
		m.Advance()
		if len(queue) == 0 {
			w.now = w.now.Add(time.Second)
			m.Tick(w.now)
			continue
		}
		c := queue[0]
		queue = queue[1:]
		r := w.results(c, m.Now().Pairs)
		r.Id = c.ID
		m.Step(w.now, Answer{Node: c.Node, Result: r})
	}
	v, _ := m.View()
	return v
}

func (w *emulated) results(c Command, pairs []passes.Pair) *falconv1.CommandResult {
	out := &falconv1.CommandResult{Status: falconv1.CommandStatus_COMMAND_STATUS_DONE}
	state := falconv1.PauseState_PAUSE_STATE_RUNNING
	switch c.Pause.GetPhase() {
	case falconv1.PausePhase_PAUSE_PHASE_ARM:
		out.Status = falconv1.CommandStatus_COMMAND_STATUS_ACCEPTED
		state = falconv1.PauseState_PAUSE_STATE_QUIET
	case falconv1.PausePhase_PAUSE_PHASE_RESUME:
		state = falconv1.PauseState_PAUSE_STATE_RELEASED
	}
	if c.Test != nil {
		for _, x := range c.Test.GetTests() {
			out.Tests = append(out.Tests, w.result(x, pairs))
		}
		w.now = w.now.Add(50 * time.Millisecond)
		return out
	}
	for r, x := range w.members {
		if x.Device.Node() == c.Node {
			out.Pauses = append(out.Pauses, &falconv1.RankPause{
				Rank:        int32(r),
				State:       state,
				Newest:      10,
				Boundary:    10,
				Exact:       true,
				IterationMs: 100,
			})
		}
	}
	return out
}

func (w *emulated) result(x *falconv1.RankTest, pairs []passes.Pair) *falconv1.TestResult {
	out := &falconv1.TestResult{
		Rank:    x.GetRank(),
		Kind:    x.GetKind(),
		Status:  falconv1.TestStatus_TEST_STATUS_DONE,
		Repeats: x.GetRepeats(),
	}
	rank := falcon.Rank(x.GetRank())
	switch x.GetKind() {
	case falconv1.TestKind_TEST_KIND_ID:
		out.ForwardId, out.BackwardId = bytes.Repeat([]byte{1}, idBytes), bytes.Repeat([]byte{2}, idBytes)
	case falconv1.TestKind_TEST_KIND_GEMM:
		out.MedianMs, out.BestMs = w.sample(3*max(1, w.gemm[rank]), int(x.GetRepeats()))
	case falconv1.TestKind_TEST_KIND_LINK:
		i := slices.IndexFunc(pairs, func(p passes.Pair) bool {
			return p[0] == rank || p[1] == rank
		})
		from := pairs[i][0] + pairs[i][1] - rank
		out.Bytes = x.GetBytes() * int64(max(1, x.GetN()))
		out.MedianMs, out.BestMs = w.sample(
			w.exchangeMs(from, rank, out.GetBytes(), true),
			int(x.GetRepeats()),
		)
	}
	return out
}

// exchangeMs is how long messages take without noise, with the link's fault or as if
// it were healthy.
func (w *emulated) exchangeMs(from, to falcon.Rank, bytes int64, faulty bool) float64 {
	a, b := w.members[from], w.members[to]
	class := passes.Class(a.Device, b.Device, a.NIC, b.NIC)
	factor := 1.0
	if faulty {
		factor = w.factor(a.Device, b.Device)
	}
	if class == falcon.LinkIntraNode {
		factor *= w.busy
	}
	return float64(bytes) * (w.latency[class]/(1<<20) + w.perByte[class]*factor)
}

// tally counts what random tests said of directions whose truth is known.
type tally struct{ healthy, called, unsure, slow, found, missed, left, fine int }

// falseAlarms is how many healthy directions one may be called slow of where the host is
// overloaded; elsewhere none is.
const falseAlarms = 5000

// Nothing healthy is called slow, nothing slow is called fine, and a test as a
// whole is fine only where all that was asked for is.
func TestRandomLinkTests(t *testing.T) {
	by := map[string]*tally{}
	for _, n := range noises {
		by[n.name] = &tally{}
	}
	for seed := *firstWorld; seed < *firstWorld+uint64(*worlds); seed++ {
		w := newEmulated(seed)
		w.check(
			t,
			seed,
			w.play(t, "VAL-0002", w.history(t), w.ask()),
			by[w.noise.name],
		)
	}
	for _, n := range noises {
		x := by[n.name]
		t.Logf("| %s | %d | %d | %d | %d | %d | %d | %d |",
			n.name, x.healthy, x.called, x.unsure, x.slow, x.found, x.left, x.missed)
		most := x.healthy / falseAlarms
		if x.missed > 0 || x.called > 0 && (n.name != "overloaded" || x.called > most) {
			t.Errorf("%s: %d of %d healthy ones were called slow, %d of %d slow ones fine",
				n.name, x.called, x.healthy, x.missed, x.slow)
		}
	}
	if q := by["quiet"]; 10*q.found < 7*q.slow {
		t.Errorf(
			"on a quiet machine %d of %d slow directions were found: a test that judges nothing is of no use",
			q.found, q.slow,
		)
	}
}

// history is an earlier test of all links, before the faults; often there is none.
func (w *emulated) history(t *testing.T) passes.Own {
	if w.IntN(3) > 0 {
		return nil
	}
	healthy := *w
	healthy.slow = nil
	healthy.gemm = nil
	healthy.busy = 1
	ring := make([]falcon.Rank, len(w.members))
	for r := range ring {
		ring[r] = falcon.Rank(r)
	}
	v := healthy.play(t, "VAL-0001", nil, falcon.ValidationAsk{
		By:    "ann",
		Rings: [][]falcon.Rank{ring},
	})
	w.now = healthy.now.Add(time.Minute)
	w.next = healthy.next
	return func(from, to falcon.Device, bytes int64) passes.Earlier {
		for _, l := range v.Links {
			if l.FromDevice == from &&
				l.ToDevice == to &&
				l.Bytes == bytes &&
				l.Unjudged != falcon.TooShort {
				return passes.Earlier{
					Ms:    l.Ms,
					From:  v.ID,
					Fine:  l.Unjudged == "" && !l.Slow,
					Known: !l.Slow,
				}
			}
		}
		return passes.Earlier{}
	}
}

func (w *emulated) check(t *testing.T, seed uint64, v falcon.Validation, x *tally) {
	t.Helper()
	wrong := false
	judge := func(factor float64, slow bool, unjudged, fault string) {
		switch isSlow := factor > 1; {
		case fault != "":
			t.Errorf("seed %d: %s", seed, fault)
		case isSlow && slow:
			x.slow++
			x.found++
		case isSlow && unjudged != "":
			x.slow++
			x.left++
		case isSlow:
			x.slow++
			x.missed++
			wrong = true
		default:
			x.healthy++
			switch {
			case slow:
				x.called++
				wrong = true
			case unjudged != "":
				x.unsure++
			}
		}
	}
	asked := false // something slow was
	for _, l := range v.Links {
		factor := w.exchangeMs(l.From, l.To, 1, true) / w.exchangeMs(l.From, l.To, 1, false)
		judge(factor, l.Slow, l.Unjudged, l.Err)
		asked = asked || factor > 1 && !l.Reference
	}
	for _, g := range v.GEMM {
		factor := max(1, w.gemm[g.Rank])
		judge(factor, g.Slow, g.Unjudged, g.Err)
		asked = asked || factor > 1 && !g.Reference
	}
	if out := v.Outcome(); out == falcon.TestsFine || out == falcon.TestsFailed {
		x.fine++
		if asked || out == falcon.TestsFailed {
			t.Errorf("seed %d: %s is %s: %s", seed, v.ID, out, v.Reason)
		}
	}
	if wrong {
		t.Logf("seed %d (%s, %d nodes, slow %v %v, one way %v) was misjudged:\n%s",
			seed, w.noise.name, len(newRoster(w.members).nodes), w.slow, w.gemm, w.oneWay,
			resultLines(v))
	}
}

func resultLines(v falcon.Validation) string {
	out := ""
	for _, g := range v.GEMM {
		out += fmt.Sprintf("  %s %.2f (%.2f) of %.2f: %.2f over %.2f slow %v %s\n",
			g.Device, g.Ms, g.BestMs, g.MedianMs, g.Ratio, g.Limit, g.Slow, g.Unjudged)
	}
	for _, l := range v.Links {
		out += fmt.Sprintf("  %s→%s %s ref %v runs %d: %.2f (%.2f) of %.2f (%s): %.2f over %.2f slow %v %s\n",
			l.FromDevice, l.ToDevice, l.Class, l.Reference, l.Runs, l.Ms, l.BestMs, l.BaseMs,
			l.Basis, l.Ratio, l.Limit, l.Slow, l.Unjudged)
	}
	return out
}
