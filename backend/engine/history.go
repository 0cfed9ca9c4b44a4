package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/detect/history"
)

// watchedEvery is how much watched time is in no record at most: a crash forgets it.
const watchedEvery = 10 * time.Minute

// jobHistory records for how long the job was watched: what incidents have cost is
// judged against it.
type jobHistory struct {
	*shared

	status    *jobStatus
	at        time.Time // when the iteration below was first seen; zero before the first look
	iteration int64
	unwritten history.Watched
}

// tick takes a look at the job's iterations.
func (h *jobHistory) tick(now time.Time) {
	i := h.det.Steady().Iteration
	switch {
	case h.at.IsZero() || i < h.iteration:
		h.at, h.iteration = now, i // iterations of another numbering
		return
	case i == h.iteration:
		if now.Sub(h.at) > time.Second {
			h.noteEnd(now)
		}
		return
	}
	h.unwritten.Iterations += i - h.iteration
	h.unwritten.Ms += float64(min(now.Sub(h.at), h.status.standstill())) / 1e6
	h.at, h.iteration = now, i
	if h.state.past.Open() == 0 || h.unwritten.Ms >= float64(watchedEvery.Milliseconds()) {
		h.write(now)
	}
}

// noteEnd closes a job that has ended as it should.
func (h *jobHistory) noteEnd(now time.Time) {
	if h.state.past.Open() != 0 && h.status.current(now) == falcon.JobFinished {
		h.unwritten.Over = true
		h.write(now)
	}
}

// writeRest records what is in no record yet: an incident's cost is compared with it.
func (h *jobHistory) writeRest(now time.Time) {
	if h.unwritten.Iterations > 0 {
		h.write(now)
	}
}

// write records what was watched since the last record.
func (h *jobHistory) write(now time.Time) {
	h.unwritten.Name, h.unwritten.Kind, h.unwritten.World = h.cfg.JobName,
		h.cfg.JobKind,
		h.state.job.Layout.World()
	// folded in the order in which the journal has it
	h.batch.addRecords(record(now, kindWatched, h.unwritten))
	h.unwritten = history.Watched{}
}

// closePast notes when an incident's fault is over, and enters one that is closed into
// the history.
func (m *journalState) closePast(v falcon.Incident, atNs int64) {
	at := m.opened[v.ID]
	if !v.Open() && at.overNs == 0 {
		at.overNs = atNs
		m.opened[v.ID] = at
	}
	if v.State == falcon.IncidentClosed {
		m.past.Close(m.pastEntry(v))
	}
}

// again is an incident that changes: one that is back begins another occurrence, and one that was
// another's after all is as it was.
func (o opening) again(was, v falcon.Incident, atNs int64) opening {
	switch {
	case isBack(was, v):
		if o.firstNs == 0 {
			o.firstNs, _ = history.TimesOf(was, o.atNs, o.overNs)
		}
		o.before = o.occurrence
		o.occurrence = occurrence{atNs: atNs}
	case v.Times < was.Times:
		if o.occurrence = o.before; v.Times < 2 {
			o.firstNs = 0
		}
	}
	return o
}

// isBack reports whether an incident that was over is back.
func isBack(was, v falcon.Incident) bool {
	return v.Times > was.Times && !was.Open()
}

// incidentView is an incident as consoles see it, with its times by the clock.
func (m *journalState) incidentView(v falcon.Incident) *falconv1.Incident {
	out := convert.IncidentToProto(v)
	if at, known := m.opened[v.ID]; known {
		out.OnsetUnixNs, out.EndUnixNs = history.TimesOf(v, at.atNs, at.overNs)
		out.FirstOnsetUnixNs = at.firstNs
	}
	return out
}

// pastEntry is an incident as the history has it.
func (m *journalState) pastEntry(v falcon.Incident) history.Entry {
	at := m.opened[v.ID]
	e := history.EntryOf(v, at.atNs, at.overNs)
	e.Epoch = at.epoch
	e.Job = at.job
	e.Times = v.Times
	if at.firstNs != 0 {
		e.OnsetNs = at.firstNs
	}
	if cost, known := m.impacts[v.ID]; known {
		e.LostMs = cost.ImpactMs
		e.Counted = true
	}
	return e
}

