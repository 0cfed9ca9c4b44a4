package swarm

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/ship"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// node is one emulated node: a real stream, and a clock's worth of counters.
type node struct {
	name    string
	job     *job
	ranks   []falcon.Rank
	shipper *ship.Shipper
	counts  *counts
	rng     *rand.Rand

	at      atomic.Int64 // newest iteration that has ended
	mu      sync.Mutex
	windows []window // profile windows that wait for their last iteration
	began   time.Time
}

// window is a profile window that was asked for.
type window struct {
	id    uint64
	first int64
	n     int
	ranks []int32
	packs bool // calls are wanted in columns
}

// counts are what all nodes did.
type counts struct {
	samples, frames, profiles, profileBytes, harm atomic.Int64
	harmful                                       sync.Map // kind of command → *atomic.Int64
}

func openNode(cfg *Config, j *job, number int, c *counts, w *network) (*node, error) {
	n := &node{
		name:   fmt.Sprintf("n%d", number),
		job:    j,
		counts: c,
		rng:    rand.New(rand.NewPCG(uint64(number), 7)),
		began:  time.Now(),
	}
	for i := range cfg.GPUs {
		n.ranks = append(n.ranks, falcon.Rank(number*cfg.GPUs+i))
	}
	var devices []string
	for i := range n.ranks {
		devices = append(devices, fmt.Sprintf("%s.g%d", n.name, i))
	}
	s, err := ship.Open(ship.Config{
		Address:  cfg.Engine,
		CAFile:   filepath.Join(cfg.Certs, "ca.crt"),
		CertFile: filepath.Join(cfg.Certs, n.name+".crt"),
		KeyFile:  filepath.Join(cfg.Certs, n.name+".key"),
		Hello: &falconv1.Hello{
			Agent:    n.name,
			Node:     n.name,
			Boot:     fmt.Sprintf("%s-%d", n.name, n.began.UnixNano()),
			Version:  "swarm",
			Job:      cfg.Job,
			Devices:  devices,
			Emulated: true,
			Sysfs:    "/sys",
			Protocol: falconv1.ProtocolRevision,
		},
		Welcome: func(*falconv1.Welcome) {},
		Command: n.command,
		Ask:     func(*falconv1.Ask) {},
		Dial:    w.dial,
	})
	if err != nil {
		return nil, fmt.Errorf("swarm: %w", err)
	}
	n.shipper = s
	for i, r := range n.ranks {
		n.send(&falconv1.AgentFrame{Body: &falconv1.AgentFrame_Rank{Rank: j.rankState(
			n.name,
			r,
			i,
		)}})
	}
	return n, nil
}

func (n *node) send(f *falconv1.AgentFrame) {
	n.counts.frames.Add(1)
	n.shipper.Send(f)
}

// command answers a profile window, says yes to what changes nothing, and counts the rest.
func (n *node) command(c *falconv1.Command) {
	res := &falconv1.CommandResult{
		Epoch:  c.GetEpoch(),
		Id:     c.GetId(),
		Status: falconv1.CommandStatus_COMMAND_STATUS_DONE,
	}
	switch {
	case c.GetProfile() != nil:
		p := c.GetProfile()
		n.mu.Lock()
		n.windows = append(n.windows, window{
			p.GetWindow(),
			-1,
			int(p.GetIterations()),
			p.GetRanks(),
			p.GetColumns(),
		})
		n.mu.Unlock()
	case c.GetTable() != nil:
	default:
		n.counts.harm.Add(1)
		v, _ := n.counts.harmful.LoadOrStore(fmt.Sprintf("%T", c.GetBody()), new(atomic.Int64))
		v.(*atomic.Int64).Add(1)
		res.Status = falconv1.CommandStatus_COMMAND_STATUS_REFUSED
		res.Detail = "the swarm obeys no order"
	}
	n.send(&falconv1.AgentFrame{Body: &falconv1.AgentFrame_Result{Result: res}})
}

