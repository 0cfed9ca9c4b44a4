package lab

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/internal/ownfile"
)

// refreshNetwork is how often the emulated port counters move.
const refreshNetwork = 500 * time.Millisecond

// The emulated port: one RoCE port of an mlx5 card with the counters and the
// layout that the kernel gives it.
const (
	portRate  = "100 Gb/sec (4X EDR)"
	portState = "4: ACTIVE"
)

// portCounters lists a port's counters with their growth per second: on a
// healthy port, and what full congestion (no bandwidth left) adds to it at both
// ends of the link. Rates are of a RoCE port under DCQCN, by order of magnitude.
var portCounters = []struct {
	file                string
	healthy, congestion float64
}{
	{"counters/port_xmit_data", 4e6, 0}, // in units of 4 bytes
	{"counters/port_rcv_data", 4e6, 0},
	{"counters/port_xmit_wait", 2e3, 4e6},
	{"counters/link_downed", 0, 0},
	{"counters/link_error_recovery", 0, 0},
	{"counters/symbol_error", 0, 0},
	{"hw_counters/np_ecn_marked_roce_packets", 6, 9e3},
	{"hw_counters/np_cnp_sent", 4, 6e3},
	{"hw_counters/rp_cnp_handled", 4, 6e3},
	{"hw_counters/rp_cnp_ignored", 0, 0},
	{"hw_counters/out_of_sequence", 0.2, 40},
	{"hw_counters/packet_seq_err", 0.1, 25},
	{"hw_counters/local_ack_timeout_err", 0, 1},
	{"hw_counters/implied_nak_seq_err", 0, 0},
	{"hw_counters/rnr_nak_retry_err", 0, 0},
	{"hw_counters/roce_adp_retrans", 0, 2},
}

// network keeps every node's port counters as a sysfs tree of its own, which
// the node's agent reads as it would read /sys. After create it is owned by one
// goroutine; of the silicon it reads single fields.
type network struct {
	sc    Scenario
	hw    *silicon
	noise *rand.Rand
	ports []*port
}

type port struct {
	node   int
	dir    string // …/mlx5_K/ports/1
	values []float64
	shown  []uint64
}

func newNetwork(sc Scenario, hw *silicon, seed int64) *network {
	return &network{
		sc:    sc,
		hw:    hw,
		noise: rand.New(rand.NewPCG(uint64(seed), 0x6e6963)),
	}
}

// createTree writes one node's tree, and into n where it is and which GPU uses
// which NIC.
func (w *network) createTree(n *NodeSetup) error {
	n.Sysfs = n.ShmDir + ".sysfs"
	n.NICs = map[string]string{}
	for _, d := range n.Devices {
		n.NICs[string(d)] = string(nicNameOf(n.Node, d.Index()%w.sc.NICs))
	}
	for k := range w.sc.NICs {
		p, err := w.createPort(
			n.Index,
			filepath.Join(n.Sysfs, "class", "infiniband", "mlx5_"+strconv.Itoa(k), "ports", "1"),
		)
		if err != nil {
			return err
		}
		w.ports = append(w.ports, p)
	}
	return replaceFile(filepath.Join(n.Sysfs, "emulated"), "by falcon lab")
}

func nicNameOf(n falcon.Node, k int) falcon.NIC {
	return falcon.NIC(fmt.Sprintf("%s.nic%d", n, k))
}

func (w *network) createPort(node int, dir string) (*port, error) {
	p := &port{
		node:   node,
		dir:    dir,
		values: make([]float64, len(portCounters)),
		shown:  make([]uint64, len(portCounters)),
	}
	for _, sub := range []string{"counters", "hw_counters"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, fmt.Errorf("lab: can't make the emulated NIC: %w", err)
		}
	}
	for i, c := range portCounters {
		p.values[i] = float64(w.noise.Uint64N(1 << 20)) // ports have a past
		if c.healthy == 0 {
			p.values[i] = 0
		}
		p.shown[i] = uint64(p.values[i])
		if err := replaceFile(filepath.Join(dir, c.file), strconv.FormatUint(p.shown[i], 10)); err != nil {
			return nil, err
		}
	}
	if err := replaceFile(filepath.Join(dir, "rate"), portRate); err != nil {
		return nil, err
	}
	return p, replaceFile(filepath.Join(dir, "state"), portState)
}

// advanceCounters moves all counters on by dt seconds of the network as it is now.
func (w *network) advanceCounters(dt float64) error {
	for _, p := range w.ports {
		lost := w.congestion(p.node)
		for i, c := range portCounters {
			p.values[i] += dt * (c.healthy + lost*c.congestion) * (0.75 + 0.5*w.noise.Float64())
			v := uint64(p.values[i])
			if v == p.shown[i] {
				continue
			}
			if err := replaceFile(filepath.Join(p.dir, c.file), strconv.FormatUint(v, 10)); err != nil {
				return err
			}
			p.shown[i] = v
		}
	}
	return nil
}

// congestion is the share of bandwidth that the node's worst link has lost.
func (w *network) congestion(node int) float64 {
	lost := 0.0
	for other := range w.sc.nodeCount() {
		if other != node {
			lost = max(lost, 1-w.hw.bandwidth(node, other))
		}
	}
	return lost
}

// replaceFile writes a file of one line or more; readers see the old one or the new
// one.
func replaceFile(path, text string) error {
	if err := ownfile.Replace(path, []byte(text+"\n")); err != nil {
		return fmt.Errorf("lab: can't write %s: %w", path, err)
	}
	return nil
}

// countNetwork moves the counters until the lab closes. A tree that can't be
// written (a full disk) stays as it is: agents then see counters at rest.
func (l *Lab) countNetwork() {
	tick := time.NewTicker(refreshNetwork)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-l.closing.Done():
			return
		case now := <-tick.C:
			if l.network.advanceCounters(now.Sub(last).Seconds()) != nil {
				return
			}
			last = now
		}
	}
}
