package engine

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/journal"
	"github.com/failslow/falcon/backend/pace"
	"github.com/failslow/falcon/detect"
	"github.com/failslow/falcon/mitigate"
)

// paceKeeper keeps the job's iteration times, over job epochs and restarts of the engine: what
// a chart shows left of what the detector holds.
type paceKeeper struct {
	*shared
	recorder pace.Recorder
}

func (k *paceKeeper) add(it mitigate.Iteration, now time.Time) {
	k.recorder.Add(pace.Iteration{
		Index: it.Index,
		Ms:    it.Ms,
		AtNs:  now.UnixNano(),
		Epoch: k.state.job.Epoch,
	})
}

// usualMs is the median time of the newest iterations that are kept, over restarts; 0 = none is.
func (k *paceKeeper) usualMs() float64 {
	list := k.recorder.Before(math.MaxInt64, tookKept, &k.state.pace)
	if len(list) == 0 {
		return 0
	}
	ms := make([]float64, len(list))
	for i := range list {
		ms[i] = list[i].Ms
	}
	return falcon.Median(ms)
}

// tick has the journal keep what is in no record yet; a crash forgets it.
func (k *paceKeeper) tick(now time.Time) {
	if due := k.recorder.Due(now); len(due) > 0 {
		k.batch.addRecords(record(now, kindPace, due))
	}
}

func (m *journalState) foldPace(r journal.Record) error {
	var list []pace.Stretch
	if err := json.Unmarshal(r.Body, &list); err != nil {
		return err
	}
	return m.pace.Apply(list...)
}

func (m *journalState) putPace(put func(any)) {
	for _, s := range m.pace {
		put(s)
	}
}

func (m *journalState) takePace(item json.RawMessage) error {
	var s pace.Stretch
	if err := json.Unmarshal(item, &s); err != nil {
		return err
	}
	return m.pace.Apply(s)
}

// rowsMin is the fewest rows that the detector draws.
const rowsMin = 2

// series is drawn for one rank on request; a bounded piece of work. What is missing to columns
// are the job's times of before, without a posterior.
func (sv *stateViews) series(r falcon.Rank, columns, rows int) *falconv1.Series {
	status, _ := sv.det.Rank(r)
	out := &falconv1.Series{
		Rank:       int32(r),
		RunLengths: int32(rows),
		Threshold:  sv.cfg.threshold(),
		Window:     sv.cfg.window(),
		BaselineMs: status.BaselineMs,
		OfJob:      true,
	}
	cols := sv.det.Series(r, columns, max(rows, rowsMin))
	end := int64(math.MaxInt64)
	if len(cols) > 0 {
		end = cols[0].Iteration
	}
	past := sv.paces.recorder.Before(end, columns-len(cols), &sv.state.pace)
	c := chart{
		out:      out,
		most:     columns,
		rows:     rows,
		recorder: &sv.paces.recorder,
	}
	c.draw(past, cols, sv.state.job.Epoch)
	if len(out.Ms) > 0 {
		out.Decisions = decisionsFrom(sv.det.Decisions(), out.FirstIteration)
		out.Marks = append(out.Marks, sv.marks(out.FirstIteration)...)
		slices.SortStableFunc(out.Marks, func(a, b *falconv1.Mark) int {
			return cmp.Compare(a.Iteration, b.Iteration)
		})
	}
	return out
}

// momentEvery is how many iterations lie between two that have a time.
const momentEvery = 32

// chart puts a series together. On the wire a column's place is its iteration: one that no one
// knows has no time.
type chart struct {
	out      *falconv1.Series
	most     int
	rows     int
	recorder *pace.Recorder
	next     int64
	timed    int64 // newest iteration that has a time; -1 before the first
}

func (c *chart) draw(past []pace.Iteration, cols []detect.Column, epoch uint64) {
	last := falcon.NoIteration
	switch {
	case len(cols) > 0:
		last = cols[len(cols)-1].Iteration
	case len(past) > 0:
		last = past[len(past)-1].Index
	}
	first := last - int64(c.most) + 1
	past = slices.DeleteFunc(past, func(it pace.Iteration) bool { return it.Index < first })
	cols = slices.DeleteFunc(cols, func(x detect.Column) bool { return x.Iteration < first })
	switch {
	case len(past) > 0:
		first = past[0].Index
	case len(cols) > 0:
		first = cols[0].Iteration
	default:
		return
	}
	c.out.FirstIteration = first
	c.next = first
	c.timed = falcon.NoIteration
	for i, it := range past {
		if i > 0 {
			c.markBreak(past[i-1], it)
		}
		c.put(detect.Column{Iteration: it.Index, Ms: it.Ms}, it.AtNs)
	}
	if len(past) > 0 && len(cols) > 0 {
		c.markBreak(past[len(past)-1], pace.Iteration{
			Index: cols[0].Iteration,
			Epoch: epoch,
		})
	}
	for _, x := range cols {
		c.put(x, c.recorder.TimeOf(x.Iteration))
	}
}

// markBreak marks where an epoch of the job began, or this engine did.
func (c *chart) markBreak(before, it pace.Iteration) {
	switch {
	case before.Epoch != it.Epoch:
		c.out.Marks = append(c.out.Marks, &falconv1.Mark{
			Iteration: it.Index,
			Kind:      "epoch",
		})
	case before.Old && !it.Old:
		c.out.Marks = append(c.out.Marks, &falconv1.Mark{
			Iteration: it.Index,
			Kind:      "engine",
		})
	}
}

func (c *chart) put(x detect.Column, atNs int64) {
	for c.next < x.Iteration {
		c.column(detect.Column{})
	}
	c.column(x)
	if x.Alarm {
		c.out.Alarms = append(c.out.Alarms, x.Iteration)
	}
	if atNs > 0 && (c.timed < 0 || x.Iteration-c.timed >= momentEvery) {
		c.timed = x.Iteration
		c.out.Moments = append(c.out.Moments, &falconv1.Moment{
			Iteration: x.Iteration,
			UnixNs:    atNs,
		})
	}
}

func (c *chart) column(x detect.Column) {
	c.next++
	out := c.out
	out.Ms = append(out.Ms, float32(x.Ms))
	out.Probability = append(out.Probability, float32(x.Probability))
	out.MapRunLength = append(out.MapRunLength, int32(x.MAP))
	rows := make([]float32, c.rows)
	for i := range min(c.rows, len(x.Posterior)) {
		rows[i] = float32(x.Posterior[i])
	}
	out.Posterior = append(out.Posterior, rows...)
}

// chartMargin is how many iterations a report shows before the onset and after
// the relief.
const chartMargin = 40
