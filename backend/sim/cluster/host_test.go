package cluster

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/engine"
	"github.com/failslow/falcon/backend/journal"
	"github.com/failslow/falcon/mitigate"
	"github.com/failslow/falcon/recovery"
)

const tickEvery = 100 * time.Millisecond

// host is the machine of the engine.
type host struct {
	c       *Cluster
	name    string
	belief  *belief
	began   time.Duration // when it was first started
	retired bool          // the other engine was kept
	engine  *engine.Engine
	journal *journal.Journal
	path    string
	life    int  // counts starts
	stopped bool // the process does not run (SIGSTOP)
	stops   int
	watcher *engine.Watcher
	seen    uint64 // newest line of the event log that was looked at
	woken   bool
	clock   *clock
	full    int  // disks that are full, and not freed
	doom    int  // points until the engine is killed at one, 0 = it is not to be
	seldom  bool // only those of a compaction count
	dying   bool
	copies  []copied // of the journal's folder, oldest first
}

// errKilled ends an engine at one of its points.
var errKilled = errors.New("killed")

func newHost(c *Cluster, name string) *host {
	dir := filepath.Join(c.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		c.violate("%s", err)
	}
	h := &host{
		c:     c,
		name:  name,
		clock: &clock{w: c.World},
		began: c.now,
		path:  filepath.Join(dir, "journal.db"),
	}
	h.belief = c.judge.of(h)
	return h
}

func (h *host) log(format string, args ...any) {
	h.c.log("%s: %s", h.name, fmt.Sprintf(format, args...))
}

// start opens the journal and restores an engine from it.
func (h *host) start() {
	j, err := journal.OpenWith(h.path, journal.Options{Fault: h.fault})
	if err != nil {
		h.c.violate("the journal can't be opened: %s", err)
		return
	}
	e, err := engine.New(engine.Config{
		JobName:    "sim",
		ID:         h.c.engineID(),
		Journal:    j,
		Fault:      h.strike,
		Clock:      h.clock.read,
		Policy:     h.c.setup.acts(),
		Mitigate:   mitigate.Config{OverheadsMs: h.c.setup.overheads},
		Retention:  engine.Retention{SnapshotBytes: h.c.setup.snapshotBytes},
		Validation: engine.Validation{Auto: h.c.setup.autoTests},
		Recoverer:  &spy{Machine: recovery.New(recovery.Config{}), j: h.belief},
	})
	if journal.Transient(err) { // it says so and exits, and whoever supervises it tries again
		_ = j.Close()
		h.c.after(time.Second, h.revive)
		return
	}
	if err != nil {
		h.c.violate("the engine does not start: %s", err)
		return
	}
	h.life++
	h.engine, h.journal = e, j
	if h.watcher, err = e.Watch(0); err != nil {
		h.c.violate("%s", err)
	}
	for h.seen = 0; h.watcher.Waiting() > 0; { // told by the life before
		line, _, _ := h.watcher.Next(context.Background())
		h.seen = line.GetSeq()
	}
	h.log("life %d begins", h.life)
	h.tick(h.life)
}

// acts is what may happen without a person.
func (s setup) acts() falcon.Policy {
	if s.policy != nil {
		return *s.policy
	}
	return falcon.Policy{
		Mode:     falcon.ModeAuto,
		Cap:      s.cap,
		Owner:    "sim",
		Recovery: falcon.RecoveryPolicy{PerHour: 1000},
	}
}

// strike kills an engine that is to die, at the point where its time has come.
func (h *host) strike(point string) error {
	if h.doom > 0 && !h.dying && (!h.seldom || strings.Contains(point, "compact")) {
		if h.doom--; h.doom == 0 {
			h.dying = true
			h.c.struck[point]++
			h.log("is killed %s", point)
		}
	}
	if h.dying {
		return errKilled
	}
	return nil
}

// fault is the disk of the journal, which may be full.
func (h *host) fault(point string) error {
	if err := h.strike(point); err != nil {
		return err
	}
	if h.full > 0 && point == journal.PointBeforeCommit {
		return errors.Join(journal.ErrFull, syscall.ENOSPC)
	}
	return nil
}

// fill fills the disk for a while.
func (h *host) fill(last time.Duration) {
	h.log("its disk is full for %v", last)
	h.full++
	h.c.after(last, func() { h.full = max(0, h.full-1) })
}

// kill ends the engine as kill -9 does.
func (h *host) kill() {
	if h.engine == nil {
		return
	}
	h.log("killed")
	h.dying = true // what is under way ends where it is
	h.engine.Halt()
	_ = h.journal.Close()
	h.engine = nil
	h.stopped = false
	h.doom = 0
	h.dying = false
	for _, c := range h.c.conns {
		if c.host == h && c.life == h.life && c.engUp {
			c.closeEngine("the engine was killed")
		}
	}
}

