package recovery

import (
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/recovery/internal/completion"
)

func (m *Machine) onJob(now time.Time, j Job) {
	before := m.job
	first := !m.hasJob
	same := !first && before.Epoch == j.Epoch
	perm := permutation(before.Placement, j.Placement)
	if same && perm != nil && m.op.mayRenumber() {
		m.renumber(j.Placement, perm)
		before = m.job
	}
	m.job, m.hasJob = m.mergeJob(before, j), true
	m.generations.raiseTo(m.job.Generation)
	m.ranks.resizeWorld(len(m.job.Placement))
	for _, d := range m.job.Placement {
		m.nodes.Get(d.Node(), now)
	}
	switch {
	case first || before.Epoch != j.Epoch:
		m.beginEpoch(now, first)
	case m.op.rec == nil:
		m.op.arrange()
	case m.op.rec.State == falcon.RecoveryProposed:
		m.flow.proposePlan(now)
	}
}

// mergeJob is a job's description as it is taken over: within one epoch an older placement does not
// replace a newer one or a recovery's, what ended processes reported of the job is kept until
// their replacements report it, and a checkpoint stays known when the one rank that reports them ends.
func (m *Machine) mergeJob(before, j Job) Job {
	if before.Epoch != j.Epoch {
		return j
	}
	if m.op.rec != nil || j.Generation < before.Generation {
		j.Layout = before.Layout
		j.Placement = before.Placement
		j.Generation = max(j.Generation, before.Generation)
	}
	j.Checkpoint = max(j.Checkpoint, before.Checkpoint)
	if m.op.rec == nil {
		return j
	}
	j.Parks = j.Parks || before.Parks
	j.StateMB = max(j.StateMB, before.StateMB)
	j.Unit = max(j.Unit, before.Unit)
	if j.ZeRO == (falcon.ZeRO{}) {
		j.ZeRO = before.ZeRO
	}
	return j
}

// beginEpoch forgets the epoch's pace and ends; what is known of living processes stays.
func (m *Machine) beginEpoch(now time.Time, first bool) {
	if first {
		m.health.Open(now, m.cfg.Grace) // who is not back yet may know more
	} else {
		m.flow.beginEpoch(now)
	}
	m.op.arrange()
	m.ends = completion.New()
	m.pace.NewEpoch(now)
	m.ranks.lowerFloors(m.job.Generation)
	m.ranks.keepAlive(m.job.Placement)
}

// The ranks may agree on a placement just before a fault that is reported when the recovery has
// begun: processes then hold other ranks than it was opened with. It follows them as long as nothing
// was launched for the old ones.

// permutation is the new rank of every rank where two placements have the same
// devices; nil where they have not, or are equal.
func permutation(from, to falcon.Placement) []falcon.Rank {
	if len(from) != len(to) || slices.Equal(from, to) {
		return nil
	}
	at := make(map[falcon.Device]falcon.Rank, len(to))
	for r, d := range to {
		at[d] = falcon.Rank(r)
	}
	out := make([]falcon.Rank, len(from))
	for r, d := range from {
		now, known := at[d]
		if !known || len(at) != len(to) {
			return nil
		}
		out[r] = now
	}
	return out
}

// renumber moves everything that is known by rank to its new rank.
func (m *Machine) renumber(to falcon.Placement, perm []falcon.Rank) {
	m.ranks.renumber(perm)
	m.job.Placement = slices.Clone(to)
	m.ends.Renumber(perm)
	m.op.renumber(to, perm)
	m.op.arrange()
}

func renumberRanks(ranks, perm []falcon.Rank) []falcon.Rank {
	var out []falcon.Rank
	for _, r := range ranks {
		out = append(out, perm[r])
	}
	slices.Sort(out)
	return out
}

func renumberKeys[V any](m map[falcon.Rank]V, perm []falcon.Rank) map[falcon.Rank]V {
	if m == nil {
		return nil
	}
	out := make(map[falcon.Rank]V, len(m))
	for r, v := range m {
		out[perm[r]] = v
	}
	return out
}
