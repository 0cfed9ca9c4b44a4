package trace

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
)

// Bounds on what NCCL's RAS says.
const (
	MaxCommunicators = 1 << 16
	maxRASBytes      = 64 << 20 // of the list of communicators
)

// RAS is what NCCL's RAS subsystem says of a job, by ncclras -f json.
type RAS struct {
	Time  string
	Comms []RASComm
}

// RASComm is one communicator.
type RASComm struct {
	Hash    string
	Size    int
	Ranks   []RASRank // that answered
	Missing []RASRank
}

// RASRank is one rank of a communicator. Its number counts within it.
type RASRank struct {
	Rank      int
	Host      string
	Pid       int64
	Device    int64
	Calls     int64 // collectives asked for, of all kinds
	Counts    map[string]int64
	Dead      bool // RAS gave it up
	Silent    bool // it did not answer
	Error     int64
	Aborted   bool
	Finalized bool
}

type rawRASRank struct {
	Rank   loose `json:"rank"`
	Host   word  `json:"host"`
	Pid    loose `json:"pid"`
	Device loose `json:"cuda_dev"`
	Status struct {
		Error   loose `json:"async_error"`
		Final   bool  `json:"finalize_called"`
		Aborted bool  `json:"abort_flag"`
		Silent  bool  `json:"unresponsive"`
		Dead    bool  `json:"considered_dead"`
	} `json:"status"`
	Counts map[string]loose `json:"collective_counts"`
}

type rawRASComm struct {
	Hash    word         `json:"hash"`
	Second  word         `json:"secondary_hash"`
	Size    loose        `json:"size"`
	Ranks   []rawRASRank `json:"ranks"`
	Missing []rawRASRank `json:"missing_ranks"`
}

// readRASComm takes one communicator of the list.
func (f *file) readRASComm() error {
	var raw rawRASComm
	if err := f.stream.decodeValue(&raw); err != nil {
		return err
	}
	ras := &f.ras
	if len(ras.Comms) >= MaxCommunicators {
		return fmt.Errorf("%w: more than %d communicators", ErrTooLarge, MaxCommunicators)
	}
	c := RASComm{Hash: clipField(string(raw.Hash)), Size: int(raw.Size.n)}
	if raw.Second != "" {
		c.Hash += " " + clipField(string(raw.Second))
	}
	if c.Size < 0 ||
		c.Size > MaxWorld ||
		len(raw.Ranks)+len(raw.Missing) > MaxWorld {
		return malformed(0, "communicator %s has %d ranks, which can't be", c.Hash, raw.Size.n)
	}
	for _, r := range raw.Ranks {
		c.Ranks = append(c.Ranks, r.toRank())
	}
	for _, r := range raw.Missing {
		c.Missing = append(c.Missing, r.toRank())
	}
	f.rec.bytes += int64(200 * (len(c.Ranks) + len(c.Missing) + 1))
	if f.rec.bytes > MaxDumpBytes {
		return fmt.Errorf("%w: more than %d bytes of dumps", ErrTooLarge, MaxDumpBytes)
	}
	ras.Comms = append(ras.Comms, c)
	return nil
}

func (raw rawRASRank) toRank() RASRank {
	r := RASRank{
		Rank:      int(raw.Rank.n),
		Host:      clipField(string(raw.Host)),
		Pid:       raw.Pid.n,
		Device:    raw.Device.n,
		Counts:    map[string]int64{},
		Dead:      raw.Status.Dead,
		Silent:    raw.Status.Silent,
		Error:     raw.Status.Error.n,
		Aborted:   raw.Status.Aborted,
		Finalized: raw.Status.Final,
	}
	if !raw.Rank.set || r.Rank < 0 || r.Rank >= MaxWorld {
		r.Rank = unknown
	}
	for name, n := range raw.Counts {
		r.Counts[clipField(name)] = n.n
		r.Calls += n.n
	}
	return r
}

// keepRAS adds RAS's answer. Several answers of one job can be in a folder:
// the one with the most communicators counts.
func (f *file) keepRAS() error {
	for i := range f.ras.Comms {
		c := &f.ras.Comms[i]
		for _, list := range []*[]RASRank{&c.Ranks, &c.Missing} {
			*list = slices.DeleteFunc(*list, func(r RASRank) bool { return r.Rank == unknown })
			slices.SortFunc(*list, func(a, b RASRank) int {
				return cmp.Compare(a.Rank, b.Rank)
			})
		}
	}
	if f.rec.ras == nil || len(f.ras.Comms) > len(f.rec.ras.Comms) {
		f.rec.ras = &f.ras
	}
	return nil
}

// RAS is what RAS said, nil where no file holds that.
func (rec *Records) RAS() *RAS { return rec.ras }

// readRASMember takes what RAS says beside its communicators.
func (f *file) readRASMember(name string) error {
	if name == "communicators" {
		f.rased = true
		return f.stream.readList(name, f.readRASComm)
	}
	var raw json.RawMessage
	if err := f.stream.decodeValue(&raw); err != nil {
		return err
	}
	var w word
	if json.Unmarshal(raw, &w) == nil {
		f.ras.Time = clipField(string(w))
	}
	return nil
}
