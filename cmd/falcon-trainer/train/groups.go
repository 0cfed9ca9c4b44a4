package train

import (
	"context"
	"fmt"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/cmd/falcon-trainer/device"
)

// groups are the communicators of one rank; those of a single rank are nil.
type groups struct {
	world, tp, dp, pp *device.Comm
}

// seat is a rank's place in one of its groups.
type seat struct {
	dimension falcon.Dimension
	size, me  int
	entry     string // of the group's unique id at the rendezvous
}

// seats lists the groups of more than one that rank belongs to, in the same
// order for all ranks. tag tells communicators of one run apart.
func (c Config) seats(rank falcon.Rank, tag string) []seat {
	var out []seat
	for _, d := range []falcon.Dimension{falcon.DimWorld, falcon.DimTP, falcon.DimDP, falcon.DimPP} {
		peers := c.Layout.Peers(rank, d)
		if len(peers) > 1 {
			out = append(out, seat{d, len(peers), slices.Index(peers, rank), fmt.Sprintf("%s%s-%d", tag, d, peers[0])})
		}
	}
	return out
}

// tag starts the names of this launch at the rendezvous.
func (c Config) tag() string {
	if c.Generation == 0 {
		return ""
	}
	return fmt.Sprintf("g%d-", c.Generation)
}

func (g *groups) of(d falcon.Dimension) **device.Comm {
	return map[falcon.Dimension]**device.Comm{
		falcon.DimWorld: &g.world, falcon.DimTP: &g.tp, falcon.DimDP: &g.dp, falcon.DimPP: &g.pp,
	}[d]
}

// connect joins all groups, in the same order on every rank, so that those who
// wait for each other never wait for different groups. The first member makes
// the id, and takes it back when all have come: it is a secret, and of no more
// use.
func connect(ctx context.Context, c Config) (g groups, err error) {
	for _, s := range c.seats(c.Rank, c.tag()) {
		id, err := c.mint(s)
		if err == nil && id == nil {
			id, err = c.Rendezvous.Await(ctx, s.entry, device.UniqueIDBytes)
		}
		if err != nil {
			return g, err
		}
		if *g.of(s.dimension), err = device.Connect(string(s.dimension), id, s.size, s.me); err != nil {
			return g, err
		}
		if err := c.withdraw(s); err != nil {
			return g, err
		}
	}
	return g, nil
}

// mint publishes a new id for the group of which this rank is the first; nil
// for the others.
func (c Config) mint(s seat) ([]byte, error) {
	if s.me != 0 {
		return nil, nil
	}
	id, err := device.UniqueID()
	if err != nil {
		return nil, err
	}
	return id, c.Rendezvous.Publish(s.entry, id)
}

func (c Config) withdraw(s seat) error {
	if s.me != 0 {
		return nil
	}
	return c.Rendezvous.Withdraw(s.entry)
}

// reconnect joins the groups of the rank to be, beside those of now, without a
// blocking call: a member that never comes must not hold the others for longer
// than ctx. They are in w.next from the start, where the watcher can abort them.
func (w *worker) reconnect(ctx context.Context, s *swap) error {
	seats := w.cfg.seats(s.rank, s.name+"-")
	ids := make([][]byte, len(seats))
	for i, seat := range seats {
		var err error
		if ids[i], err = w.cfg.mint(seat); err != nil {
			return err
		}
	}
	for i, seat := range seats {
		err := w.unlocked(func() (err error) {
			if ids[i] == nil {
				ids[i], err = w.cfg.Rendezvous.Await(ctx, seat.entry, device.UniqueIDBytes)
			}
			return err
		})
		if err != nil {
			return err
		}
		comm, err := device.Begin(string(seat.dimension), ids[i], seat.size, seat.me)
		if err != nil {
			return err
		}
		*w.next.of(seat.dimension) = comm
	}
	if err := w.ready(ctx); err != nil {
		return err
	}
	for _, seat := range seats {
		if err := w.cfg.withdraw(seat); err != nil {
			return err
		}
	}
	return nil
}

// ready waits for all members of the next groups.
func (w *worker) ready(ctx context.Context) error {
	for _, c := range w.next.all() {
		for {
			done, err := c.Ready()
			if err != nil {
				return err
			}
			if done {
				break
			}
			if ctx.Err() != nil {
				return fmt.Errorf("%w: the new communicators, more than %v", errTooLate, connectWithin)
			}
			if err := w.unlocked(func() error { return w.nap(glance) }); err != nil {
				return err
			}
		}
	}
	return nil
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
