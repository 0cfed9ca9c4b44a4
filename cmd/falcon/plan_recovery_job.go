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

// planTrialsMost bounds sampling, so that a few bytes of input can't ask for a
// machine's day.
const planTrialsMost = 10_000_000

// recoveryProblem is the input.
type recoveryProblem struct {
	Layout      *falcon.Layout              `json:"layout" need:"give tp, dp and pp"`
	ZeRO        falcon.ZeRO                 `json:"zero"`
	Nodes       []falcon.Node               `json:"nodes"`
	GPUsPerNode int                         `json:"gpus_per_node"`
	Placement   falcon.Placement            `json:"placement"`
	Racks       map[string][]falcon.Node    `json:"racks"`
	Switches    map[string][]falcon.Node    `json:"switches"`
	Failed      []string                    `json:"failed"`
	Holds       map[falcon.Rank]holdProblem `json:"holds"`
	Chance      *chanceProblem              `json:"chance"`

	lost     []falcon.Rank // on what failed
	switches []replica.Domain
}

type holdProblem struct {
	Steps []int64  `json:"steps"`
	Sums  []uint64 `json:"sums"`
}

type chanceProblem struct {
	Node   float64 `json:"node"`
	Domain float64 `json:"domain"`
	Trials *int    `json:"trials"`
	Seed   *uint64 `json:"seed"`
}

// shardQuery is the job that the input describes, after its faults.
func (in *recoveryProblem) shardQuery() (replica.Query, error) {
	job := topologyProblem{Layout: in.Layout, Nodes: in.Nodes, GPUsPerNode: in.GPUsPerNode, Placement: in.Placement}
	if in.GPUsPerNode == 0 && len(in.Nodes) > 0 && in.Layout.Validate() == nil {
		job.GPUsPerNode = max(1, (in.Layout.World()+len(in.Nodes)-1)/len(in.Nodes), in.gpusPerNode())
	}
	if err := job.checkShape(); err != nil {
		return replica.Query{}, err
	}
	place, err := job.placementOf()
	if err != nil {
		return replica.Query{}, err
	}
	q := replica.Query{Layout: *in.Layout, ZeRO: in.ZeRO, Placement: place}
	if q.Domains, err = in.rackByNode(job.known); err != nil {
		return q, err
	}
	if in.switches, err = domainsOf(replica.KindSwitch, in.Switches, job.known); err != nil {
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

// domainsOf checks the members of racks or switches, in the order of their names.
func domainsOf(kind string, named map[string][]falcon.Node, known map[falcon.Node]bool) ([]replica.Domain, error) {
	var out []replica.Domain
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if name == "" || len(named[name]) == 0 {
			return nil, fmt.Errorf("%s %q has no name or no nodes", kind, clean.String(name))
		}
		for _, n := range named[name] {
			if !known[n] {
				return nil, fmt.Errorf("%s %q has node %q, which is not in nodes", kind, clean.String(name), clean.String(string(n)))
			}
		}
		out = append(out, replica.Domain{Kind: kind, Name: name, Nodes: named[name]})
	}
	return out, nil
}

// rackByNode is the rack of every node that is in one.
func (in *recoveryProblem) rackByNode(known map[falcon.Node]bool) (map[falcon.Node]string, error) {
	racks, err := domainsOf(replica.KindRack, in.Racks, known)
	out := map[falcon.Node]string{}
	for _, d := range racks {
		for _, n := range d.Nodes {
			if out[n] != "" {
				return nil, fmt.Errorf("node %q is in racks %q and %q", clean.String(string(n)), clean.String(out[n]), clean.String(d.Name))
			}
			out[n] = d.Name
		}
	}
	return out, err
}

// failedRanks lists the ranks on the nodes and devices that failed, ascending.
func (in *recoveryProblem) failedRanks(place falcon.Placement, known map[falcon.Node]bool) ([]falcon.Rank, error) {
	gone := map[string]bool{}
	for _, name := range in.Failed {
		if _, device := place.Rank(falcon.Device(name)); !device && !known[falcon.Node(name)] {
			return nil, fmt.Errorf("failed names %q, which is no node and no device with a rank", clean.String(name))
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
			return nil, fmt.Errorf("holds of rank %d has %d steps and %d sums; give up to two steps and the checksum of each", r, len(h.Steps), len(h.Sums))
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
