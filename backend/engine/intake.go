package engine

import (
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/fleet"
	"github.com/failslow/falcon/detect"
)

// earlySamples is how many samples are kept while the job is not yet described.
const earlySamples = 1 << 16

// sampleIntake decides which samples count, for which rank, and when: those of
// ranks that the sending node holds go to the detector, and the job's complete
// iterations to the planner. Samples of a job that is not described yet, and of
// a placement whose outcome is not known, wait.
type sampleIntake struct {
	*shared
	paces *paceKeeper

	iterations  *iterationCollector
	leads       leads
	newestBegun int64 // newest iteration that a rank has begun
	pulse       pulse
	early       []falcon.Sample // came before the job was described
	ahead       []aheadSample   // of ranks whose placement's outcome is not known yet
	lastData    time.Time
}

// beginEpoch forgets how far the ranks of the job epoch before had come; begun
// is the newest iteration that the ranks of the new one have begun.
func (si *sampleIntake) beginEpoch(begun int64) {
	si.iterations = newIterationCollector()
	si.leads = leads{}
	si.ahead = nil
	si.newestBegun = begun
	si.pulse.begun, si.pulse.dated = begun, begun
}

// pulse is when an iteration was last known to have begun. What is kept for a later job epoch
// counts too: the job trains, whatever is done with its samples.
type pulse struct {
	begun int64 // newest
	dated int64 // newest of which it is known when
	at    time.Time
	took  []float64 // ms, by the newest iterations
}

// tookKept is of how many iterations the times are kept.
const tookKept = 9

// note takes that a rank had begun an iteration by then, zero where it is not known when.
func (p *pulse) note(iteration int64, by time.Time) {
	if iteration < p.begun || iteration <= p.dated {
		return
	}
	p.begun = iteration
	if !by.After(p.at) { // not known, or by a message of another node that was longer on its way
		return
	}
	if p.dated >= 0 && !p.at.IsZero() {
		p.took = append(p.took[max(0, len(p.took)+1-tookKept):],
			float64(by.Sub(p.at).Microseconds())/1e3/float64(iteration-p.dated),
		)
	}
	p.dated, p.at = iteration, by
}

// usualMs is the median time of the newest iterations, 0 where none is known.
func (p *pulse) usualMs() float64 {
	if len(p.took) == 0 {
		return 0
	}
	return falcon.Median(slices.Clone(p.took))
}

// attribute keeps the samples of ranks that lived on the node at the time, and
// holds those of ranks that a placement is about to bring there.
func (si *sampleIntake) attribute(n *fleet.Node, in []*falconv1.Sample, now time.Time) []falcon.Sample {
	out := make([]falcon.Sample, 0, len(in))
	var coming map[falcon.Rank]bool
	for _, s := range in {
		r := falcon.Rank(s.GetRank())
		if !plausible(s) {
			continue
		}
		if p := si.job.ranks[r]; p != nil && si.state.fences.processFenced(p.name) {
			continue
		}
		if si.cluster.nodeAtIteration(r, s.GetIteration()) != n.Name {
			if coming == nil {
				coming = si.comingRanks(n.Name)
			}
			if coming[r] {
				si.keepAhead(n.Name, convert.SampleFromProto(s))
			}
			continue
		}
		out = append(out, convert.SampleFromProto(s))
		if p := si.job.ranks[r]; p != nil {
			p.lastSeen = now
		}
	}
	return out
}

// plausible refuses what no training job does.
func plausible(s *falconv1.Sample) bool {
	ok := s.GetMs() >= 0 &&
		s.GetMs() < msMost &&
		s.GetPausedMs() >= 0 &&
		s.GetPausedMs() <= s.GetMs()
	return ok && s.GetIteration() >= 0 && s.GetIteration() < iterationMost
}

