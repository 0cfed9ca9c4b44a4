package engine

import (
	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/learn"
	"github.com/failslow/falcon/recovery/restart"
)

// learntRecord is what nodes know that the journal did not: it is older than they are. Numbers are
// the highest that were used.
type learntRecord struct {
	Generation uint64 `json:"generation,omitempty"`
	Order      uint64 `json:"order,omitempty"`
	Command    uint64 `json:"command,omitempty"`
	// what the journal has in progress went on, or ended, without it
	Void bool `json:"void,omitempty"`
}

// foldEpoch folds a record of an engine's start, or of what it has learnt.
func foldEpoch(m *journalState, v epochRecord) {
	m.Epoch = v.Epoch
	if v.Engine != nil {
		m.Starts = keepNewest(append(m.Starts, *v.Engine), learn.StartsKept)
	}
	if l := v.Learnt; l != nil {
		if l.Generation > m.Generation {
			m.Lost = l.Generation
		}
		m.Generation = max(m.Generation, l.Generation)
		m.NextOrder = max(m.NextOrder, l.Order+1)
		m.Reserved = max(m.Reserved, l.Command+1)
		if l.Void {
			endOpen(m)
		}
	}
}

// olderJournal is why something that a journal has in progress is over.
const olderJournal = "the journal is older than the job: what became of this is not known"

// endOpen ends what was in progress when the journal was copied, and forgets signs that count for some
// time after they came: how long ago that was can't be told.
func endOpen(m *journalState) {
	clear(m.devices)
	for i := range m.recoveries {
		if v := &m.recoveries[i]; !v.State.Over() {
			v.State = falcon.RecoveryCancelled
			v.Reason = olderJournal
			v.DeadlineNs = 0
			v.AwaitsProof = false
			v.EndedNs = max(v.EndedNs, v.StartedNs)
		}
	}
	if m.restart.Active() {
		m.restart.Phase = restart.Over
		m.restart.Failed = olderJournal
		m.restart.Stop = nil
		m.restart.Next = nil
	}
	m.sent = nil
}

// newestStart is the newest start of an engine on the journal.
func (m *counters) newestStart() learn.Engine {
	if n := len(m.Starts); n > 0 {
		return m.Starts[n-1]
	}
	return learn.Engine{}
}
