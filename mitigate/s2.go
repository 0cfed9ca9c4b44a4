package mitigate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/mitigate/cost"
	"github.com/failslow/falcon/mitigate/microbatch"
)

// Reasons why S2 can't help; each is shown to the operator as it is.
var (
	errNotLocated = errors.New("the culprit is not located yet")
	errOver       = errors.New("the fault has cleared")
	errNoSpeeds   = errors.New("the ranks' speeds are not measured yet")
	errOneReplica = errors.New("there is one replica only: nowhere to move work")
	errNoCounts   = errors.New("the job does not say how many micro-batches it runs")
	errTooMany    = fmt.Errorf("the batch has more than %d micro-batches", totalMost)
	errNotHW      = errors.New("all replicas are equally slow, no split is better")
	errNetwork    = errors.New("it moves computation, not traffic: a slow link stays slow")
	errUnknown    = errors.New("the cause is unknown: moving work on a guess can make it worse")
)

// s2Plan is a priced split.
type s2Plan struct {
	counts      []int32
	beforeMs    float64
	predictedMs float64
}

// planS2 prices the best split of the present speeds, or says why there is
// none.
func (p *Planner) planS2(s *story) (s2Plan, error) {
	if err := p.s2Applies(s); err != nil {
		return s2Plan{}, err
	}
	best, err := p.bestSplit(s)
	if err != nil {
		return s2Plan{}, err
	}
	before := p.slowMs(s)
	plan := s2Plan{counts: slices.Clone(best.counts), beforeMs: before, predictedMs: best.predictMs(before, s.incident.HealthyMs)}
	if gain := before - plan.predictedMs; gain < p.cfg.MinGain*before {
		return s2Plan{}, fmt.Errorf("no split gains %.0f %%: the best saves %.1f ms of %.1f ms", 100*p.cfg.MinGain, max(gain, 0), before)
	}
	return plan, nil
}

// split is the best split for some speeds, and what the present one takes by
// the same model. It is solved once: consoles ask for it many times a second.
type split struct {
	now                   []int32 // the present split it was compared with
	counts                []int32
	presentMs, makespanMs float64
	replicas              []replicaMs
	err                   error
}

// replicaMs is what one replica's pipeline takes by the model: with the split
// of a job without actions, the present one and the best one.
type replicaMs struct {
	base, now, best float64
}

// nearSlowest is the share of the slowest replica's time from which on a
// replica counts as one that the job waits for.
const nearSlowest = 0.95

// predictMs is the simulated pipeline plus what the simulation misses
// (reductions, optimizer, a starved host's launches). Replicas that the job
// waits for now miss what is missing now; the others miss what was missing
// when all was well: a slow node's extra does not move with its work.
func (b split) predictMs(beforeMs, healthyMs float64) float64 {
	missing := max(0, beforeMs-b.presentMs)
	out := b.makespanMs
	for _, r := range b.replicas {
		own := missing
		if r.now < nearSlowest*b.presentMs && healthyMs > 0 && r.base > 0 {
			own = min(missing, max(0, healthyMs-r.base))
		}
		out = max(out, r.best+own)
	}
	return out
}

func (p *Planner) bestSplit(s *story) (split, error) {
	if s.split.now == nil || !slices.Equal(s.split.now, p.job.MicroBatches) {
		s.split = p.solve(s.speeds)
	}
	return s.split, s.split.err
}

func (p *Planner) solve(speeds []float64) split {
	out := split{now: slices.Clone(p.job.MicroBatches)}
	now := toInts(p.job.MicroBatches)
	curves := p.curves(speeds, sum(now))
	counts, makespan, err := microbatch.SolveCurves(curves, sum(now))
	if err != nil {
		out.err = err
		return out
	}
	out.counts, out.makespanMs = toInt32s(counts), makespan
	for i, m := range now {
		if m >= len(curves[i]) {
			out.err = fmt.Errorf("replica %d runs %d micro-batches, beyond what was priced", i, m)
			return out
		}
		out.presentMs = max(out.presentMs, curves[i][m])
		out.replicas = append(out.replicas, replicaMs{base: p.baseMs(curves[i], i), now: curves[i][m], best: curves[i][counts[i]]})
	}
	return out
}

