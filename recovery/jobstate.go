package recovery

import (
	"github.com/failslow/falcon"
	"github.com/failslow/falcon/recovery/replica"
)

// jobState is what is known of the job apart from its recoveries.
type jobState struct {
	cfg    Config
	policy falcon.Policy
	job    Job
	hasJob bool

	ranks rankTable
	nodes nodeTable
	pace  progress
	hear  hearing    // the console's own
	ends  completion // of the job epoch's processes
}

func newJobState(cfg Config) jobState {
	return jobState{cfg: cfg, ranks: newRankTable(), nodes: newNodeTable(cfg), ends: newCompletion()}
}

// finishing reports whether a rank has ended with success and the job does not go on.
func (s *jobState) finishing() bool { return s.ends.finishing(&s.pace, s.cfg.Beat) }

// chooseStep chooses the step to resume at, and who gives whom its state.
func (s *jobState) chooseStep(holds map[falcon.Rank]falcon.RankHold, on falcon.Placement) (replica.Choice, error) {
	return s.cfg.Choose(replica.Query{Layout: s.job.Layout, ZeRO: s.job.ZeRO, Holds: holds, Placement: on, Domains: s.job.Domains})
}
