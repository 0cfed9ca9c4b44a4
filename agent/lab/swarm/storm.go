package swarm

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"
)

var errCut = errors.New("swarm: the network is cut")

// network is what the nodes dial through: it can be cut.
type network struct{ cut atomic.Bool }

func (n *network) dial(ctx context.Context, address string) (net.Conn, error) {
	if n.cut.Load() {
		return nil, errCut
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

// Lose cuts all nodes off for some time.
func (s *Swarm) Lose(ctx context.Context, lasts time.Duration) {
	s.network.cut.Store(true)
	for _, n := range s.nodes {
		n.shipper.Renew()
	}
	sleepUntil(ctx, time.Now().Add(lasts))
	s.network.cut.Store(false)
}

// Flap has every tenth node begin a new stream each second, spread over it.
func (s *Swarm) Flap(ctx context.Context, lasts time.Duration) {
	const share = 10
	until := time.Now().Add(lasts)
	for second := 0; time.Now().Before(until) && ctx.Err() == nil; second++ {
		begun := time.Now()
		for k := second % share; k < len(s.nodes); k += share {
			if !sleepUntil(ctx, begun.Add(time.Second*time.Duration(k)/time.Duration(len(s.nodes)))) {
				return
			}
			s.nodes[k].shipper.Renew()
		}
		sleepUntil(ctx, begun.Add(time.Second))
	}
}
