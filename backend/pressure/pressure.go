package pressure

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// Level says how short of memory the process is.
type Level int32

// The levels, each with what it adds to the ones before.
const (
	Plenty      Level = iota
	NoWatches         // 90 %: new watches are refused
	NoViewers         // 92 %: viewers' snapshots
	NoProfiles        // 94 %
	NoTelemetry       // 96 %
	NoSamples         // 98 %
)

// String is the level in words.
func (l Level) String() string {
	const names = "plenty,new watches,viewers' snapshots,profiles,telemetry,samples"
	return strings.Split(names, ",")[min(max(l, Plenty), NoSamples)]
}

// ErrLimit is wrapped where a limit can't be read.
var ErrLimit = errors.New("pressure: bad limit of memory")

// leastLimit is what an engine with an empty job needs, with room to spare.
const leastLimit = 64 << 20

// ParseLimit reads a number of bytes with an optional unit: KiB, MiB, GiB, as
// GOMEMLIMIT takes them; "" and "none" are 0.
func ParseLimit(s string) (int64, error) {
	if s == "" || s == "none" {
		return 0, nil
	}
	number, shift := s, 0
	for unit, by := range map[string]int{"KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40} {
		if rest, ok := strings.CutSuffix(s, unit); ok {
			number, shift = rest, by
		}
	}
	n, err := strconv.ParseInt(
		strings.TrimSuffix(strings.TrimSpace(number), "B"),
		10,
		64,
	)
	if err != nil || n <= 0 || n > (1<<62)>>shift {
		return 0, fmt.Errorf("%w: %q; give a number with a unit, such as 2GiB, or none", ErrLimit, s)
	}
	if n <<= shift; n < leastLimit {
		return 0, fmt.Errorf("%w: %q is less than %d MiB, which the engine needs at least",
			ErrLimit, s, leastLimit>>20)
	}
	return n, nil
}

// cgroupShare is how much of its cgroup's memory the process takes: the rest is
// for what the runtime does not count, such as the journal's mapped pages.
const cgroupShare = 0.8

// Choose finds the limit that holds: GOMEMLIMIT wins over what is configured,
// and that over the cgroup's. It sets the runtime's limit; 0 = there is none.
func Choose(configured string) (int64, error) {
	limit, err := ParseLimit(configured)
	if err != nil {
		return 0, err
	}
	if env := os.Getenv("GOMEMLIMIT"); env != "" && env != "off" {
		return debug.SetMemoryLimit(-1), nil // the runtime has read it
	}
	if limit == 0 && configured == "" {
		if most, err := memlimit.FromCgroup(); err == nil { // no cgroup, no limit
			limit = int64(float64(min(most, 1<<62)) * cgroupShare)
		}
	}
	if limit > 0 {
		debug.SetMemoryLimit(limit)
	}
	return limit, nil
}

// Gauge looks at the memory in use.
type Gauge struct {
	limit   int64
	used    func() int64
	changed func(was, now Level, used int64)
	level   atomic.Int32
	stop    chan struct{}
	running sync.WaitGroup
	once    sync.Once
}

// lookEvery is how often the gauge looks: between two looks the process may
// grow by what it is sent, which callers' budgets bound.
const lookEvery = 100 * time.Millisecond

// Watch starts a gauge. Changed is called from its goroutine with every new
// level; a limit of 0 means that there is always plenty.
func Watch(limit int64, changed func(was, now Level, used int64)) *Gauge {
	g := &Gauge{
		limit:   limit,
		used:    inUse,
		changed: changed,
		stop:    make(chan struct{}),
	}
	if limit > 0 {
		g.running.Go(g.run)
	}
	return g
}

func (g *Gauge) run() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-g.stop:
			return
		case <-tick.C:
			g.look()
		}
	}
}

func (g *Gauge) look() {
	used := g.used()
	was := g.Level()
	now := levelAt(was, float64(used)/float64(g.limit))
	if now == was {
		return
	}
	g.level.Store(int32(now))
	if g.changed != nil {
		g.changed(was, now, used)
	}
}

// Bounds of the levels, as shares of the limit.
const (
	firstAt = 0.90
	stepAt  = 0.02
	fallBy  = 0.05 // below the level's own bound before it falls
)

func levelAt(was Level, share float64) Level {
	bound := func(l Level) float64 { return firstAt + stepAt*float64(l-1) }
	now := was
	for now < NoSamples && share >= bound(now+1) {
		now++
	}
	for now > Plenty && share < bound(now)-fallBy {
		now--
	}
	return now
}

// Level is the newest one.
func (g *Gauge) Level() Level {
	return Level(g.level.Load())
}

// Close ends the gauge.
func (g *Gauge) Close() {
	g.once.Do(func() { close(g.stop) })
	g.running.Wait()
}

// inUse is what is live, with what the runtime needs beside the heap: the
// collector can take back the rest.
func inUse() int64 {
	s := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/gc/heap/live:bytes"},
	}
	metrics.Read(s)
	of := func(i int) int64 {
		if s[i].Value.Kind() != metrics.KindUint64 {
			return 0
		}
		return int64(s[i].Value.Uint64())
	}
	beside := of(0) - of(1) - of(2) - of(3) - of(4)
	return max(beside, 0) + min(of(5), of(2))
}
