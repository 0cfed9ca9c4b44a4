package cluster

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon/backend/engine"
	"github.com/failslow/falcon/backend/journal"
)

// upsets are what takes away neither a process nor a device, but what is believed of them:
// clocks that are wrong, machines that stand still for a while, journals that are older than
// what they tell of.
var upsets = []weighted{
	{"engine-step", 5},
	{"node-step", 3},
	{"engine-drift", 2},
	{"node-drift", 2},
	{"node-pause", 6},
	{"some-pause", 3},
	{"all-pause", 1},
	{"journal-back", 3},
	{"journal-lost", 1},
	{"engine-reboot", 2},
	{"engine-twice", 2},
	{"step-pause", 4},
}

// Bounds of upsets.
const (
	upsetEvery = 25 * time.Second // between two, in the mean
	pauseMost  = 60 * time.Second
	stepLeast  = time.Second
	stepMost   = 20 * 365 * 24 * time.Hour
)

// upsetKinds are those that are named, by commas, or all.
func upsetKinds(names string) (out []weighted) {
	for _, k := range upsets {
		if names == "all" || slices.Contains(strings.Split(names, ","), k.kind) {
			out = append(out, k)
		}
	}
	return out
}

// upsetting adds upsets of some kinds to a schedule.
func upsetting(seed uint64, kinds []weighted, injections []injection) []injection {
	rng := rand.New(rand.NewPCG(seed, 0x0b5e7))
	end := start
	if n := len(injections); n > 0 {
		end = injections[n-1].at
	}
	out := slices.Clone(injections)
	for at := start; ; {
		at += time.Duration(rng.ExpFloat64() * float64(upsetEvery))
		if at > end {
			break
		}
		d := injection{
			at:   at,
			kind: pick(rng, kinds),
			node: rng.IntN(8),
			rank: rng.IntN(64),
			flag: rng.IntN(2) == 0,
		}
		d.last = logBetween(rng, time.Second, pauseMost)
		if d.kind == "engine-step" || d.kind == "node-step" {
			d.last = logBetween(rng, stepLeast, stepMost)
		}
		out = append(out, d)
	}
	slices.SortStableFunc(out, func(a, b injection) int {
		return int(a.at - b.at)
	})
	return out
}

// logBetween draws a duration, each order of magnitude as often as the others.
func logBetween(rng *rand.Rand, lo, hi time.Duration) time.Duration {
	return time.Duration(float64(lo) * math.Exp(rng.Float64()*math.Log(float64(hi)/float64(lo)))).Round(
		time.Millisecond,
	)
}

// until is when an entry is over; a step's size is no time.
func (d injection) until() time.Duration {
	if d.kind == "engine-step" || d.kind == "node-step" {
		return d.at
	}
	return d.at + d.last
}

// upset carries one out.
func (c *Cluster) upset(d injection) {
	n := c.order[d.node%len(c.order)]
	switch d.kind {
	case "engine-step":
		c.stepClock(c.host.clock, d)
	case "node-step":
		c.stepClock(n.clock, d)
	case "engine-drift":
		c.driftClock(c.host.clock, d)
	case "node-drift":
		c.driftClock(n.clock, d)
	case "node-pause":
		n.pause(d.last, d.flag)
	case "some-pause", "all-pause":
		from := d.node % len(c.order)
		most := 2 + d.rank%(len(c.order)-2)
		if d.kind == "all-pause" {
			most = len(c.order)
		}
		for i := range most {
			c.order[(from+i)%len(c.order)].pause(
				d.last+time.Duration(i*(d.rank%5))*100*time.Millisecond,
				d.flag,
			)
		}
	case "journal-back":
		c.rollbacks++
		c.host.rollBack(d)
	case "engine-reboot":
		c.host.kill()
		c.host.clock.reboot()
		c.after(min(d.last, 20*time.Second), c.host.revive)
	case "journal-lost":
		c.rollbacks++
		c.host.kill()
		c.host.empty()
		c.after(min(d.last, 20*time.Second), c.host.revive)
	case "engine-twice":
		c.double(d)
	case "step-pause":
		c.armed = append(c.armed, d)
	default:
		c.violate("no entry is called %s", d.kind)
	}
}

func (c *Cluster) stepClock(k *clock, d injection) {
	if d.flag {
		k.step(-d.last)
	} else {
		k.step(d.last)
	}
}

