package engine

import (
	"encoding/json"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/bars"
	"github.com/failslow/falcon/backend/journal"
	"github.com/failslow/falcon/backend/triage"
	"github.com/failslow/falcon/mitigate"
	"github.com/failslow/falcon/recovery"
	"github.com/failslow/falcon/recovery/restart"
)

// A snapshot is memory as the records of one: parts of one section each, in the
// sections' order. Folding it gives the memory that folding the records gave
// which it takes the place of.

// partBytes bounds a part, but for one that a single item fills.
const partBytes = 4 << 20

// part is the body of one of a snapshot's records.
type part struct {
	Section string            `json:"section"`
	Items   []json.RawMessage `json:"items"`
}

// section is one field of memory, or several that belong together.
type section struct {
	name string
	out  func(m *journalState, put func(any))
	in   func(m *journalState, item json.RawMessage) error
}

// entry is one of a map.
type entry[K comparable, V any] struct {
	Key   K `json:"key"`
	Value V `json:"value"`
}

func one[T any](name string, field func(*journalState) *T) section {
	return section{
		name: name,
		out:  func(m *journalState, put func(any)) { put(*field(m)) },
		in: func(m *journalState, item json.RawMessage) error {
			return json.Unmarshal(item, field(m))
		},
	}
}

func many[T any](name string, field func(*journalState) *[]T) section {
	return section{
		name: name,
		out: func(m *journalState, put func(any)) {
			for _, v := range *field(m) {
				put(v)
			}
		},
		in: func(m *journalState, item json.RawMessage) error {
			var v T
			err := json.Unmarshal(item, &v)
			*field(m) = append(*field(m), v)
			return err
		},
	}
}

func table[K ~string, V any](name string, field func(*journalState) map[K]V) section {
	return section{
		name: name,
		out: func(m *journalState, put func(any)) {
			in := field(m)
			for _, k := range sortedKeys(in) {
				put(entry[K, V]{k, in[k]})
			}
		},
		in: func(m *journalState, item json.RawMessage) error {
			var v entry[K, V]
			err := json.Unmarshal(item, &v)
			field(m)[v.Key] = v.Value
			return err
		},
	}
}

// sections are all of memory. The job comes before what is written by what it
// changes of the job.
var sections = []section{
	one("counters", func(m *journalState) *counters { return &m.counters }),
	one("policy", func(m *journalState) *policyRecord { return &m.policy }),
	{name: "job", out: func(m *journalState, put func(any)) { put(m.job) }, in: (*journalState).takeJob},
	{name: "clock", out: (*journalState).putClock, in: (*journalState).takeClock},
	many("aside", func(m *journalState) *[]uint64 { return &m.aside }),
	one("baseline", func(m *journalState) *baselineRecord { return &m.baseline }),
	one("overheads", func(m *journalState) *map[falcon.Rung]float64 { return &m.overheads }),
	one("restart", func(m *journalState) *restart.State { return &m.restart }),
	many("incidents", func(m *journalState) *[]falcon.Incident { return &m.incidents }),
	table("opened", func(m *journalState) map[string]opening { return m.opened }),
	many("actions", func(m *journalState) *[]falcon.Action { return &m.actions }),
	many("orders", func(m *journalState) *[]orderRecord { return &m.orders }),
	many("lost orders", func(m *journalState) *[]orderRecord { return &m.lostOrders }),
	table("decisions", func(m *journalState) map[string]DecisionRecord { return m.decisions }),
	table("decided", func(m *journalState) map[string]int64 { return m.decidedNs }),
	table("speeds", func(m *journalState) map[string]speedsRecord { return m.speeds }),
	table("impacts", func(m *journalState) map[string]mitigate.Impact { return m.impacts }),
	many("tests", func(m *journalState) *[]validationRecord { return &m.tests }),
	{name: "recoveries", out: (*journalState).putRecoveries, in: (*journalState).takeRecovery},
	{name: "fences", out: (*journalState).putFences, in: (*journalState).takeFences},
	table("devices", func(m *journalState) map[falcon.Node]recovery.Seen { return m.devices }),
	one("ended", func(m *journalState) *endedRecord { return &m.ended }),
	{name: "past", out: (*journalState).putPast, in: (*journalState).takePast},
	table("triage", func(m *journalState) map[string]*triage.Status { return m.triage }),
	table("stamps", func(m *journalState) map[string]actionTimes { return m.stamps }),
	table("bars", func(m *journalState) map[string]bars.Bar { return m.bars }),
	{name: "pace", out: (*journalState).putPace, in: (*journalState).takePace},
	{name: "sent", out: (*journalState).putSent, in: (*journalState).takeSent},
	{name: "events", out: (*journalState).putEvents, in: (*journalState).takeEvent},
}

// snapshot makes the parts.
func (m *journalState) snapshot() [][]byte {
	var out [][]byte
	for _, s := range sections {
		p := part{Section: s.name}
		size := 0
		flush := func() {
			if len(p.Items) > 0 {
				out = append(out, encode(p))
			}
			p.Items, size = nil, 0
		}
		s.out(m, func(v any) {
			item := encode(v)
			if size+len(item) > partBytes {
				flush()
			}
			p.Items = append(p.Items, item)
			size = size + len(item) + 1
		})
		flush()
	}
	return out
}