// revive starts the engine where none runs.
func (h *host) revive() {
	if h.engine == nil && !h.retired {
		h.start()
	}
}

// stop is SIGSTOP for a while.
func (h *host) stop(last time.Duration) {
	if h.engine == nil || h.stopped {
		return
	}
	h.log("stopped for %v", last)
	h.stopped = true
	h.stops++
	no := h.stops
	h.c.after(last, func() {
		if h.stops == no {
			h.cont()
		}
	})
}

func (h *host) cont() {
	if h.stopped {
		h.log("goes on")
		h.stopped = false
		h.turn(true)
	}
}

// call has an operator's request carried out; the answer comes at once, as no
// time passes meanwhile.
func (h *host) call(f func(context.Context, *engine.Engine) error) error {
	if h.engine == nil || h.stopped {
		return engine.ErrStopped
	}
	answer := make(chan error, 1)
	e := h.engine
	go func() { answer <- f(context.Background(), e) }()
	for {
		select {
		case err := <-answer:
			h.turn(false)
			return err
		default:
			runtime.Gosched()
			if h.engine != e {
				continue // it was killed: the answer says so
			}
			if err := e.Turn(false); err != nil {
				h.ends(err)
			}
		}
	}
}

func (h *host) tick(life int) {
	if h.engine == nil || h.life != life {
		return
	}
	h.c.after(tickEvery, func() { h.tick(life) })
	h.turn(true)
	if h.c.oracle != nil {
		h.c.oracle.look(h)
	}
}

// wake has the engine look at what arrived, as soon as its process runs.
func (h *host) wake() {
	if h.woken || h.engine == nil {
		return
	}
	h.woken = true
	life := h.life
	h.c.after(50*time.Microsecond, func() {
		h.woken = false
		if h.life == life {
			h.turn(false)
		}
	})
}

// ends is an engine that has ended by itself, or was killed at a point.
func (h *host) ends(err error) {
	if !h.dying && h.c.yields(h, err) {
		return
	}
	if !h.dying {
		h.c.violate("the engine has ended: %s", err)
		return
	}
	for _, c := range h.c.conns {
		c.pump() // what was sent is on its way
	}
	h.kill()
	h.c.after(h.c.between(0, 5*time.Second), h.revive)
}

func (h *host) turn(tick bool) {
	if h.engine == nil || h.stopped {
		return
	}
	if err := h.engine.Turn(tick); err != nil {
		h.ends(err)
		return
	}
	for h.watcher.Waiting() > 0 {
		line, _, _ := h.watcher.Next(context.Background())
		if line.GetSeq() <= h.seen {
			continue // told by the life before
		}
		h.seen = line.GetSeq()
		stands := strings.Contains(line.GetText(), standsText)
		unknown := strings.Contains(line.GetText(), unknownText)
		if stands || unknown {
			h.belief.reported = h.c.now
		}
		h.belief.stands = h.belief.stands || stands
		h.belief.unknown = unknown || h.belief.unknown && !strings.HasPrefix(line.GetText(), "job epoch ")
		o := h.c.oracle
		if o != nil && (line.GetKind() == "agent" || line.GetKind() == "journal") {
			o.heard = h.c.now // what was spooled, or held until all nodes were heard, comes now
		}
		h.log("[%s %d] %s", line.GetKind(), line.GetSeverity(), line.GetText())
	}
	h.c.conns = slices.DeleteFunc(h.c.conns, func(c *conn) bool {
		return !c.agentUp && !c.engUp
	})
	for _, c := range h.c.conns {
		c.pump()
	}
	if tick {
		h.c.judge.look()
	}
}

func (h *host) take(c *conn, f *falconv1.AgentFrame) {
	if err := h.engine.Frame(c.session, f); err == nil {
		h.wake()
	}
}

// standsText is what the engine says of a restart that a person had ordered and
// that it has given up, before it says what to do.
const standsText = "the job stands: "

// unknownText is what an engine says whose journal is older than the nodes, or lost, of a rank
// that has ended and that nobody describes: it acts on nobody, and says what to do.
const unknownText = "are described by no node and by no record"

// engineID names the next start of an engine: in no order, and alike in each run of a seed.
func (c *Cluster) engineID() string {
	c.engines++
	h := fnv.New64a()
	fmt.Fprintln(h, c.seed, c.engines)
	return fmt.Sprintf("%016x", h.Sum64())
}

// scratch is a directory in memory where the machine has one.
func scratch() (string, error) {
	base := "/dev/shm"
	if _, err := os.Stat(base); err != nil {
		base = ""
	}
	return os.MkdirTemp(base, "falcon-sim-")
}
