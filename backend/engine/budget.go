package engine

import (
	"maps"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/fleet"
	"github.com/failslow/falcon/recovery"
)

// Bounds of what agents can have written to the journal: each record stays
// there.
const (
	linesBurst     = 256 // of one kind, of all nodes
	nodeLinesBurst = 64  // of one kind, of one node
	reportsBurst   = 16  // devices' own reports, of one node
	linesPeriod    = 10 * time.Second
	linesPeriodMax = 10 * time.Minute
	budgetsMost    = 2 * fleet.NodesMax
)

// budget is so many records in a period. Each period in which some were left
// out doubles the next one, so that a source that never stops costs little; a
// period without brings the first length back.
type budget struct {
	burst             int
	period            time.Duration
	since             time.Time
	admitted, leftOut int
}

// admit reports whether one more is within the budget, and how many were left
// out in the period that has just ended.
func (b *budget) admit(now time.Time) (ok bool, leftOut int) {
	if b.since.IsZero() {
		b.since, b.period = now, linesPeriod
	}
	if now.Sub(b.since) >= b.period || now.Before(b.since) {
		leftOut = b.leftOut
		if quiet := now.Sub(b.since) >= 2*b.period; quiet || leftOut == 0 {
			b.period = linesPeriod
		} else {
			b.period = min(2*b.period, linesPeriodMax)
		}
		b.since = now
		b.admitted = 0
		b.leftOut = 0
	}
	if b.admitted >= b.burst {
		b.leftOut++
		return false, leftOut
	}
	b.admitted++
	return true, leftOut
}

// lapsed reports whether nothing would be lost with it.
func (b *budget) lapsed(now time.Time) bool {
	return b.leftOut == 0 && now.Sub(b.since) >= b.period
}

// source is what a budget is of: a kind of line, of one node or of all ("").
type source struct {
	kind string
	node falcon.Node
}

// budgets are all of them. Nodes are known by their certificates, so that one
// node's flood leaves the others' lines alone.
type budgets struct {
	sender  falcon.Node // whose frame is being handled, "" = none
	lines   map[source]*budget
	devices map[falcon.Node]*deviceReports
}

func newBudgets() *budgets {
	return &budgets{
		lines:   map[source]*budget{},
		devices: map[falcon.Node]*deviceReports{},
	}
}

func (b *budgets) budgetOf(s source, burst int, now time.Time) *budget {
	got := b.lines[s]
	if got == nil {
		if len(b.lines) >= budgetsMost {
			maps.DeleteFunc(b.lines, func(_ source, v *budget) bool {
				return v.lapsed(now)
			})
		}
		got = &budget{burst: burst}
		b.lines[s] = got
	}
	return got
}

// deviceReports are the reports of one node's devices that are still signs.
type deviceReports struct {
	pace   budget
	recent map[reported]*repeats
}

type reported struct {
	device falcon.Device
	code   int
	fatal  bool
}

type repeats struct {
	since time.Time
	times int // besides the first
}

// repeatAfter is when the same report of the same device counts again: before
// the sign that the first one was has lapsed.
const repeatAfter = recovery.EventLife / 2

// report reports whether a device's report is to be acted on and written down:
// the same one counts once in repeatAfter, and a node has so many different ones
// in a period. Again is how often it came besides.
func (b *budgets) report(node falcon.Node, d recovery.Device, now time.Time) (ok bool, again int) {
	r := b.devices[node]
	if r == nil {
		r = &deviceReports{
			pace:   budget{burst: reportsBurst},
			recent: map[reported]*repeats{},
		}
		b.devices[node] = r
	}
	key := reported{d.Device, d.Code, d.Fatal}
	if was := r.recent[key]; was != nil {
		if now.Sub(was.since) < repeatAfter {
			was.times++
			return false, 0
		}
		again = was.times
	}
	if ok, _ = r.pace.admit(now); !ok {
		return false, 0
	}
	maps.DeleteFunc(r.recent, func(_ reported, v *repeats) bool {
		return now.Sub(v.since) >= repeatAfter
	})
	r.recent[key] = &repeats{since: now}
	return true, again
}
