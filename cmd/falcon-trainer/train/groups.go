package train

import (
	"context"
	"fmt"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/cmd/falcon-trainer/device"
)

// groups are the communicators of one rank; those of a single rank are nil.
type groups struct {
	world, tp, dp, pp *device.Comm
}

// connect joins all groups, in the same order on every rank, so that those who
// wait for each other never wait for different groups.
func connect(ctx context.Context, c Config) (g groups, err error) {
	for _, d := range []struct {
		dimension falcon.Dimension
		comm      **device.Comm
	}{{falcon.DimWorld, &g.world}, {falcon.DimTP, &g.tp}, {falcon.DimDP, &g.dp}, {falcon.DimPP, &g.pp}} {
		if *d.comm, err = join(ctx, c, d.dimension); err != nil {
			return g, err
		}
	}
	return g, nil
}

// join connects to the rank's peers along d; the first of them makes the id,
// and takes it back when all have come: it is a secret, and of no more use.
func join(ctx context.Context, c Config, d falcon.Dimension) (*device.Comm, error) {
	peers := c.Layout.Peers(c.Rank, d)
	if len(peers) == 1 {
		return nil, nil
	}
	me := 0
	for i, r := range peers {
		if r == c.Rank {
			me = i
		}
	}
	name := fmt.Sprintf("%s-%d", d, peers[0])
	id, err := meet(ctx, c, name, me == 0)
	if err != nil {
		return nil, err
	}
	comm, err := device.Connect(string(d), id, len(peers), me)
	if err == nil && me == 0 {
		err = c.Rendezvous.Withdraw(name)
	}
	return comm, err
}

func meet(ctx context.Context, c Config, name string, first bool) ([]byte, error) {
	if !first {
		return c.Rendezvous.Await(ctx, name, device.UniqueIDBytes)
	}
	id, err := device.UniqueID()
	if err != nil {
		return nil, err
	}
	return id, c.Rendezvous.Publish(name, id)
}

func (g groups) all() []*device.Comm {
	var out []*device.Comm
	for _, c := range []*device.Comm{g.world, g.tp, g.dp, g.pp} {
		if c != nil {
			out = append(out, c)
		}
	}
	return out
}

func (g groups) asyncError() error {
	for _, c := range g.all() {
		if err := c.AsyncError(); err != nil {
			return err
		}
	}
	return nil
}

func (g groups) abort() {
	for _, c := range g.all() {
		c.Abort()
	}
}

func (g groups) close() error {
	for _, c := range g.all() {
		if err := c.Close(); err != nil {
			return err
		}
	}
	return nil
}