// adoptPast enters closed incidents of a journal that was written before there was a
// history. When they ended is not known but by their iterations.
func (m *journalState) adoptPast() {
	for _, v := range m.incidents {
		if v.State != falcon.IncidentClosed || m.past.Has(v.ID) {
			continue
		}
		e := m.pastEntry(v)
		if e.EndNs == 0 {
			e.EndNs = e.OnsetNs + int64(float64(max(0, v.RelievedIteration-v.OnsetIteration))*v.SlowMs*1e6)
		}
		m.past.Close(e)
	}
}

func (m *journalState) putPast(put func(any)) {
	m.past.Parts(func(p history.Part) { put(p) })
}

func (m *journalState) takePast(item json.RawMessage) error {
	var p history.Part
	if err := json.Unmarshal(item, &p); err != nil {
		return err
	}
	return m.past.Take(p)
}

// lasting are the incidents that name a culprit and are not in the history yet.
func (m *journalState) lasting() []history.Entry {
	var out []history.Entry
	for _, v := range m.incidents {
		if v.State != falcon.IncidentClosed {
			e := m.pastEntry(v)
			if v.Open() {
				e.EndNs = 0
			}
			out = append(out, e)
		}
	}
	return out
}

// validationsOf are those of records, in their order.
func validationsOf(tests []validationRecord) []falcon.Validation {
	out := make([]falcon.Validation, len(tests))
	for i := range tests {
		out[i] = tests[i].Validation
	}
	return out
}

// Bounds of one answer.
const (
	pastDefault  = 100
	pastMost     = 512
	pastJobsMost = 128
	culpritsMost = 256
	culpritsShow = 64 // in a snapshot
	pathsMost    = 32
)

// History characterizes what is over in an engine. It answers from memory.
func History(ctx context.Context, e *Engine, q *falconv1.HistoryRequest) (*falconv1.HistoryReply, error) {
	limit := int(q.GetLimit())
	if limit < 0 ||
		limit > pastMost ||
		q.GetHalfLifeNs() < 0 ||
		q.GetSinceUnixNs() < 0 {
		return nil, fmt.Errorf("%w: give a limit of 1 to %d incidents, and no negative time",
			ErrInvalid, pastMost)
	}
	if limit == 0 {
		limit = pastDefault
	}
	var out *falconv1.HistoryReply
	err := e.readInLoop(ctx, func() {
		out = historyReply(&e.state.past, history.Query{
			NowNs:    e.cfg.Now().UnixNano(),
			SinceNs:  q.GetSinceUnixNs(),
			HalfLife: time.Duration(q.GetHalfLifeNs()),
			Lasting:  e.state.lasting(),
		}, limit)
		out.Paths = pathsToProto(history.Paths(validationsOf(e.state.tests), q.GetSinceUnixNs()))
		out.FailStops = failStopsToProto(history.FailStops(e.state.recoveries, q.GetSinceUnixNs()))
	})
	return out, err
}

// culpritCache holds what snapshots show of the history: counting thousands of incidents
// ten times a second would take the loop's time.
type culpritCache struct {
	at   time.Time
	of   string // what was counted
	list []*falconv1.Culprit
}

// culpritsEvery is how long scores may be old: they halve in days.
const culpritsEvery = 10 * time.Second

// culpritViews are for snapshots: what a culprit on screen was named for before.
func (sv *stateViews) culpritViews(now time.Time) []*falconv1.Culprit {
	lasting := sv.state.lasting()
	of := fmt.Sprint(sv.state.past.Closed())
	for i := range lasting {
		e := &lasting[i]
		of += fmt.Sprintf(" %s %t %v %v %v",
			e.Incident, e.EndNs == 0, e.Devices, e.Links, e.NICs)
	}
	c := &sv.culprits
	if of == c.of && now.Sub(c.at) < culpritsEvery {
		return c.list
	}
	c.at, c.of = now, of
	c.list = culpritsToProto(
		sv.state.past.Culprits(history.Query{
			NowNs:   now.UnixNano(),
			Lasting: lasting,
		}),
		culpritsShow,
	)
	for _, x := range c.list {
		x.Score = math.Round(100*x.Score) / 100 // as shown: a recording holds every change
	}
	return c.list
}
