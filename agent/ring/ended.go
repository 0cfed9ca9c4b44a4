package ring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon/agent/proof"
)

// EndedSuffix is what the name of an end record has behind that of the file.
const EndedSuffix = ".ended"

// End is a process's own mark that it ended in order. The zero value is none:
// it lives, was killed, or has a hook that does not mark it.
type End struct {
	AtNs   int64 // CLOCK_MONOTONIC
	Status int   // exit status, -1 where the mark was made before it was known
}

// InOrder reports whether there is a mark.
func (e End) InOrder() bool { return e.AtNs > 0 }

// exitMark reads a word; what no process exits with reads as not known.
func (m image) exitMark(at, status uint64) End {
	e := End{AtNs: max(m.readInt64(at), 0), Status: int(m.readInt32(status))}
	if e.Status < 0 || e.Status > 255 {
		e.Status = -1
	}
	if e.AtNs == 0 {
		return End{}
	}
	return e
}

// Ended is what a process that ended in order leaves for an agent that was away.
type Ended struct {
	Path               string
	UID                int // whose file that is
	Header             Header
	End                End
	Rank               int    // held last, by its newest placement; -1 unknown
	Place              uint64 // that placement's order, 0 = none
	PlaceIteration     int64
	Committed          Commitment
	Rejoined           uint64 // newest rejoin that succeeded, 0 = none
	Generation, GenNow uint64
	Iteration, StepTag int64
	TP, DP, PP         int
}

// Remove deletes the file; one that is gone already is fine.
func (e Ended) Remove() error {
	return Entry{Path: e.Path}.Remove()
}

// EndedIn lists what processes of a job (of all jobs when it is empty) have left
// in dir. bad are files that can't be read as such, with the reasons.
func EndedIn(dir, job string) (found []Ended, bad map[string]error, err error) {
	names, err := listFiles(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, path := range names {
		base, ok := strings.CutSuffix(path, EndedSuffix)
		entry, known := parseName(filepath.Split(base))
		if !ok || !known || (job != "" && entry.Job != FileJob(job)) {
			continue
		}
		e, err := readEnded(entry.Path + EndedSuffix)
		switch {
		case err == nil && e.Header.PID == entry.PID:
			found = append(found, e)
		case errors.Is(err, fs.ErrNotExist): // another agent took it
		default:
			if bad == nil {
				bad = map[string]error{}
			}
			bad[entry.Path+
				EndedSuffix] = errors.Join(err, fmt.Errorf("%w: %s is of process %d",
				ErrCorrupt, path, e.Header.PID))
		}
	}
	return found, bad, nil
}

func readEnded(path string) (Ended, error) {
	f, err := os.OpenFile(
		path,
		os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC,
		0,
	)
	if err != nil {
		return Ended{}, fmt.Errorf("ring: cannot open the end record of a training process: %w", err)
	}
	defer func() { _ = f.Close() }()
	var st unix.Stat_t
	b, err := io.ReadAll(io.LimitReader(f, endedBytes+1))
	if err = errors.Join(err, unix.Fstat(int(f.Fd()), &st)); err != nil {
		return Ended{}, fmt.Errorf("ring: cannot read %s: %w", path, err)
	}
	e, err := DecodeEnded(b)
	e.Path = path
	e.UID = int(st.Uid)
	return e, err
}

// endedMagicOlder is of hooks whose record ends before the proof of who has made it.
const (
	endedMagicOlder = 0x31444e45434c4146
	endedBytesOlder = endProcStart + 8
)

// endedSum is where the checksum of a record lies, by its size and magic number.
func endedSum(b []byte) (int, error) {
	size, check := endedBytes, endCheck
	if len(b) == endedBytesOlder {
		size, check = endedBytesOlder, endProcStart
	}
	magic := uint64(endedMagic)
	if size == endedBytesOlder {
		magic = endedMagicOlder
	}
	if len(b) != size ||
		binary.LittleEndian.Uint64(b[endMagic:]) != magic ||
		binary.LittleEndian.Uint32(b[endBytes:]) != uint32(size) {
		return 0, fmt.Errorf(
			"%w: the end record of a process has %d bytes, or does not start as one; remove it",
			ErrCorrupt, len(b),
		)
	}
	return check, nil
}

// DecodeEnded reads struct falcon_ended; the error wraps ErrCorrupt.
func DecodeEnded(b []byte) (Ended, error) {
	check, err := endedSum(b)
	if err != nil {
		return Ended{}, err
	}
	sum := fnv.New64a()
	sum.Write(b[:check])
	if sum.Sum64() != binary.LittleEndian.Uint64(b[check:]) {
		return Ended{}, fmt.Errorf("%w: the end record of a process is damaged; remove it", ErrCorrupt)
	}
	m := make(image, endedBytes+8) // its words are read as words
	copy(m, b[:check])
	e := Ended{
		Header: Header{
			PID:         int(m.readUint32(endPID)),
			Rank:        int(m.readInt32(endRank)),
			World:       int(m.readInt32(endWorld)),
			LocalRank:   int(m.readInt32(endLocalRank)),
			StartUnixNs: m.readInt64(endStartUnixNs),
			StartMonoNs: m.readInt64(endStartMonoNs),
			Job:         printableName(m.copyName(endJob)),
			Device:      printableName(m.copyName(endDevice)),
			Claim: proof.Claim{
				PID:   int(m.readUint32(endPID)),
				Start: m.readUint64(endProcStart),
				PIDNs: m.readUint64(endPIDNs),
			},
		},
		End:        m.exitMark(endEndedNs, endEndedStatus),
		Generation: m.readUint64(endGeneration),
		GenNow:     m.readUint64(endGenerationNow),
		Iteration:  m.readInt64(endIteration),
		StepTag:    m.readInt64(endStepTag),
		Rejoined:   m.readUint64(endRejoined),
		TP:         clampSize(m.readInt32(endTP)),
		DP:         clampSize(m.readInt32(endDP)),
		PP:         clampSize(m.readInt32(endPP)),
	}
	e.Committed = Commitment{
		Order:     m.readUint64(endCommittedOrder),
		Iteration: m.readInt64(endCommittedIteration),
		Status:    m.readInt32(endCommittedStatus),
		Resume:    max(m.readInt64(endResumeIteration), 0),
	}
	e.Rank = max(e.Header.Rank, -1)
	if order := m.readUint64(endPlaceOrder); order != 0 {
		e.Rank = max(int(m.readInt32(endPlaceRank)), -1)
		e.Place = order
		e.PlaceIteration = m.readInt64(endPlaceIteration)
	}
	if !e.End.InOrder() || e.Header.PID < 1 || e.Rank >= ranksMax {
		return Ended{}, fmt.Errorf("%w: the end record of a process says nothing that can be; remove it",
			ErrCorrupt)
	}
	return e, nil
}
