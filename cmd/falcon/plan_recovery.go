package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/recovery/replica"
)

func planRecoveryCommand() *cobra.Command {
	c := problemCommand(
		"recovery FILE",
		"From whom does each lost rank get its state? - reads standard input",
		`  falcon plan recovery job.json

with job.json such as
  {"layout":{"tp":1,"dp":4,"pp":2},"zero":{"stage":1,"instances":2},"nodes":["n0","n1","n2","n3"],
   "racks":{"r0":["n0","n1"],"r1":["n2","n3"]},"failed":["n3"]}

placement (device by rank) defaults to node after node with gpus_per_node each
(default: as many as the job needs). failed names nodes or devices. holds gives
what survivors hold ({"0":{"steps":[41,42],"sums":[7,9]}}); without it all stand
at one step.`,
		planRecovery,
	)
	c.Annotations = map[string]string{
		goneNote(
			"--map",
		): "the console shows of a running job what the loss of each node and rack would cost (page 7)",
	}
	return c
}

// recoveryPlan is the answer.
type recoveryPlan struct {
	From        string          `json:"from"` // "replicas", "checkpoint"
	ResumeRule  string          `json:"resume_rule"`
	Resume      *int64          `json:"resume_iteration"` // null without holds, or from a checkpoint
	Reason      string          `json:"reason"`
	FailedRanks []falcon.Rank   `json:"failed_ranks"`
	Survivors   int             `json:"survivors"`
	Outvoted    []falcon.Rank   `json:"outvoted"`
	Shards      []shardRecovery `json:"shards"` // that some rank must get
}

type shardRecovery struct {
	Ranks   []falcon.Rank      `json:"ranks"` // that hold the same
	Restore []falcon.ShardMove `json:"restore"`
	Reason  string             `json:"reason,omitempty"` // why there is no source
}

const resumeRule = "the largest of i and i+1 at which every shard has a survivor, by fresh word; whoever does not hold it restores; otherwise the checkpoint"

func planRecovery(in *recoveryProblem) (any, error) {
	q, err := in.shardQuery()
	if err != nil {
		return nil, err
	}
	choice, err := replica.Choose(q)
	if err != nil {
		return nil, replicaError(err)
	}
	return in.planFrom(q, choice), nil
}

// replicaError is the package's sentence without its prefix.
func replicaError(err error) error {
	return &inputError{
		text:  strings.TrimPrefix(err.Error(), replica.ErrQuery.Error()+": "),
		cause: err,
	}
}

func (in *recoveryProblem) planFrom(q replica.Query, c replica.Choice) recoveryPlan {
	out := recoveryPlan{
		From:        "replicas",
		ResumeRule:  resumeRule,
		Reason:      c.Why,
		FailedRanks: listed(in.lost),
		Survivors:   len(q.Holds),
		Outvoted:    listed(c.Outvoted),
		Shards:      []shardRecovery{},
	}
	switch {
	case c.Checkpoint:
		out.From = "checkpoint"
	case in.Holds != nil:
		out.Resume = &c.Resume
	default:
		out.Reason = "every shard has a survivor"
	}
	source := map[falcon.Rank]falcon.ShardMove{}
	for _, m := range c.Moves {
		source[m.Rank] = m
	}
	for _, ranks := range q.Shards() {
		s := shardRecovery{Ranks: ranks, Restore: []falcon.ShardMove{}}
		for _, r := range ranks {
			if m, ok := source[r]; ok {
				s.Restore = append(s.Restore, m)
			}
		}
		if c.Checkpoint &&
			!slices.ContainsFunc(ranks, func(r falcon.Rank) bool {
				_, ok := q.Holds[r]
				return ok
			}) {
			s.Reason = "no survivor: from the checkpoint"
			for _, r := range ranks {
				s.Restore = append(s.Restore, falcon.ShardMove{
					Rank: r,
					From: falcon.FromCheckpoint,
				})
			}
		}
		if len(s.Restore) > 0 {
			out.Shards = append(out.Shards, s)
		}
	}
	return out
}
