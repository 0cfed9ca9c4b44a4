package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"syscall"
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
	spent    time.Duration // CPU time of what is measured
}

const crowdGPUs = 8 // of a node

func newCrowd(t testing.TB, nodes int) *crowd {
	t.Helper()
	j, err := journal.OpenWith(filepath.Join(t.TempDir(), "journal.db"), journal.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	c := &crowd{
		now:    time.Unix(1_700_000_000, 0),
		rng:    rand.New(rand.NewPCG(1, 2)),
		layout: falcon.Layout{TP: crowdGPUs, DP: nodes / 2, PP: 2},
	}
	if c.engine, err = New(Config{
		JobName: "crowd",
		Journal: j,
		Now:     func() time.Time { return c.now },
		Policy:  falcon.Policy{Mode: falcon.ModeObserve},
	}); err != nil {
		t.Fatal(err)
	}
	for i := range nodes {
		name := fmt.Sprintf("n%d", i)
		s := fleet.NewSession(context.Background(), &falconv1.Hello{
			Agent:   name,
			Node:    name,
			Boot:    "b",
			Version: "test",
		})
		c.sessions = append(c.sessions, s)
		c.engine.handleArrival(arrival{session: s, what: arriveAttach, at: c.now}, c.now)
		for k := range crowdGPUs {
			c.send(t, i, &falconv1.AgentFrame{Body: &falconv1.AgentFrame_Rank{Rank: c.rankState(i, k)}})
		}
	}
	return c
}

// send carries a frame as a stream does.
func (c *crowd) send(t testing.TB, node int, f *falconv1.AgentFrame) {
	c.take(c.carried(t, node, f))
}

// carried is a frame that has come to the engine: each is decoded for itself.
type carried struct {
	node  int
	at    time.Time
	frame *falconv1.AgentFrame
}

func (c *crowd) take(f carried) {
	c.now = f.at
	c.engine.handleArrival(
		arrival{
			session: c.sessions[f.node],
			what:    arriveFrame,
			frame:   f.frame,
			at:      c.now,
		},
		c.now,
	)
}

func (c *crowd) carried(t testing.TB, node int, f *falconv1.AgentFrame) carried {
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
	return carried{node, c.now, in}
}

func (c *crowd) rankState(node, gpu int) *falconv1.RankState {
	r := falcon.Rank(node*crowdGPUs + gpu)
	l := c.layout
	s := &falconv1.RankState{
		Rank:         int32(r),
		Device:       fmt.Sprintf("n%d.g%d", node, gpu),
		Nic:          fmt.Sprintf("n%d.nic%d", node, gpu),
		Pid:          int32(1000 + gpu),
		Alive:        true,
		Tp:           int32(l.TP),
		Dp:           int32(l.DP),
		Pp:           int32(l.PP),
		World:        int32(l.World()),
		MicroBatches: 8,
		StateBytes:   10 << 30,
		CopyMbs:      20_000,
		NcclVersion:  22809,
	}
	for n, d := range []falcon.Dimension{falcon.DimTP, falcon.DimDP, falcon.DimPP} {
		peers := l.Peers(r, d)
		s.Comms = append(s.Comms, &falconv1.Comm{
			Id:   uint64(n+1)<<40 | uint64(peers[0]),
			Name: string(d),
			Size: int32(len(peers)),
		})
	}
	return s
}

// frames is what all agents send in a second, with an iteration in it.
func (c *crowd) frames(t testing.TB, iteration int64) (out []carried) {
	ms := 1000 + 3*c.rng.NormFloat64()
	spent := uint64(c.now.UnixNano() - 1_700_000_000e9)
	for i := range c.sessions {
		c.now = c.now.Add(time.Second / time.Duration(len(c.sessions)))
		samples := &falconv1.Samples{}
		tele := &falconv1.Telemetry{Host: &falconv1.Host{
			AtUnixNs:   c.now.UnixNano(),
			PressureUs: spent / 1e5,
			LoadPerCpu: 0.3,
			RunDelayNs: map[int32]uint64{},
		}}
		var beats []*falconv1.RankBeat
		for k := range crowdGPUs {
			r := int32(i*crowdGPUs + k)
			samples.Samples = append(samples.Samples, &falconv1.Sample{
				Rank:      r,
				Iteration: iteration,
				EndUnixNs: c.now.UnixNano(),
				Ms:        ms + c.rng.Float64(),
				Exact:     true,
			})
			tele.Gpus = append(tele.Gpus, &falconv1.Gpu{
				Device:        fmt.Sprintf("n%d.g%d", i, k),
				AtUnixNs:      c.now.UnixNano() - c.rng.Int64N(2e6),
				SmClockMhz:    1965 + uint32(c.rng.IntN(16)),
				MaxSmClockMhz: 1980,
				TemperatureC:  60,
				PowerMw:       640_000 + uint32(c.rng.IntN(20_000)),
				PowerLimitMw:  700_000,
				ProbeUs:       700,
			})
			tele.Nics = append(tele.Nics, &falconv1.Nic{
				Name:       fmt.Sprintf("n%d.nic%d", i, k),
				AtUnixNs:   c.now.UnixNano() - c.rng.Int64N(2e6),
				RateMbps:   400_000,
				Active:     true,
				XmitBytes:  spent * 20,
				RcvBytes:   spent * 20,
				CnpSent:    spent / 1e8,
				CnpHandled: spent / 1e8,
			})
			tele.Host.RunDelayNs[r] = spent / 2000
			beats = append(beats, &falconv1.RankBeat{
				Rank:         r,
				Pid:          int32(1000 + k),
				Iteration:    iteration,
				Calls:        uint64(iteration) * 60,
				WaitingKnown: true,
			})
		}
		out = append(out, c.carried(t, i, &falconv1.AgentFrame{
			Body: &falconv1.AgentFrame_Samples{Samples: samples},
		}))
		out = append(out, c.carried(t, i, &falconv1.AgentFrame{
			Body: &falconv1.AgentFrame_Telemetry{Telemetry: tele},
		}))
		if iteration%2 == 0 {
			out = append(out, c.carried(t, i, &falconv1.AgentFrame{
				Body: &falconv1.AgentFrame_Beat{
					Beat: &falconv1.Beat{AtUnixNs: c.now.UnixNano(), Ranks: beats},
				},
			}))
		}
	}
	return out
}

// second has the engine take what came in one, in ten turns, and build a picture for a console.
func (c *crowd) second(t testing.TB, frames []carried) {
	const turns = 10
	for i := range turns {
		for _, f := range frames[i*len(frames)/turns : (i+1)*len(frames)/turns] {
			c.take(f)
		}
		if i == 0 {
			c.engine.views.asked.Store(c.now.UnixNano())
			c.engine.views.built = time.Time{}
		} else {
			c.engine.views.asked.Store(0)
		}
		c.turn(t)
	}
}

func (c *crowd) turn(t testing.TB) {
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
	nodes := 100
	seconds := int64(600)
	if testing.Short() {
		nodes, seconds = 64, 250
	}
	before := liveHeap()
	c := newCrowd(t, nodes)
	for i := range seconds {
		c.second(t, c.frames(t, i))
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

// A second of 10,000 ranks at one iteration a second, from decoded frames to the picture for a
// console: cpu-ns/rank is the process's CPU time, however busy the machine is.
func BenchmarkSecond(b *testing.B) {
	const nodes = 1250
	c := newCrowd(b, nodes)
	iteration := int64(0)
	second := func() {
		frames := c.frames(b, iteration)
		iteration++
		b.StartTimer()
		from := usedCPU(b)
		c.second(b, frames)
		c.spent += usedCPU(b) - from
		b.StopTimer()
	}
	for range 125 { // the ranks are at rest
		second()
	}
	b.ResetTimer()
	c.spent = 0
	for range b.N {
		second()
	}
	b.ReportMetric(float64(c.spent.Nanoseconds())/float64(b.N)/nodes/crowdGPUs, "cpu-ns/rank")
}

func usedCPU(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func liveHeap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
