package engine

import (
	"bytes"
	"log/slog"
	"time"

	"github.com/failslow/falcon/backend/journal"
)

// Defaults of retention.
const (
	SnapshotBytesDefault = 64 << 20
	AuditAgeDefault      = 90 * 24 * time.Hour
	AuditRecordsDefault  = 100_000
	compactAtStart       = 1 << 20 // of records at a start: the next one is to read less
	snapshotsWorth       = 4       // size of the records that a snapshot of size 1 is made for
)

func (r Retention) snapshotBytes() int64 {
	return orElse(r.SnapshotBytes, SnapshotBytesDefault)
}

// auditKept says what stays for the audit.
func (r Retention) auditKept(now time.Time) journal.Keep {
	oldest := now.Add(-orElse(r.AuditAge, AuditAgeDefault)).UnixNano()
	return journal.Keep{
		Most: orElse(r.AuditRecords, AuditRecordsDefault),
		Record: func(r journal.Record) bool {
			return r.AtNs >= oldest && ofAudit(r)
		},
	}
}

// ofAudit reports whether a record says who decided what.
func ofAudit(r journal.Record) bool {
	switch r.Kind {
	case kindDecision, kindPolicy, kindFence:
		return true
	case kindEvent:
		return bytes.Contains(r.Body, []byte(`"audit":{`))
	}
	return false
}

// compact has a snapshot take the place of the journal's records once they are
// many. It never runs while something is being done with the job, as the loop
// is blocked for as long as it takes.
func (jw *journalWriter) compact(now time.Time, limit int64) {
	at := jw.cfg.Journal.Report()
	if at.Since < max(limit, snapshotsWorth*at.Snapshot, jw.unmade) || jw.atWork(now) {
		return
	}
	jw.unmade = 0
	if err := jw.cfg.Journal.Compact(
		now.UnixNano(),
		jw.state.snapshot(),
		jw.cfg.Retention.auditKept(now),
	); err != nil {
		jw.unmade = at.Since + limit/8
		jw.log.Error("no snapshot of the journal could be made", slog.Any("err", err))
		jw.oplog.logf("journal", 2, "",
			"no snapshot of the journal could be made; it is tried again when the journal has grown: %s",
			err)
		return
	}
	jw.log.Info(
		"the journal is compacted",
		slog.Int64("bytes", at.Since),
		slog.Int64("snapshot", jw.cfg.Journal.Report().Snapshot),
		slog.Duration("took", jw.cfg.Now().Sub(now)),
	)
}

// atWork reports whether the job is being worked on, or a batch is under way.
func (jw *journalWriter) atWork(now time.Time) bool {
	return !jw.arbiter.present(now).nothingDone() ||
		jw.held.round != nil ||
		!jw.batch.empty()
}