func (si *sampleIntake) feedDetector(samples []falcon.Sample, now time.Time) {
	if samples = si.dropTooFarAhead(samples, now); len(samples) == 0 {
		return
	}
	si.job.exact = samples[len(samples)-1].Exact
	for _, s := range samples {
		si.iterations.addSample(s, now)
		si.newestBegun = max(si.newestBegun, s.Iteration)
	}
	si.det.Step(now, detect.Samples{Samples: samples})
	si.release(now)
}

// dropTooFarAhead drops the samples of nodes that are too far ahead. All of a batch are
// looked at before one of it is judged.
func (si *sampleIntake) dropTooFarAhead(samples []falcon.Sample, now time.Time) []falcon.Sample {
	ahead := si.leads
	for _, s := range samples {
		ahead.noteLead(si.cluster.nodeOf(s.Rank), s.Iteration, now)
	}
	out := samples[:0]
	for _, s := range samples {
		node := si.cluster.nodeOf(s.Rank)
		if ahead.tooFar(node, s.Iteration, now) {
			si.oplog.logf("rank", 2, falcon.RankSubject(s.Rank),
				"rank %d on node %s claims iteration %d, far ahead of all other nodes: ignored",
				s.Rank, node, s.Iteration)
			continue
		}
		si.leads.noteLead(node, s.Iteration, now)
		out = append(out, s)
	}
	return out
}

// keepEarly holds samples that came before all ranks were known.
func (si *sampleIntake) keepEarly(samples []falcon.Sample) {
	si.early = keepNewest(append(si.early, samples...), earlySamples)
}

// takeEarly feeds what came before the job was described.
func (si *sampleIntake) takeEarly(now time.Time) {
	if early := si.early; len(early) > 0 {
		si.early = nil
		si.feedDetector(early, now)
	}
}

// takeLater keeps the samples of the job epoch that a recovery is about to lead
// to, and drops those of before.
func (si *sampleIntake) takeLater(v falcon.Recovery, in []falcon.Sample) {
	if v.NoReturn && v.Resume >= 0 {
		si.keepEarly(slices.DeleteFunc(in, func(s falcon.Sample) bool {
			return s.Iteration < v.Resume
		}))
	}
}

// release hands the job's complete iterations to the planner.
func (si *sampleIntake) release(now time.Time) {
	unheard := func(heard map[falcon.Rank]struct{}) []falcon.Node {
		return si.job.unheard(heard, now)
	}
	for _, it := range si.iterations.takeComplete(si.job.alive, now, unheard) {
		si.paces.add(it, now)
		si.plan.Step(now, it)
	}
}

// comingRanks are the ranks that a placement on its way brings to a node.
func (si *sampleIntake) comingRanks(node falcon.Node) map[falcon.Rank]bool {
	out := map[falcon.Rank]bool{}
	for _, o := range si.orders.open() {
		for old, now := range moves(o.Order.Blocks, len(si.state.job.Processes)) {
			if si.cluster.nodeOf(falcon.Rank(old)) == node {
				out[now] = true
			}
		}
	}
	for _, p := range si.job.named {
		if p.next != nil && p.node == node {
			out[falcon.Rank(p.next.GetRank())] = true
		}
	}
	return out
}

// aheadSample came before the outcome of the placement that it belongs to.
type aheadSample struct {
	node   falcon.Node
	sample falcon.Sample
}

// keepAhead holds samples of ranks that the picture gives to other nodes still.
func (si *sampleIntake) keepAhead(node falcon.Node, s falcon.Sample) {
	si.ahead = keepNewest(append(si.ahead, aheadSample{node, s}), earlySamples)
}

// takeAhead feeds what has waited for the picture that holds now, and drops
// what does not fit it.
func (si *sampleIntake) takeAhead(now time.Time, described bool) {
	waiting := si.ahead
	si.ahead = nil
	var out []falcon.Sample
	for _, a := range waiting {
		if si.cluster.nodeAtIteration(a.sample.Rank, a.sample.Iteration) == a.node {
			out = append(out, a.sample)
		}
	}
	if len(out) > 0 && described {
		si.feedDetector(out, now)
	}
}