// iteration ends one iteration of the node's ranks.
func (n *node) iteration(i int64, now time.Time) {
	n.at.Store(i)
	ms := n.job.iterationMs(i)
	out := &falconv1.Samples{Samples: make([]*falconv1.Sample, len(n.ranks))}
	for k, r := range n.ranks {
		out.Samples[k] = &falconv1.Sample{
			Rank:      int32(r),
			Iteration: i,
			EndUnixNs: now.UnixNano(),
			Ms:        ms * (1 + noise*n.rng.NormFloat64()),
			Exact:     true,
		}
	}
	n.counts.samples.Add(int64(len(n.ranks)))
	n.send(&falconv1.AgentFrame{Body: &falconv1.AgentFrame_Samples{Samples: out}})
	for _, w := range n.overWindows(i) {
		n.answer(w)
	}
}

// overWindows are the windows whose last iteration this is.
func (n *node) overWindows(i int64) (over []window) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var open []window
	for _, w := range n.windows {
		switch {
		case w.first < 0:
			w.first = i + 1 // a window begins with an iteration
			open = append(open, w)
		case i >= w.first+int64(w.n)-1:
			over = append(over, w)
		default:
			open = append(open, w)
		}
	}
	n.windows = open
	return over
}

func (n *node) answer(w window) {
	out := &falconv1.Profile{Window: w.id}
	for _, r := range n.ranks {
		if len(w.ranks) > 0 && !slices.Contains(w.ranks, int32(r)) {
			continue
		}
		p := n.job.profile(r, w.first, w.n, n.rng)
		if w.packs {
			p = convert.PackedProfileToProto(convert.ProfileFromProto(w.id, p))
		}
		out.Ranks = append(out.Ranks, p)
	}
	n.counts.profiles.Add(1)
	f := &falconv1.AgentFrame{Body: &falconv1.AgentFrame_Profile{Profile: out}}
	n.counts.profileBytes.Add(int64(proto.Size(f)))
	n.send(f)
}

// telemetry sends one reading of every GPU and port, and of the host.
func (n *node) telemetry(now time.Time) {
	t := &falconv1.Telemetry{Host: &falconv1.Host{
		AtUnixNs:   now.UnixNano(),
		PressureUs: uint64(now.Sub(n.began).Microseconds() / 100),
		LoadPerCpu: 0.3,
		RunDelayNs: map[int32]uint64{},
		Emulated:   true,
	}}
	spent := uint64(now.Sub(n.began))
	for i, r := range n.ranks {
		slow := n.job.factor(r, n.at.Load())
		t.Gpus = append(t.Gpus, &falconv1.Gpu{
			Device:        fmt.Sprintf("%s.g%d", n.name, i),
			AtUnixNs:      now.UnixNano(),
			SmClockMhz:    uint32(float64(1965+n.rng.IntN(16)) / slow),
			MaxSmClockMhz: 1980,
			TemperatureC:  uint32(60*slow) + uint32(n.rng.IntN(5)),
			PowerMw:       640_000 + uint32(n.rng.IntN(20_000)),
			PowerLimitMw:  700_000,
			ProbeUs:       700,
		})
		t.Nics = append(t.Nics, &falconv1.Nic{
			Name:       fmt.Sprintf("%s.nic%d", n.name, i),
			AtUnixNs:   now.UnixNano(),
			RateMbps:   400_000,
			Active:     true,
			XmitBytes:  spent * 20,
			RcvBytes:   spent * 20,
			CnpSent:    spent / 1e8,
			CnpHandled: spent / 1e8,
			Emulated:   true,
		})
		t.Host.RunDelayNs[int32(n.ranks[i])] = spent / 2000
	}
	n.send(&falconv1.AgentFrame{Body: &falconv1.AgentFrame_Telemetry{Telemetry: t}})
}

// beat is the node's sign of life.
func (n *node) beat(i int64, now time.Time) {
	ranks := make([]*falconv1.RankBeat, len(n.ranks))
	for k, r := range n.ranks {
		ranks[k] = &falconv1.RankBeat{
			Rank:         int32(r),
			Pid:          1000 + int32(k),
			Iteration:    i,
			StepTag:      i,
			HookAgeMs:    20,
			Calls:        uint64(i) * 60,
			WaitingKnown: true,
		}
	}
	n.shipper.Beat(now, ranks, nil)
}
