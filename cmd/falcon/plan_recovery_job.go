package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/recovery/replica"
	"github.com/failslow/falcon/tui/clean"
)

// recoveryProblem is the input.
type recoveryProblem struct {
	Layout      *falcon.Layout              `json:"layout" need:"give tp, dp and pp"`
	ZeRO        falcon.ZeRO                 `json:"zero"`
	Nodes       []falcon.Node               `json:"nodes"`
	GPUsPerNode int                         `json:"gpus_per_node"`
	Placement   falcon.Placement            `json:"placement"`
	Racks       map[string][]falcon.Node    `json:"racks"`
	Failed      []string                    `json:"failed"`
	Holds       map[falcon.Rank]holdProblem `json:"holds"`

	lost []falcon.Rank // on what failed
}

type holdProblem struct {
	Steps []int64  `json:"steps"`
	Sums  []uint64 `json:"sums"`
}

// shardQuery is the job that the input describes, after its faults.
func (in *recoveryProblem) shardQuery() (replica.Query, error) {
	job := topologyProblem{
		Layout:      in.Layout,
		Nodes:       in.Nodes,
		GPUsPerNode: in.GPUsPerNode,
		Placement:   in.Placement,
	}
	if in.GPUsPerNode == 0 && len(in.Nodes) > 0 && in.Layout.Validate() == nil {
		job.GPUsPerNode = max(
			1,
			(in.Layout.World()+len(in.Nodes)-1)/len(in.Nodes),
			in.gpusPerNode(),
		)
	}
	if err := job.checkShape(); err != nil {
		return replica.Query{}, err
	}
	place, err := job.placementOf()
	if err != nil {
		return replica.Query{}, err
	}
	q := replica.Query{
		Layout:    *in.Layout,
		ZeRO:      in.ZeRO,
		Placement: place,
	}
	if q.Domains, err = in.rackByNode(job.known); err != nil {
		return q, err
	}
	if in.lost, err = in.failedRanks(place, job.known); err != nil {
		return q, err
	}
	q.Holds, err = in.survivors(q)
	if err == nil {
		err = q.Check()
	}
	if errors.Is(err, replica.ErrQuery) {
		err = replicaError(err)
	}
	return q, err
}

// gpusPerNode is how many GPUs a node has by the placement given.
func (in *recoveryProblem) gpusPerNode() int {
	most := 0
	for _, d := range in.Placement {
		most = max(most, d.Index()+1)
	}
	return most
}

// rackByNode is the rack of every node that is in one.
func (in *recoveryProblem) rackByNode(known map[falcon.Node]bool) (map[falcon.Node]string, error) {
	rackOf := map[falcon.Node]string{}
	for _, rack := range slices.Sorted(maps.Keys(in.Racks)) {
		if rack == "" || len(in.Racks[rack]) == 0 {
			return nil, fmt.Errorf("rack %q has no name or no nodes", clean.String(rack))
		}
		for _, n := range in.Racks[rack] {
			node := clean.String(string(n))
			if !known[n] {
				return nil, fmt.Errorf("rack %q has node %q, which is not in nodes", clean.String(rack), node)
			}
			if rackOf[n] != "" {
				return nil, fmt.Errorf("node %q is in racks %q and %q",
					node, clean.String(rackOf[n]), clean.String(rack))
			}
			rackOf[n] = rack
		}
	}
	return rackOf, nil
}

// failedRanks lists the ranks on the nodes and devices that failed, ascending.
func (in *recoveryProblem) failedRanks(
	place falcon.Placement,
	known map[falcon.Node]bool,
) ([]falcon.Rank, error) {
	gone := map[string]bool{}
	for _, name := range in.Failed {
		_, device := place.Rank(falcon.Device(name))
		if !device && !known[falcon.Node(name)] {
			return nil, fmt.Errorf("failed names %q, which is no node and no device with a rank",
				clean.String(name))
		}
		gone[name] = true
	}
	var out []falcon.Rank
	for r, d := range place {
		if gone[string(d)] || gone[string(d.Node())] {
			out = append(out, falcon.Rank(r))
		}
	}
	return out, nil
}

// survivors is what is held by the ranks that did not fail: as they reported, or
// all of them one step.
func (in *recoveryProblem) survivors(q replica.Query) (map[falcon.Rank]falcon.RankHold, error) {
	out := map[falcon.Rank]falcon.RankHold{}
	if in.Holds == nil {
		for r := range falcon.Rank(q.Layout.World()) {
			out[r] = falcon.RankHold{Steps: [2]int64{0, falcon.NoIteration}}
		}
	}
	for r, h := range in.Holds {
		if len(h.Steps) > 2 || len(h.Steps) != len(h.Sums) {
			return nil, fmt.Errorf(
				"holds of rank %d has %d steps and %d sums; give up to two steps and the checksum of each",
				r, len(h.Steps), len(h.Sums),
			)
		}
		hold := falcon.RankHold{Steps: [2]int64{falcon.NoIteration, falcon.NoIteration}}
		copy(hold.Steps[:], h.Steps)
		copy(hold.Sums[:], h.Sums)
		out[r] = hold
	}
	for _, r := range in.lost {
		delete(out, r)
	}
	return out, nil
}
