package trace

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/failslow/falcon"
)

// Bounds on flight-recorder dumps.
const (
	MaxEntries   = 1 << 18 // of one dump; PyTorch keeps 2,000 by default
	MaxDumpBytes = 1 << 30 // of all dumps, as they are held
)

// ErrTwice says that one rank has two dumps. It wraps ErrMalformed.
var ErrTwice = fmt.Errorf("%w", ErrMalformed)

// Dump is what one rank's flight recorder held: the newest calls of its
// process groups, as PyTorch writes them: pickles, or JSON by dump_nccl_trace_json.
type Dump struct {
	Rank    int
	File    string
	Version string                 // of the format, "2.9"; empty where the dump does not say
	Groups  map[string]DumpGroup   // by name
	Status  map[string]GroupStatus // by name; groups without a known name are left out
	Entries []Entry                // in order of record

	byID map[string]GroupStatus // as recorded, by the rank's own number of the group
}

// GroupStatus is how far one rank's process group has come, by the group's last
// call: of a group with sends and receives these can be their numbers.
type GroupStatus struct {
	Enqueued, Completed int64 // -1 = none yet
}

// DumpGroup is one process group of a dump.
type DumpGroup struct {
	Desc  string
	Ranks []int // empty where the dump shortens the list
}

// EntryState says how far a call has come.
type EntryState uint8

// The states of a call.
const (
	EntryScheduled EntryState = iota // asked for by the host
	EntryStarted                     // on the device
	EntryCompleted
)

// Entry is one call of one rank.
type Entry struct {
	Record     int64
	Group      string // process group's name
	GroupID    string // the rank's own number of the group
	GroupDesc  string
	Seq        int64 // number of the collective in its group; coalesced calls share one
	PairSeq    int64 // number of the send or receive in its group
	Op         falcon.Op
	Name       string // as recorded, "nccl:all_reduce"
	State      EntryState
	DurationMs float64 // on the device; 0 where timing was off
	StartedNs  int64   // when the watchdog saw it started, 0 = not seen
	EndedNs    int64   // when the watchdog saw it completed, 0 = not seen
	CreatedNs  int64
	Elements   int64 // of the input, 0 = unknown
	Out        int64 // of the output
	Dtype      string
	PointToPnt bool
	Retired    bool   // the watchdog is done with it: it completed or failed
	Frame      string // innermost place outside PyTorch that called it, "step at train.py:12"
}

// UnmarshalJSON reads one entry of pg_config; ranks come as a list or its text.
func (g *DumpGroup) UnmarshalJSON(b []byte) error {
	var in struct {
		Desc  word     `json:"desc"`
		Ranks rankList `json:"ranks"`
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return nil //nolint:nilerror // older dumps hold other shapes here; members are then those seen calling
	}
	g.Desc, g.Ranks = clipField(string(in.Desc)), in.Ranks
	return nil
}

// rawEntry is the recorder's own shape.
type rawEntry struct {
	Record    loose     `json:"record_id"`
	GroupID   word      `json:"pg_id"`
	Group     []word    `json:"process_group"`
	Seq       loose     `json:"collective_seq_id"`
	OldSeq    loose     `json:"seq_id"` // version 1
	Name      word      `json:"profiling_name"`
	Created   int64     `json:"time_created_ns"`
	Duration  *float64  `json:"duration_ms"`
	In        [][]int64 `json:"input_sizes"`
	Out       [][]int64 `json:"output_sizes"`
	Dtypes    []word    `json:"input_dtypes"`
	State     word      `json:"state"`
	Started   *int64    `json:"time_discovered_started_ns"`
	Completed *int64    `json:"time_discovered_completed_ns"`
	P2P       bool      `json:"is_p2p"`
	PairSeq   loose     `json:"p2p_seq_id"`
	Retired   bool      `json:"retired"`
	Frames    []frame   `json:"frames"`
}

func (f *file) readEntry() error {
	var raw rawEntry
	if err := f.stream.decodeValue(&raw); err != nil {
		return err
	}
	if len(f.dump.Entries) >= MaxEntries {
		return fmt.Errorf("%w: more than %d entries in one dump", ErrTooLarge, MaxEntries)
	}
	e, err := raw.toEntry()
	if err != nil {
		return err
	}
	f.rec.bytes += 320 + int64(len(e.Name)+len(e.Group)+len(e.GroupDesc)+len(e.Frame))
	if f.rec.bytes > MaxDumpBytes {
		return fmt.Errorf("%w: more than %d bytes of dumps; give fewer ranks", ErrTooLarge, MaxDumpBytes)
	}
	f.dump.Entries = append(f.dump.Entries, e)
	return nil
}

