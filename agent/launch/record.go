package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/failslow/falcon/agent/internal/ownfile"
)

// ErrRecord is wrapped where the record of what was started can't be used:
// then nothing is started.
var ErrRecord = errors.New("launch: bad record of earlier launches")

// Versions of the record: the one that is written, and the oldest that is read.
const (
	RecordVersion = recordVersion
	RecordOldest  = 1
)

const (
	recordVersion  = 2 // version 1 has no joins, and reads as such
	recordBytesMax = 64 << 10
	beingStarted   = -1 // in place of a process's number: it may or may not run
)

// record is what this node has started last.
type record struct {
	Version int    `json:"version"`
	Plan    Plan   `json:"plan"`
	Procs   []Proc `json:"procs"` // by index into Plan.Ranks
	Ended   bool   `json:"ended"` // by the agent: it failed, and is not taken up again
	Older   []kept `json:"older"` // processes of earlier generations that others have joined
	Place   string `json:"place"` // boot and PID namespace in which the numbers count, "" = not said
}

// kept is a process of an earlier generation.
type kept struct {
	Proc
	Rank       int    `json:"rank"`
	Generation uint64 `json:"generation"`
}

// Proc is a process for certain: numbers are used again, but not at one start.
type Proc struct {
	PID   int    `json:"pid"`   // 0 = not started, -1 = about to be
	Start uint64 `json:"start"` // clock ticks since boot
}

// readRecord reads the record; an absent one is empty.
func readRecord(path string) (record, error) {
	text, err := ownfile.Read(path, recordBytesMax)
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, nil
	}
	if errors.Is(err, ownfile.ErrForeign) {
		return record{}, fmt.Errorf("%w: %w; remove it once no process of the job runs here", ErrRecord, err)
	}
	if err != nil {
		return record{}, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	r, err := decodeRecord(text)
	if err != nil {
		return record{}, fmt.Errorf("%w: %s: %w; remove it once no process of the job runs here",
			ErrRecord, path, err)
	}
	return r, nil
}

// decodeRecord checks a record. Fields that it does not know are ignored, so that a newer
// agent may add some: a change that an older one must not miss raises the version.
func decodeRecord(text []byte) (record, error) {
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return record{}, err
	}
	switch {
	case r.Version < RecordOldest || r.Version > recordVersion:
		return record{}, fmt.Errorf("version %d, this agent writes %d", r.Version, recordVersion)
	case r.Plan.Generation == 0 ||
		len(r.Procs) != len(r.Plan.Ranks) ||
		len(r.Procs) > RanksMax:
		return record{}, fmt.Errorf("%d processes of %d ranks in generation %d",
			len(r.Procs), len(r.Plan.Ranks), r.Plan.Generation)
	}
	procs := r.Procs
	for _, o := range r.Older {
		procs = append(procs, o.Proc)
	}
	if len(r.Older) > RanksMax {
		return record{}, fmt.Errorf("%d processes of earlier generations, at most %d are possible",
			len(r.Older), RanksMax)
	}
	for _, p := range procs {
		if p.PID < beingStarted || p.PID == 1 || p.PID > pidMax {
			return record{}, fmt.Errorf("no process has number %d", p.PID)
		}
	}
	return r, nil
}

// writeRecord replaces the record at once: a reader sees the old one or the new one.
func writeRecord(path string, r record) error {
	r.Version = recordVersion
	text, err := json.Marshal(r)
	if err == nil {
		err = ownfile.ReplaceDurably(path, text)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRecord, err)
	}
	return nil
}