// driftClock has a clock gain or lose 0.2 to 10 % for a while, or stand still.
func (c *Cluster) driftClock(k *clock, d injection) {
	rate := float64(1+d.rank%50) / 500
	switch {
	case d.flag && d.rank%8 == 0:
		rate = -1
	case d.flag:
		rate = -rate
	}
	k.drift(rate)
	c.after(d.last, func() { k.drift(0) })
}

// pause stops all that runs on a node for a while, as SIGSTOP of all of it does, or, with its
// kernel's clocks, as a live migration.
func (n *node) pause(last time.Duration, kernel bool) {
	if n.paused || !n.power {
		return
	}
	n.c.log("%s: paused for %v (its kernel too: %t)", n.name, last, kernel)
	n.paused, n.pausedAt = true, n.c.now
	if kernel {
		n.clock.stand()
	}
	n.pauses++
	no := n.pauses
	n.c.after(last, func() {
		if n.pauses == no {
			n.goOn()
		}
	})
}

// goOn ends a node's pause.
func (n *node) goOn() {
	if !n.paused {
		return
	}
	n.c.log("%s: goes on after a pause of %v", n.name, n.c.now-n.pausedAt)
	n.paused, n.resumedAt = false, n.c.now
	n.clock.run()
	for _, p := range n.procs {
		if p.alive && p.park.On {
			p.obeyStop()
		}
	}
	if n.agent != nil && !n.agent.stopped {
		n.agent.wake(0)
	}
}

// pausedLong reports whether the node stands long enough to be missed.
func (n *node) pausedLong() bool {
	return n.paused && n.c.now-n.pausedAt >= reachFor
}

// awhile is what the injections of a paused node wait for.
const awhile = 50 * time.Millisecond

// copyEvery is how often the journal's folder is copied, for what rolls it back.
const copyEvery = 10 * time.Second

// copied is the folder of a journal at a moment, by file name.
type copied struct {
	at    time.Duration
	files map[string][]byte
}

// keepCopies copies the journal's folder from time to time.
func (h *host) keepCopies() {
	if h.engine != nil && !h.dying {
		h.copies = append(h.copies, copied{h.c.now, h.readFiles()})
	}
	h.c.after(copyEvery, h.keepCopies)
}

func (h *host) readFiles() map[string][]byte {
	out := map[string][]byte{}
	for _, name := range h.fileNames() {
		b, err := os.ReadFile(filepath.Join(h.dir(), name))
		if err != nil {
			h.c.violate("%s", err)
		}
		out[name] = b
	}
	return out
}

func (h *host) dir() string { return filepath.Dir(h.path) }

func (h *host) fileNames() (out []string) {
	list, err := os.ReadDir(h.dir())
	if err != nil {
		h.c.violate("%s", err)
	}
	for _, e := range list {
		if e.Type().IsRegular() {
			out = append(out, e.Name())
		}
	}
	return out
}

// empty takes all files of the journal's folder away.
func (h *host) empty() {
	for _, name := range h.fileNames() {
		if err := os.Remove(filepath.Join(h.dir(), name)); err != nil {
			h.c.violate("%s", err)
		}
	}
	h.log("its state folder is empty")
}

// rollBack brings an earlier journal back: by the documented command, or by its files.
func (h *host) rollBack(d injection) {
	if len(h.copies) == 0 {
		return
	}
	h.kill()
	was := h.copies[len(h.copies)-1-d.rank%len(h.copies)]
	h.log("its journal is that of %v (restored: %t)", was.at, d.flag)
	if d.flag {
		h.restore(was)
	} else {
		h.empty()
		for name, b := range was.files {
			h.write(name, b)
		}
	}
	h.c.after(min(d.last, 20*time.Second), h.revive)
}

func (h *host) write(name string, b []byte) {
	if err := os.WriteFile(filepath.Join(h.dir(), name), b, 0o600); err != nil {
		h.c.violate("%s", err)
	}
}

// restore is falcon journal restore --force.
func (h *host) restore(was copied) {
	const backup = "backup.db"
	name := filepath.Base(h.path)
	h.write(backup, was.files[name])
	r, _, err := journal.Restore(filepath.Join(h.dir(), backup), h.path, true)
	if err == nil {
		err = engine.MarkLoss(h.path, h.clock.wall(), fmt.Sprintf("restored up to record %d",
			r.Head.Seq))
	}
	if err != nil {
		h.c.violate("a journal can't be restored: %s", err)
	}
	for _, name := range h.fileNames() {
		if filepath.Ext(name) != ".db" && filepath.Ext(name) != ".head" || name == backup {
			_ = os.Remove(filepath.Join(h.dir(), name))
		}
	}
}