// baseMs is replica i's time with the base split, 0 when it was not priced.
func (p *Planner) baseMs(curve []float64, i int) float64 {
	if i >= len(p.base) || int(p.base[i]) >= len(curve) {
		return 0
	}
	return curve[p.base[i]]
}

func (p *Planner) s2Applies(s *story) error {
	switch {
	case !s.incident.Open():
		return errOver
	case s.incident.State != falcon.IncidentLocated:
		return errNotLocated
	}
	switch c := s.incident.Verdict.Cause; {
	case c == falcon.CauseNotHardware || c == falcon.CauseFacility:
		return errNotHW
	case c == falcon.CauseGPU || c == falcon.CauseCPU,
		slices.Contains(s.incident.Verdict.Also, falcon.CauseGPU),
		slices.Contains(s.incident.Verdict.Also, falcon.CauseCPU):
	case c == falcon.CauseNetwork:
		return errNetwork
	default:
		return errUnknown
	}
	switch {
	case p.job.Layout.DP < 2:
		return errOneReplica
	case len(p.job.MicroBatches) != p.job.Layout.DP || slices.Min(p.job.MicroBatches) < 1:
		return errNoCounts
	case total(p.job.MicroBatches) > totalMost:
		return errTooMany
	case !p.usable(s.speeds):
		return errNoSpeeds
	}
	return nil
}

// usable says that every rank's speed was measured.
func (p *Planner) usable(speeds []float64) bool {
	bad := func(v float64) bool { return !(v > 0) || math.IsInf(v, 0) }
	return len(speeds) == p.job.Layout.World() && !slices.ContainsFunc(speeds, bad)
}

// curves is T_i(m) of every replica: its stages' self times through the 1F1B
// simulation. A stage is as slow as the slowest of its tensor-parallel ranks.
func (p *Planner) curves(speeds []float64, total int) [][]float64 {
	l := p.job.Layout
	most := min(total-(l.DP-1), curveCapTimes*((total+l.DP-1)/l.DP))
	out := make([][]float64, l.DP)
	for d := range out {
		self := make([]float64, l.PP)
		for s := range self {
			for t := range l.TP {
				self[s] = max(self[s], speeds[l.RankOf(falcon.Coord{TP: t, DP: d, PP: s})])
			}
		}
		out[d] = cost.Curve(cost.StagesFromSelf(self), most, 0)
	}
	return out
}

// slowMs is the present iteration time: the median of the newest iterations
// since onset, the detector's own figure before there are enough.
func (p *Planner) slowMs(s *story) float64 {
	var recent []float64
	for i := len(p.history) - 1; i >= 0 && len(recent) < p.cfg.MeasureIterations; i-- {
		if p.history[i].Index < s.cost.From {
			break
		}
		recent = append(recent, p.history[i].Ms)
	}
	if len(recent) < 3 {
		return s.incident.SlowMs
	}
	return median(recent)
}

// planHash names a plan: a decision must quote it, so that nobody approves
// what they did not see.
func planHash(incident string, r falcon.Rung, epoch uint64, counts []int32) string {
	b, err := json.Marshal(struct {
		Incident string
		Rung     falcon.Rung
		Epoch    uint64
		Counts   []int32
	}{incident, r, epoch, counts})
	if err != nil {
		panic("mitigate: a plan of plain values did not marshal: " + err.Error())
	}
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:6])
}

func median(v []float64) float64 {
	w := slices.Clone(v)
	slices.Sort(w)
	n := len(w)
	if n == 0 {
		return 0
	}
	if n%2 == 1 {
		return w[n/2]
	}
	return (w[n/2-1] + w[n/2]) / 2
}

func toInts(v []int32) []int {
	out := make([]int, len(v))
	for i, x := range v {
		out[i] = int(x)
	}
	return out
}

func toInt32s(v []int) []int32 {
	out := make([]int32, len(v))
	for i, x := range v {
		out[i] = int32(x)
	}
	return out
}

func sum(v []int) int {
	t := 0
	for _, x := range v {
		t += x
	}
	return t
}
