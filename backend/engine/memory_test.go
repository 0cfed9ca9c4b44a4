package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/fleet"
	"github.com/failslow/falcon/backend/journal"
)

// rankBytesMost is what an engine may hold of a quiet job's rank, without the streams: ten
// minutes after its start, with a picture built every second. It was 90 kB when every
// reading was kept whole.
const rankBytesMost = 14_000

// crowd is a large job whose frames go into an engine by hand.
type crowd struct {
	engine   *Engine
	now      time.Time
	rng      *rand.Rand
	sessions []*fleet.Session
	seq      uint64
	layout   falcon.Layout
}

const crowdGPUs = 8 // of a node

func newCrowd(t testing.TB, nodes int) *crowd {
	t.Helper()
	j, err := journal.OpenWith(filepath.Join(t.TempDir(), "journal.db"), journal.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	c := &crowd{now: time.Unix(1_700_000_000, 0), rng: rand.New(rand.NewPCG(1, 2)), layout: falcon.Layout{TP: crowdGPUs, DP: nodes / 2, PP: 2}}
	if c.engine, err = New(Config{JobName: "crowd", Journal: j, Now: func() time.Time { return c.now }, Policy: falcon.Policy{Mode: falcon.ModeObserve}}); err != nil {
		t.Fatal(err)
	}
	for i := range nodes {
		name := fmt.Sprintf("n%d", i)
		s := fleet.NewSession(context.Background(), &falconv1.Hello{Agent: name, Node: name, Boot: "b", Version: "test"})
		c.sessions = append(c.sessions, s)
		c.engine.handleArrival(arrival{session: s, what: arriveAttach, at: c.now}, c.now)
		for k := range crowdGPUs {
			c.send(t, i, &falconv1.AgentFrame{Body: &falconv1.AgentFrame_Rank{Rank: c.rankState(i, k)}})
		}
	}
	return c
}

// send carries a frame as a stream does: each is decoded for itself.
func (c *crowd) send(t testing.TB, node int, f *falconv1.AgentFrame) {
	c.seq++
	f.Seq = c.seq
	b, err := proto.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	in := &falconv1.AgentFrame{}
	if err := proto.Unmarshal(b, in); err != nil {
		t.Fatal(err)
	}
	c.engine.handleArrival(arrival{session: c.sessions[node], what: arriveFrame, frame: in, at: c.now}, c.now)
}

func (c *crowd) rankState(node, gpu int) *falconv1.RankState {
	r, l := falcon.Rank(node*crowdGPUs+gpu), c.layout
	s := &falconv1.RankState{
		Rank: int32(r), Device: fmt.Sprintf("n%d.g%d", node, gpu), Nic: fmt.Sprintf("n%d.nic%d", node, gpu), Pid: int32(1000 + gpu), Alive: true,
		Tp: int32(l.TP), Dp: int32(l.DP), Pp: int32(l.PP), World: int32(l.World()), MicroBatches: 8, StateBytes: 10 << 30, CopyMbs: 20_000, NcclVersion: 22809,
	}
	for n, d := range []falcon.Dimension{falcon.DimTP, falcon.DimDP, falcon.DimPP} {
		peers := l.Peers(r, d)
		s.Comms = append(s.Comms, &falconv1.Comm{Id: uint64(n+1)<<40 | uint64(peers[0]), Name: string(d), Size: int32(len(peers))})
	}
	return s
}

// second is what all agents send in one, with an iteration in it.
func (c *crowd) second(t testing.TB, iteration int64) {
	ms := 1000 + 3*c.rng.NormFloat64()
	spent := uint64(c.now.UnixNano() - 1_700_000_000e9)
	for i := range c.sessions {
		c.now = c.now.Add(time.Second / time.Duration(len(c.sessions)))
		samples := &falconv1.Samples{}
		tele := &falconv1.Telemetry{Host: &falconv1.Host{AtUnixNs: c.now.UnixNano(), PressureUs: spent / 1e5, LoadPerCpu: 0.3, RunDelayNs: map[int32]uint64{}}}
		var beats []*falconv1.RankBeat
		for k := range crowdGPUs {
			r := int32(i*crowdGPUs + k)
			samples.Samples = append(samples.Samples, &falconv1.Sample{Rank: r, Iteration: iteration, EndUnixNs: c.now.UnixNano(), Ms: ms + c.rng.Float64(), Exact: true})
			tele.Gpus = append(tele.Gpus, &falconv1.Gpu{
				Device: fmt.Sprintf("n%d.g%d", i, k), AtUnixNs: c.now.UnixNano() - c.rng.Int64N(2e6), SmClockMhz: 1965 + uint32(c.rng.IntN(16)), MaxSmClockMhz: 1980,
				TemperatureC: 60, PowerMw: 640_000 + uint32(c.rng.IntN(20_000)), PowerLimitMw: 700_000, ProbeUs: 700,
			})
			tele.Nics = append(tele.Nics, &falconv1.Nic{
				Name: fmt.Sprintf("n%d.nic%d", i, k), AtUnixNs: c.now.UnixNano() - c.rng.Int64N(2e6), RateMbps: 400_000, Active: true,
				XmitBytes: spent * 20, RcvBytes: spent * 20, CnpSent: spent / 1e8, CnpHandled: spent / 1e8,
			})
			tele.Host.RunDelayNs[r] = spent / 2000
			beats = append(beats, &falconv1.RankBeat{Rank: r, Pid: int32(1000 + k), Iteration: iteration, Calls: uint64(iteration) * 60, WaitingKnown: true})
		}
		c.send(t, i, &falconv1.AgentFrame{Body: &falconv1.AgentFrame_Samples{Samples: samples}})
		c.send(t, i, &falconv1.AgentFrame{Body: &falconv1.AgentFrame_Telemetry{Telemetry: tele}})
		if iteration%2 == 0 {
			c.send(t, i, &falconv1.AgentFrame{Body: &falconv1.AgentFrame_Beat{Beat: &falconv1.Beat{AtUnixNs: c.now.UnixNano(), Ranks: beats}}})
		}
	}
	c.engine.views.asked.Store(c.now.UnixNano())
	if err := c.engine.Turn(true); err != nil {
		t.Fatal(err)
	}
	for _, s := range c.sessions { // what it sends is taken away; profile windows stay without an answer
		for s.Next() != nil {
		}
	}
}

// What an engine holds of a rank is bounded.
func TestBytesOfARank(t *testing.T) {
	nodes, seconds := 100, int64(600)
	if testing.Short() {
		nodes, seconds = 64, 250
	}
	before := liveHeap()
	c := newCrowd(t, nodes)
	for i := range seconds {
		c.second(t, i)
	}
	if got := c.engine.det.Steady(); got.Iteration < seconds-2 || got.Learning {
		t.Fatalf("the detector is at %+v", got)
	}
	per := (liveHeap() - before) / (nodes * crowdGPUs)
	t.Logf("%d bytes a rank", per)
	if per > rankBytesMost {
		t.Errorf("%d bytes a rank, want at most %d", per, rankBytesMost)
	}
	runtime.KeepAlive(c)
}

func liveHeap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
