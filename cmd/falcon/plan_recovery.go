package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/recovery/replica"
)

func planRecoveryCommand() *cobra.Command {
	asMap := false
	c := problemCommand("recovery FILE", "From whom does each lost rank get its state? --map: what would be lost with every node and rack; - reads standard input",
		`  falcon plan recovery job.json
  falcon plan recovery --map job.json

with job.json such as
  {"layout":{"tp":1,"dp":4,"pp":2},"zero":{"stage":1,"instances":2},"nodes":["n0","n1","n2","n3"],
   "racks":{"r0":["n0","n1"],"r1":["n2","n3"]},"failed":["n3"]}

placement (device by rank) defaults to node after node with gpus_per_node each
(default: as many as the job needs). failed names nodes or devices. holds gives
what survivors hold ({"0":{"steps":[41,42],"sums":[7,9]}}); without it all stand
at one step. With --map, switches adds domains like racks, and
"chance":{"node":0.001,"domain":0.0001} asks how likely it is that some shard
has no replica: every node and every rack or switch fails by itself; optional
trials (default 1000000) and seed.`,
		func(in *recoveryProblem) (any, error) { return planRecovery(in, asMap) })
	c.Flags().BoolVar(&asMap, "map", false, "what would be unrecoverable if a node, rack or switch were gone now, worst first")
	return c
}

// recoveryPlan is the answer without --map.
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

func planRecovery(in *recoveryProblem, asMap bool) (any, error) {
	q, err := in.shardQuery()
	if err != nil {
		return nil, err
	}
	if asMap {
		return in.exposures(q)
	}
	if in.Switches != nil || in.Chance != nil {
		return nil, errors.New("switches and chance belong to --map; give it, or leave them out")
	}
	choice, err := replica.Choose(q)
	if err != nil {
		return nil, replicaError(err)
	}
	return in.planFrom(q, choice), nil
}

// replicaError is the package's sentence without its prefix.
func replicaError(err error) error {
	return &inputError{text: strings.TrimPrefix(err.Error(), replica.ErrQuery.Error()+": "), cause: err}
}

func (in *recoveryProblem) planFrom(q replica.Query, c replica.Choice) recoveryPlan {
	out := recoveryPlan{
		From: "replicas", ResumeRule: resumeRule, Reason: c.Why, FailedRanks: listed(in.lost), Survivors: len(q.Holds),
		Outvoted: listed(c.Outvoted), Shards: []shardRecovery{},
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
		if c.Checkpoint && !slices.ContainsFunc(ranks, func(r falcon.Rank) bool { _, ok := q.Holds[r]; return ok }) {
			s.Reason = "no survivor: from the checkpoint"
			for _, r := range ranks {
				s.Restore = append(s.Restore, falcon.ShardMove{Rank: r, From: falcon.FromCheckpoint})
			}
		}
		if len(s.Restore) > 0 {
			out.Shards = append(out.Shards, s)
		}
	}
	return out
}

// recoveryMap is the answer with --map.
type recoveryMap struct {
	Domains       []replica.Exposure `json:"domains"`
	Unrecoverable int                `json:"unrecoverable"` // domains whose loss is one of state
	Chance        *chanceView        `json:"chance,omitempty"`
}

// chanceView is the chance that some shard has no replica.
type chanceView struct {
	NodesAlone *float64          `json:"nodes_alone"` // exact, domains never fail; null where it can't be counted
	Reason     string            `json:"reason,omitempty"`
	Sampled    *replica.Estimate `json:"sampled"`
}

func (in *recoveryProblem) exposures(q replica.Query) (any, error) {
	if len(in.lost) == 0 && in.Holds == nil {
		q.Holds = nil
	}
	domains, err := replica.Map(q, in.switches...)
	if err != nil {
		return nil, replicaError(err)
	}
	out := recoveryMap{Domains: domains}
	for i, d := range domains {
		domains[i].Gone, domains[i].Lost = listed(d.Gone), listed(d.Lost)
		if d.Shards > 0 {
			out.Unrecoverable++
		}
	}
	if in.Chance != nil {
		out.Chance, err = in.Chance.chanceView(q, in.switches)
	}
	return out, err
}

func (c *chanceProblem) chanceView(q replica.Query, more []replica.Domain) (*chanceView, error) {
	trials, seed := 1_000_000, uint64(1)
	if c.Trials != nil {
		trials = *c.Trials
	}
	if c.Seed != nil {
		seed = *c.Seed
	}
	if trials < 1 || trials > planTrialsMost {
		return nil, fmt.Errorf("chance.trials is %d; give 1 to %d", trials, planTrialsMost)
	}
	e, err := replica.Sampled(q, replica.Hazard{Node: c.Node, Domain: c.Domain}, trials, seed, more...)
	if err != nil {
		return nil, replicaError(err)
	}
	out := &chanceView{Sampled: &e}
	alone, err := replica.Exact(q, c.Node)
	switch {
	case errors.Is(err, replica.ErrTooLarge):
		out.Reason = strings.TrimPrefix(err.Error(), replica.ErrTooLarge.Error()+": ")
	case err != nil:
		return nil, replicaError(err)
	default:
		out.NodesAlone = &alone
	}
	return out, nil
}
