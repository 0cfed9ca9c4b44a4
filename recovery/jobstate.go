package recovery

import (
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/recovery/internal/completion"
	"github.com/failslow/falcon/recovery/internal/liveness"
	"github.com/failslow/falcon/recovery/internal/progress"
	"github.com/failslow/falcon/recovery/replica"
)

// jobState is what is known of the job apart from its recoveries.
type jobState struct {
	cfg    Config
	policy falcon.Policy
	job    Job
	hasJob bool

	ranks  rankTable
	nodes  *liveness.Hosts
	pace   progress.Tracker
	health liveness.LocalHealth // the engine's own
	ends   completion.Tracker   // of the job epoch's processes

	heldUp string // who holds up the job that stands still, "" = not known
}

func newJobState(cfg Config) jobState {
	return jobState{
		cfg:   cfg,
		ranks: newRankTable(),
		nodes: liveness.NewHosts(liveness.Limits{
			Beat:    cfg.Beat,
			Grace:   cfg.Grace,
			Leave:   cfg.Leave,
			Suspect: cfg.Suspect,
		}),
		ends: completion.New(),
	}
}

// finishing reports whether a rank has ended with success and the job does not go on.
func (s *jobState) finishing() bool {
	return s.ends.Finishing(&s.pace, s.cfg.Beat)
}

// mayHaveFinished reports whether nothing but ends that no agent watched is known of the job.
func (s *jobState) mayHaveFinished(now time.Time, c *falcon.Recovery) bool {
	return onlyUnwatched(c) && !s.anyoneAlive(now, nil)
}

// anyoneAlive reports whether a node that is heard, and not among some, has a living process of the job.
func (s *jobState) anyoneAlive(now time.Time, except []falcon.Node) bool {
	for _, x := range s.ranks.everyRank() {
		n := x.process().Node
		if x.isAlive() &&
			!slices.Contains(except, n) &&
			!s.nodes.Get(n, now).Unheard(now) {
			return true
		}
	}
	return false
}

// chooseStep chooses the step to resume at, and who gives whom its state.
func (s *jobState) chooseStep(
	holds map[falcon.Rank]falcon.RankHold,
	on falcon.Placement,
) (replica.Choice, error) {
	return s.cfg.Choose(replica.Query{
		Layout:    s.job.Layout,
		ZeRO:      s.job.ZeRO,
		Holds:     holds,
		Placement: on,
		Domains:   s.job.Domains,
	})
}