// foldPart folds one part of a snapshot in.
func (m *journalState) foldPart(body []byte) error {
	var p part
	if err := json.Unmarshal(body, &p); err != nil {
		return err
	}
	i := slices.IndexFunc(sections, func(s section) bool {
		return s.name == p.Section
	})
	if i < 0 {
		return fmt.Errorf("%w: section %q of a snapshot", errKind, p.Section)
	}
	var refused error
	for n, item := range p.Items {
		err := sections[i].in(m, item)
		switch {
		case err == nil:
		case sectionCarriesSafety(p.Section):
			return fmt.Errorf("section %s, item %d: %w", p.Section, n, err)
		case refused == nil:
			refused = fmt.Errorf("section %s, item %d: %w: %w", p.Section, n, errPassable, err)
		}
	}
	return refused
}

func (m *journalState) putClock(put func(any)) {
	if m.clock != nil {
		put(m.clock)
	}
}

func (m *journalState) takeClock(item json.RawMessage) error {
	return json.Unmarshal(item, &m.clock)
}

func (m *journalState) takeJob(item json.RawMessage) error {
	err := json.Unmarshal(item, &m.job)
	m.jobNodes = m.job.Placement.SortedNodes()
	return err
}

// putRecoveries writes each by what it changes of the job: their placements
// differ little from it.
func (m *journalState) putRecoveries(put func(any)) {
	for i := range m.recoveries {
		put(recoveryDelta(m.job, nil, m.recoveries[i]))
	}
}

func (m *journalState) takeRecovery(item json.RawMessage) error {
	v, err := foldDelta(item, func(d delta) (falcon.Recovery, error) {
		return d.recovery(m)
	})
	m.recoveries = append(m.recoveries, v)
	return err
}

func (m *journalState) putSent(put func(any)) {
	for _, v := range m.sent {
		put(m.sentDelta(v))
	}
}

func (m *journalState) takeSent(item json.RawMessage) error {
	v, err := foldDelta(item, func(delta) (sentRecord, error) {
		var d sentDelta
		if err := json.Unmarshal(item, &d); err != nil {
			return sentRecord{}, err
		}
		return d.whole(m)
	})
	m.sent = append(m.sent, v)
	return err
}

// fencesImage are the fences as a snapshot holds them.
type fencesImage struct {
	Nodes     map[falcon.Node]fenceRecord `json:"nodes"`
	Processes []string                    `json:"processes"` // oldest first
	Newest    uint64                      `json:"newest"`
}

func (m *journalState) putFences(put func(any)) {
	put(fencesImage{m.fences.nodes, m.fences.order, m.fences.newest})
}

func (m *journalState) takeFences(item json.RawMessage) error {
	v := fencesImage{Nodes: m.fences.nodes}
	if err := json.Unmarshal(item, &v); err != nil {
		return err
	}
	m.fences = newFences()
	for n, f := range v.Nodes {
		m.fences.nodes[n] = f
	}
	m.fences.order, m.fences.newest = v.Processes, v.Newest
	for _, name := range v.Processes {
		m.fences.names[name] = nodeOfProcess(name)
	}
	return nil
}

// eventImage is a line with its place in the journal.
type eventImage struct {
	Line   []byte `json:"line"` // protobuf
	Record uint64 `json:"record"`
	Hash   []byte `json:"hash"`
}

func (m *journalState) putEvents(put func(any)) {
	for i, line := range m.events {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(line)
		if err != nil {
			// texts were made valid when they were folded in
			panic(fmt.Sprintf("engine: encode line %d: %v", line.GetSeq(), err))
		}
		put(eventImage{b, m.places[i].record, m.places[i].hash[:]})
	}
}

func (m *journalState) takeEvent(item json.RawMessage) error {
	var v eventImage
	if err := json.Unmarshal(item, &v); err != nil {
		return err
	}
	line := &falconv1.EventLine{}
	at := place{record: v.Record}
	if err := proto.Unmarshal(v.Line, line); err != nil {
		return err
	}
	if copy(at.hash[:], v.Hash) != len(journal.Hash{}) {
		return fmt.Errorf("%w: line %d has no place", errDelta, line.GetSeq())
	}
	m.events = append(m.events, line)
	m.places = append(m.places, at)
	return nil
}

// MarshalJSON is for snapshots.
func (o opening) MarshalJSON() ([]byte, error) {
	return json.Marshal([7]uint64{
		uint64(o.atNs),
		o.epoch,
		uint64(o.overNs),
		o.job,
		uint64(o.firstNs),
		uint64(o.before.atNs),
		uint64(o.before.overNs),
	})
}

// UnmarshalJSON is for snapshots.
func (o *opening) UnmarshalJSON(b []byte) error {
	var v [7]uint64 // format 2 had the first two, falcons that knew no incident that is back four
	err := json.Unmarshal(b, &v)
	o.atNs, o.epoch, o.overNs, o.job = int64(v[0]), v[1], int64(v[2]), v[3]
	o.firstNs, o.before = int64(v[4]), occurrence{int64(v[5]), int64(v[6])}
	return err
}
