package plain

import (
	"io"
	"iter"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
)

// Replay writes the stream of recorded pictures as Run would have written it,
// at once, then the incidents as far as the recording holds it. The summaries go by
// the times that come with the pictures.
func Replay(out io.Writer, pictures iter.Seq2[time.Time, *feed.State]) error {
	w := &writer{out: out}
	d := newDiff()
	kept := memory{}
	var last *feed.State
	var summary time.Time
	for at, s := range pictures {
		if summary.IsZero() {
			summary = at
		}
		for last != nil && at.Sub(summary) >= SummaryPeriod {
			summary = summary.Add(SummaryPeriod)
			w.printLines(Summary(last, summary))
		}
		w.printLines(d.linesOf(s)...)
		kept.keepState(s.Snap)
		last = s
		if w.err != nil {
			return w.err
		}
	}
	if last == nil || last.Received.IsZero() {
		return w.err
	}
	w.printLines(IncidentLines(kept.incidents(last.Snap))...)
	w.printLines(Recoveries(kept.recoveries)...)
	return w.err
}

// memory keeps the newest state of what a snapshot holds one of at a time.
type memory struct {
	ladders    map[string]*falconv1.Ladder
	recoveries []*falconv1.Recovery // newest first
}

func (m *memory) keepState(s *falconv1.SnapshotReply) {
	if m.ladders == nil {
		m.ladders = map[string]*falconv1.Ladder{}
	}
	for _, l := range append(s.GetOthers(), s.GetLadder()) {
		if l != nil {
			m.ladders[l.Incident] = l
		}
	}
	v := s.GetRecovery()
	switch {
	case v.GetId() == "":
	case len(m.recoveries) > 0 && m.recoveries[0].Id == v.Id:
		m.recoveries[0] = v
	default:
		m.recoveries = append([]*falconv1.Recovery{v}, m.recoveries...)
	}
}

func (m *memory) incidents(s *falconv1.SnapshotReply) *falconv1.IncidentsReply {
	r := &falconv1.IncidentsReply{Incidents: s.Incidents}
	for _, i := range s.Incidents {
		r.Ladders = append(r.Ladders, m.ladders[i.Id])
	}
	return r
}
