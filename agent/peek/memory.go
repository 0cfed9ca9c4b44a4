package peek

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/failslow/falcon/agent/internal/ownfile"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Bounds of what is remembered.
const (
	rememberedMost = 512 // processes
	endedMost      = 3   // that have ended, of one rank
	shownMost      = 2   // processes of one rank
	memoryMost     = 4 << 20
)

// Living is a process that the agent follows.
type Living struct {
	Path   string // of its shared memory
	MadeNs int64  // which file of that path
	PID    int
	UID    int
	Rank   int // -1 while unknown
}

// Known is where the outputs of a process go.
type Known struct {
	Path    string   `json:"path"`
	MadeNs  int64    `json:"made"`
	PID     int      `json:"pid"`
	UID     int      `json:"uid"`
	Rank    int      `json:"rank"`
	EndedNs int64    `json:"ended,omitempty"` // Unix ns, 0 = it runs
	Streams []Stream `json:"streams"`
	Looked  bool     `json:"looked"` // Streams are known
}

// Memory remembers where outputs go, beyond the ends of the processes and of the agent.
// It belongs to one goroutine.
type Memory struct {
	path    string
	known   []Known // oldest first
	read    bool
	changed bool // not written down so far
}

// NewMemory keeps its content in a file of the agent's own.
func NewMemory(path string) *Memory { return &Memory{path: path} }

// Follow takes what runs now, and returns the processes of which it is not known where
// their outputs go: Found takes that.
func (m *Memory) Follow(now time.Time, living []Living) (unknown []Living) {
	m.load()
	for _, l := range living {
		k := m.find(l)
		if k == nil {
			m.known = append(m.known, Known{
				Path:   l.Path,
				MadeNs: l.MadeNs,
				PID:    l.PID,
				UID:    l.UID,
				Rank:   l.Rank,
			})
			k = &m.known[len(m.known)-1]
			m.changed = true
		}
		if l.Rank >= 0 && k.Rank != l.Rank {
			k.Rank = l.Rank
			m.changed = true
		}
		if !k.Looked {
			unknown = append(unknown, l)
		}
	}
	for i := range m.known {
		k := &m.known[i]
		runs := slices.ContainsFunc(living, func(l Living) bool {
			return l.Path == k.Path && l.MadeNs == k.MadeNs
		})
		if !runs && k.EndedNs == 0 {
			k.EndedNs = now.UnixNano()
			m.changed = true
		}
	}
	m.forgetOldest()
	return unknown
}

// Found takes where a process's outputs go.
func (m *Memory) Found(l Living, streams []Stream) {
	for i := range m.known {
		if k := &m.known[i]; k.Path == l.Path && k.MadeNs == l.MadeNs {
			k.Streams = streams
			k.Looked = true
			m.changed = true
		}
	}
}

// Save writes down what has changed.
func (m *Memory) Save() error {
	if !m.changed {
		return nil
	}
	m.changed = false
	text, err := json.Marshal(m.known)
	if err != nil {
		return err
	}
	return ownfile.Replace(m.path, text)
}

func (m *Memory) find(l Living) *Known {
	for i := range m.known {
		k := &m.known[i]
		if k.Path == l.Path && k.MadeNs == l.MadeNs && k.EndedNs == 0 {
			return k
		}
	}
	return nil
}

func (m *Memory) forgetOldest() {
	ended := map[int]int{}
	for i := len(m.known) - 1; i >= 0; i-- {
		k := m.known[i]
		if k.EndedNs == 0 {
			continue
		}
		if ended[k.Rank]++; ended[k.Rank] > endedMost {
			m.known = slices.Delete(m.known, i, i+1)
		}
	}
	if n := len(m.known) - rememberedMost; n > 0 {
		m.known = slices.Delete(m.known, 0, n)
	}
}

// load takes what an earlier life of the agent has left; what can't be read is as nothing.
func (m *Memory) load() {
	if m.read {
		return
	}
	m.read = true
	text, err := ownfile.Read(m.path, memoryMost)
	var known []Known
	if err != nil || json.Unmarshal(text, &known) != nil || len(known) > rememberedMost {
		return
	}
	m.known = known
}

// Of is the newest process of a rank, one that runs before one that has ended, and behind it
// the one that ended last before it.
func (m *Memory) Of(rank int) []Known {
	m.load()
	var out []Known
	for _, k := range slices.Backward(m.known) {
		if k.Rank == rank {
			out = append(out, k)
		}
	}
	slices.SortStableFunc(out, func(a, b Known) int {
		return cmp.Compare(endOrNow(b), endOrNow(a))
	})
	return out[:min(len(out), shownMost)]
}

// Ranks are the ranks of the processes that are known, by their numbers; of one number the newest.
func (m *Memory) Ranks() map[int]int {
	m.load()
	out := map[int]int{}
	for _, k := range m.known {
		if k.Rank >= 0 {
			out[k.PID] = k.Rank
		}
	}
	return out
}

func endOrNow(k Known) int64 {
	if k.EndedNs == 0 {
		return math.MaxInt64
	}
	return k.EndedNs
}

// Tails reads the last lines of what processes have printed.
func Tails(proc string, of []Known, files []string, lines int) []*falconv1.PeekPart {
	var out []*falconv1.PeekPart
	for i, k := range of {
		for _, part := range k.tails(proc, files, lines) {
			if k.EndedNs != 0 && i > 0 {
				part.Source += fmt.Sprintf(" of process %d before", k.PID)
			}
			out = append(out, part)
		}
	}
	return out[:min(len(out), partsMost)]
}

func (k Known) tails(proc string, files []string, lines int) []*falconv1.PeekPart {
	p := process{uid: k.UID, streams: k.Streams, endedNs: k.EndedNs}
	if k.EndedNs == 0 {
		if now := Streams(proc, k.PID, files); len(now) > 0 { // it may have opened another file since
			p.pid = k.PID
			p.streams = now
		}
	}
	return p.tails(proc, lines)
}