func (raw *rawEntry) toEntry() (Entry, error) {
	e := Entry{
		Record:     raw.Record.n,
		Group:      groupName(string(raw.GroupID)),
		Seq:        raw.Seq.n,
		Name:       clipField(string(raw.Name)),
		CreatedNs:  raw.Created,
		Elements:   elements(raw.In),
		Out:        elements(raw.Out),
		PointToPnt: raw.P2P,
		GroupID:    clipField(string(raw.GroupID)),
		PairSeq:    raw.PairSeq.n,
		Retired:    raw.Retired,
		Frame:      callingPlace(raw.Frames),
	}
	if !raw.Seq.set {
		e.Seq = raw.OldSeq.n
	}
	if !raw.Seq.set && !raw.OldSeq.set {
		return e, malformed(0, "entry %d has no collective_seq_id; is this a flight-recorder dump?",
			raw.Record.n)
	}
	if len(raw.Group) > 0 {
		e.Group = groupName(string(raw.Group[0]))
	}
	if len(raw.Group) > 1 {
		e.GroupDesc = clipField(string(raw.Group[1]))
	}
	if len(raw.Dtypes) > 0 {
		e.Dtype = clipField(string(raw.Dtypes[0]))
	}
	e.Op, _ = OpOf(string(raw.Name))
	e.PointToPnt = e.PointToPnt || e.Op == falcon.OpSend || e.Op == falcon.OpRecv
	if raw.Duration != nil && isDuration(*raw.Duration) {
		e.DurationMs = *raw.Duration
	}
	if raw.Started != nil {
		e.StartedNs = *raw.Started
	}
	if raw.Completed != nil {
		e.EndedNs = *raw.Completed
	}
	if raw.isOver() {
		e.State = EntryCompleted
		return e, nil
	}
	switch raw.State {
	case "completed":
		e.State = EntryCompleted
	case "started":
		e.State = EntryStarted
	case "scheduled", "":
		e.State = EntryScheduled
	default:
		return e, malformed(0, "entry %d is in state %q, which is none of scheduled, started, completed",
			raw.Record.n, clipField(string(raw.State)))
	}
	return e, nil
}

// groupName leaves room for the hashes that PyTorch names groups by.
func groupName(s string) string { return clipToLength(s, 128) }

// elements multiplies out the sizes of all tensors, 0 where they overflow.
func elements(sizes [][]int64) int64 {
	total := int64(0)
	for _, dims := range sizes {
		n := int64(1)
		for _, d := range dims {
			if d < 0 || d > 1<<40 || n > 1<<40 {
				return 0
			}
			n *= d
		}
		if total += n; total > 1<<50 {
			return 0
		}
	}
	return total
}

// keepDump takes a dump in; its rank must be known and new.
func (f *file) keepDump() error {
	if f.rank < 0 || f.rank >= MaxWorld {
		return malformed(0, "the dump's rank is unknown; end the file's name with it, as in trace_rank3.json")
	}
	f.dump.Rank, f.dump.File = f.rank, f.name
	at, taken := slices.BinarySearchFunc(f.rec.dumps, f.rank, func(d Dump, rank int) int {
		return cmp.Compare(d.Rank, rank)
	})
	if taken {
		return fmt.Errorf("%w: rank %d has a dump already, %s; give one per rank",
			ErrTwice, f.rank, f.rec.dumps[at].File)
	}
	groups := make(map[string]DumpGroup, len(f.dump.Groups))
	for name, g := range f.dump.Groups {
		groups[groupName(name)] = g
		if len(g.Ranks) > 0 && (slices.Min(g.Ranks) < 0 || slices.Max(g.Ranks) >= MaxWorld) {
			return malformed(0, "process group %q names rank %d, which can't be",
				clipField(name), slices.Max(g.Ranks))
		}
		f.rec.bytes += int64(8 * len(g.Ranks))
	}
	f.dump.Groups = groups
	f.dump.nameGroups()
	f.rec.dumps = slices.Insert(f.rec.dumps, at, f.dump)
	return nil
}
