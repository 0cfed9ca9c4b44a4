package train

import (
	"context"
	"fmt"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/cmd/falcon-trainer/device"
)

// dimInstance is the group of the replicas that hold the optimizer's state
// between them, where there are several such groups.
const dimInstance falcon.Dimension = "dp-instance"

// groups are the communicators of one rank; those of a single rank are nil.
// instance is nil too where it would be dp.
type groups struct {
	world, tp, dp, pp, instance *device.Comm
}

// seat is a rank's place in one of its groups.
type seat struct {
	dimension falcon.Dimension
	size, me  int
	entry     string // of the group's unique id at the rendezvous
}

// groupSeats lists the groups of more than one that rank belongs to, in the same
// order for all ranks. tag distinguishes communicators of one run.
func (c Config) groupSeats(rank falcon.Rank, tag string) []seat {
	var out []seat
	for _, d := range []falcon.Dimension{
		falcon.DimWorld, falcon.DimTP, falcon.DimDP, falcon.DimPP, dimInstance,
	} {
		peers := c.groupPeers(rank, d)
		if len(peers) > 1 {
			out = append(out, seat{
				d,
				len(peers),
				slices.Index(peers, rank),
				fmt.Sprintf("%s%s-%d", tag, d, peers[0]),
			})
		}
	}
	return out
}

// groupPeers lists the ranks of rank's group along d, itself included; none where
// there is no such group.
func (c Config) groupPeers(rank falcon.Rank, d falcon.Dimension) []falcon.Rank {
	if d != dimInstance {
		return c.Layout.Peers(rank, d)
	}
	if c.Instances < 2 {
		return nil
	}
	var out []falcon.Rank
	at := c.Layout.Coord(rank)
	for _, dp := range c.optimizerSlices().Instance(at.DP) {
		at.DP = dp
		out = append(out, c.Layout.RankOf(at))
	}
	return out
}

// generationTag starts the names of a generation at the rendezvous.
func generationTag(generation uint64) string {
	if generation == 0 {
		return ""
	}
	return fmt.Sprintf("g%d-", generation)
}

func (g *groups) commOf(d falcon.Dimension) **device.Comm {
	return map[falcon.Dimension]**device.Comm{
		falcon.DimWorld: &g.world,
		falcon.DimTP:    &g.tp,
		falcon.DimDP:    &g.dp,
		falcon.DimPP:    &g.pp,
		dimInstance:     &g.instance,
	}[d]
}

// connectGroups joins all groups, in the same order on every rank, so that those who
// wait for each other never wait for different groups. The first member makes
// the id, and takes it back when all have come: it is a secret, and of no more
// use.
func connectGroups(ctx context.Context, c Config) (g groups, err error) {
	for _, s := range c.groupSeats(c.Rank, generationTag(c.Generation)) {
		id, err := c.publishID(s)
		if err == nil && id == nil {
			id, err = c.Rendezvous.Await(ctx, s.entry, device.UniqueIDBytes)
		}
		if err != nil {
			return g, err
		}
		if *g.commOf(s.dimension), err = device.Connect(string(s.dimension), id, s.size, s.me); err != nil {
			return g, err
		}
		if err := c.withdrawID(s); err != nil {
			return g, err
		}
	}
	return g, nil
}

// publishID publishes a new id for the group of which this rank is the first; nil
// for the others.
func (c Config) publishID(s seat) ([]byte, error) {
	if s.me != 0 {
		return nil, nil
	}
	id, err := device.UniqueID()
	if err != nil {
		return nil, err
	}
	return id, c.Rendezvous.Publish(s.entry, id)
}

func (c Config) withdrawID(s seat) error {
	if s.me != 0 {
		return nil
	}
	return c.Rendezvous.Withdraw(s.entry)
}

func (g groups) existing() []*device.Comm {
	var out []*device.Comm
	for _, c := range []*device.Comm{g.world, g.tp, g.dp, g.pp, g.instance} {
		if c != nil {
			out = append(out, c)
		}
	}
	return out
}

func (g groups) asyncError() error {
	for _, c := range g.existing() {
		if err := c.AsyncError(); err != nil {
			return err
		}
	}
	return nil
}

func (g groups) abortGroups() {
	for _, c := range g.existing() {
		c.Abort()
	}
}

func (g groups) closeGroups() error {
	for _, c := range g.existing() {
		if err := c.Close(); err != nil {
			return err
		}
	}
	return nil
}
