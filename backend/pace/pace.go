package pace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Bounds.
const (
	Most        = 1024             // iterations that are held
	Every       = 20 * time.Second // between two records, at least
	PointsMost  = 48               // of one record
	stretchMost = 4                // of one record; of more the newest are kept
	booked      = 64               // stretches of the journal that are held
)

// Iteration is one iteration of the job: the time of its slowest rank.
type Iteration struct {
	Index int64
	Ms    float64
	AtNs  int64  // when the engine had it complete
	Epoch uint64 // of the job
	Old   bool   // known from a journal: a mean of several
}

// Recorder holds the newest iterations of a running engine.
type Recorder struct {
	recent  []Iteration // by index
	pending int         // of the newest, in no record yet
	due     time.Time
}

// Add takes one in. Those from its index on are replaced: the job runs them again.
func (r *Recorder) Add(it Iteration) {
	if it.Ms <= 0 || math.IsNaN(it.Ms) || math.IsInf(it.Ms, 0) {
		return
	}
	n, _ := find(r.recent, it.Index)
	r.pending = max(0, r.pending-(len(r.recent)-n))
	r.recent = append(r.recent[:n], it)
	if len(r.recent) > 2*Most { // cut now and then, as each cut copies
		r.recent = slices.Clone(r.recent[len(r.recent)-Most:])
	}
	r.pending = min(r.pending+1, Most, len(r.recent))
}

// Due are the stretches that are to be journalled now, none where the last record is too new.
func (r *Recorder) Due(now time.Time) []Stretch {
	if r.pending == 0 || now.Before(r.due) {
		return nil
	}
	rest := r.recent[len(r.recent)-r.pending:]
	r.pending = 0
	r.due = now.Add(Every)
	var out []Stretch
	per := (len(rest) + PointsMost - 1) / PointsMost
	for len(rest) > 0 {
		n := 1
		for n < len(rest) && follows(rest[n-1], rest[n]) {
			n++
		}
		out = append(out, stretchOf(rest[:n], per))
		rest = rest[n:]
	}
	return out[max(0, len(out)-stretchMost):]
}

func follows(a, b Iteration) bool {
	return b.Index == a.Index+1 && b.Epoch == a.Epoch
}

// Before are the newest n iterations before an index, oldest first: its own, and of a book
// those that are older. What is known of neither is left out.
func (r *Recorder) Before(index int64, n int, b *Book) []Iteration {
	end, _ := find(r.recent, index)
	own := r.recent[max(0, end-n, end-Most):end]
	if len(own) > 0 {
		index = own[0].Index
	}
	return append(b.before(index, n-len(own)), own...)
}

// TimeOf is when an iteration was complete, 0 where that is not known.
func (r *Recorder) TimeOf(index int64) int64 {
	if i, found := find(r.recent, index); found {
		return r.recent[i].AtNs
	}
	return 0
}

func find(list []Iteration, index int64) (int, bool) {
	return slices.BinarySearchFunc(list, index, func(it Iteration, i int64) int {
		switch {
		case it.Index < i:
			return -1
		case it.Index > i:
			return 1
		}
		return 0
	})
}

// Stretch is successive iterations of one job epoch, as a journal has them.
type Stretch struct {
	Epoch   uint64 `json:"epoch,omitempty"`
	First   int64  `json:"first"`
	N       int    `json:"n"`   // iterations
	Per     int    `json:"per"` // iterations of a point, the last of which may have fewer
	BeginNs int64  `json:"begin_unix_ns"`
	EndNs   int64  `json:"end_unix_ns"`
	Points  []byte `json:"points"` // mean time of each point, two bytes; see levelOf
}

func stretchOf(list []Iteration, per int) Stretch {
	last := list[len(list)-1]
	begin := list[0].AtNs
	out := Stretch{
		Epoch:   last.Epoch,
		First:   list[0].Index,
		N:       len(list),
		Per:     per,
		BeginNs: begin,
		EndNs:   max(begin, last.AtNs),
	}
	for chunk := range slices.Chunk(list, per) {
		sum := 0.0
		for _, it := range chunk {
			sum += it.Ms
		}
		out.Points = binary.BigEndian.AppendUint16(out.Points, levelOf(sum/float64(len(chunk))))
	}
	return out
}

// A point is a time on a logarithmic scale in steps of 0.1 % from 1 ns on: to 36 times the
// age of the universe.
const (
	levelStep = 0.001
	levelZero = 1e-6 // ms
)

func levelOf(ms float64) uint16 {
	return uint16(max(0, min(math.MaxUint16, math.Round(math.Log(ms/levelZero)/levelStep))))
}

func msOf(level uint16) float64 {
	return levelZero * math.Exp(levelStep*float64(level))
}

// ErrInvalid is wrapped by the refusal of a stretch that no recorder makes.
var ErrInvalid = errors.New("pace: invalid stretch")

func (s *Stretch) check() error {
	if s.N < 1 ||
		s.N > 2*Most ||
		s.Per < 1 ||
		s.Per > 2*Most ||
		s.First < 0 ||
		s.First > math.MaxInt64-4*Most ||
		s.EndNs < s.BeginNs ||
		s.BeginNs < 0 {
		return fmt.Errorf("%w: %d iterations from %d on, %d a point", ErrInvalid, s.N, s.First, s.Per)
	}
	if points := (s.N + s.Per - 1) / s.Per; len(s.Points) != 2*points {
		return fmt.Errorf("%w: %d bytes for %d points", ErrInvalid, len(s.Points), points)
	}
	return nil
}

// at is the i-th iteration; between begin and end they are taken to be equally long.
func (s *Stretch) at(i int) Iteration {
	at := s.BeginNs
	if s.N > 1 {
		at += int64(float64(s.EndNs-s.BeginNs) * float64(i) / float64(s.N-1))
	}
	return Iteration{
		Index: s.First + int64(i),
		Ms:    msOf(binary.BigEndian.Uint16(s.Points[2*(i/s.Per):])),
		AtNs:  at,
		Epoch: s.Epoch,
		Old:   true,
	}
}

// cutTo leaves the first n iterations.
func (s *Stretch) cutTo(n int) {
	s.EndNs = s.at(n - 1).AtNs
	s.N, s.Points = n, s.Points[:2*((n+s.Per-1)/s.Per)]
}

// Book is what a journal keeps. Its zero value is empty.
type Book []Stretch // by first iteration, none of which overlap

// Apply takes stretches in, all or none. Iterations from the first of each on are replaced.
func (b *Book) Apply(list ...Stretch) error {
	for i := range list {
		if err := list[i].check(); err != nil {
			return err
		}
	}
	for _, s := range list {
		b.add(s)
	}
	return nil
}

// add takes in a stretch that was checked.
func (b *Book) add(s Stretch) {
	list := *b
	for len(list) > 0 && list[len(list)-1].First >= s.First {
		list = list[:len(list)-1]
	}
	if n := len(list); n > 0 && list[n-1].First+int64(list[n-1].N) > s.First {
		list[n-1].cutTo(int(s.First - list[n-1].First))
	}
	*b = slices.Delete(append(list, s), 0, max(0, len(list)+1-booked))
}

// before are the newest n iterations before an index, oldest first.
func (b *Book) before(index int64, n int) []Iteration {
	var out []Iteration // newest first
	for k := len(*b) - 1; k >= 0 && len(out) < n; k-- {
		s := &(*b)[k]
		for i := min(int64(s.N), index-s.First) - 1; i >= 0 && len(out) < n; i-- {
			out = append(out, s.at(int(i)))
		}
	}
	slices.Reverse(out)
	return out
}
