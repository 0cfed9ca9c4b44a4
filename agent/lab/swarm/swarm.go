package swarm

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Config is the swarm and its engine.
type Config struct {
	Engine string // HOST:PORT
	Certs  string // folder with ca.crt, and NAME.crt and NAME.key for each node n0, n1, …
	Job    string
	Nodes  int
	GPUs   int           // of a node, each with a rank and a port
	Period time.Duration // of an iteration
	Fault  Fault
}

// Rates of what agents send by themselves.
const (
	telemetryEvery = time.Second
	beatEvery      = 2 * time.Second
	drainWithin    = 50 * time.Millisecond // agents empty the rings that often: samples come within it
)

// Swarm is a running one.
type Swarm struct {
	cfg     Config
	job     job
	nodes   []*node
	network network
	counts  counts
	begun   time.Time
	at      atomic.Int64 // newest iteration that has ended
	cancel  context.CancelFunc
	done    sync.WaitGroup
}

// Start connects all nodes; iterations begin with Train.
func Start(cfg Config) (*Swarm, error) {
	s := &Swarm{cfg: cfg}
	s.at.Store(-1)
	var err error
	if s.job, err = newJob(cfg.Nodes, cfg.GPUs, float64(cfg.Period)/1e6, cfg.Fault); err != nil {
		return nil, err
	}
	for i := range cfg.Nodes {
		n, err := openNode(&s.cfg, &s.job, i, &s.counts, &s.network)
		if err != nil {
			s.Close()
			return nil, err
		}
		s.nodes = append(s.nodes, n)
	}
	return s, nil
}

// Connected is how many nodes have a stream.
func (s *Swarm) Connected() int {
	up := 0
	for _, n := range s.nodes {
		if n.shipper.Stats().Connected {
			up++
		}
	}
	return up
}

// workers share the nodes' clocks; a goroutine a node would cost more than what it sends.
const workers = 4

// Train runs iterations, telemetry and beats until Close.
func (s *Swarm) Train() {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.begun = time.Now()
	for w := range min(workers, len(s.nodes)) {
		s.done.Go(func() { s.iterate(ctx, w) })
		s.done.Go(func() {
			s.every(ctx, w, telemetryEvery, func(n *node, now time.Time) { n.telemetry(now) })
		})
		s.done.Go(func() {
			s.every(ctx, w, beatEvery, func(n *node, now time.Time) {
				n.beat(s.at.Load(), now)
			})
		})
	}
}

// iterate ends iterations of a worker's nodes: all of a job's end at once, and their agents
// send them within a drain period.
func (s *Swarm) iterate(ctx context.Context, w int) {
	end := s.begun
	for i := int64(0); ; i++ {
		end = end.Add(time.Duration(s.job.iterationMs(i) * 1e6))
		mine := (len(s.nodes) - w + workers - 1) / workers
		for k := range mine {
			if !sleepUntil(ctx, end.Add(drainWithin*time.Duration(k)/time.Duration(max(1, mine)))) {
				return
			}
			s.nodes[w+k*workers].iteration(i, end)
		}
		s.at.Store(max(s.at.Load(), i))
	}
}

// every does something for a worker's nodes once a period, spread over it.
func (s *Swarm) every(ctx context.Context, w int, period time.Duration, do func(*node, time.Time)) {
	for begun := s.begun; ; begun = begun.Add(period) {
		for k := w; k < len(s.nodes); k += workers {
			if !sleepUntil(ctx, begun.Add(period*time.Duration(k)/time.Duration(len(s.nodes)))) {
				return
			}
			do(s.nodes[k], time.Now())
		}
		if !sleepUntil(ctx, begun.Add(period)) {
			return
		}
	}
}

// leastSleep keeps thousands of nodes from a timer each.
const leastSleep = 2 * time.Millisecond

// sleepUntil waits for a moment, and reports whether the swarm goes on.
func sleepUntil(ctx context.Context, at time.Time) bool {
	if d := time.Until(at); d > leastSleep {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

// Totals are what the swarm has done so far.
type Totals struct {
	Iteration                               int64
	Samples, Frames, Profiles, ProfileBytes int64
	// frames in spools, and samples and telemetry that full ones let go
	Waiting, Dropped int64
	// commands that would have stopped or changed the job, by kind
	Harm map[string]int64
}

// Totals counts.
func (s *Swarm) Totals() Totals {
	c := &s.counts
	t := Totals{
		Iteration:    s.at.Load(),
		Samples:      c.samples.Load(),
		Frames:       c.frames.Load(),
		Profiles:     c.profiles.Load(),
		ProfileBytes: c.profileBytes.Load(),
		Harm:         map[string]int64{},
	}
	for _, n := range s.nodes {
		st := n.shipper.Stats()
		t.Waiting += int64(st.Frames)
		t.Dropped += int64(st.Dropped)
	}
	c.harmful.Range(func(k, v any) bool {
		t.Harm[k.(string)] = v.(*atomic.Int64).Load()
		return true
	})
	return t
}

// World is the number of ranks.
func (s *Swarm) World() int { return s.job.layout.World() }

// Close ends all streams.
func (s *Swarm) Close() {
	if s.cancel != nil {
		s.cancel()
	}
	s.done.Wait()
	var all sync.WaitGroup
	for _, n := range s.nodes {
		all.Go(n.shipper.Close)
	}
	all.Wait()
}
