// Package history keeps the course of one measure over a whole run in bounded memory, in several
// resolutions: fine buckets for what is recent, and for the whole run buckets that double in width
// whenever they would be too many.
//
// It guarantees that every bucket holds the least, the greatest and the mean of exactly the values
// that were added in its time, whatever was halved since, and that no level holds more than Most
// buckets. It takes time as an argument, starts no goroutine and does no I/O. A Series is not safe
// for concurrent use.
package history

import "time"

// Most is how many buckets a level holds.
const Most = 1024

// finest is the width of the narrowest buckets; each level's are stepUp times as wide as the one's below.
const (
	finest = time.Second
	stepUp = 8
	levels = 3 // that forget; one more holds the whole run
)

// Bucket is what was measured in a stretch of time.
type Bucket struct {
	Min, Max float64
	Sum      float64
	N        int64 // values; 0 = nothing was measured
}

// Mean is that of the values; 0 where there are none.
func (b Bucket) Mean() float64 {
	if b.N == 0 {
		return 0
	}
	return b.Sum / float64(b.N)
}

// join adds another bucket's values.
func (b *Bucket) join(x Bucket) {
	switch {
	case x.N == 0:
		return
	case b.N == 0:
		*b = x
		return
	}
	b.Min = min(b.Min, x.Min)
	b.Max = max(b.Max, x.Max)
	b.Sum += x.Sum
	b.N += x.N
}

// level is a row of buckets without gaps between them.
type level struct {
	width   time.Duration
	first   int64 // number of the oldest bucket, which begins at first × width
	buckets []Bucket
	halves  bool // when full: wider buckets; else the oldest go
}

// Series is the course of one measure. The zero Series is empty.
type Series struct {
	levels [levels + 1]level
	begun  bool
}

func (s *Series) begin() {
	width := finest
	for i := range s.levels {
		s.levels[i] = level{width: width, halves: i == levels}
		width *= stepUp
	}
	s.levels[levels].width = finest
	s.begun = true
}

// Add adds a value. One that is older than what a level still holds is in none of its buckets.
func (s *Series) Add(at time.Time, value float64) {
	s.AddSpread(at, value, value, value)
}

// AddSpread adds what several have measured at one moment: the least, the mean and the greatest.
func (s *Series) AddSpread(at time.Time, least, mean, greatest float64) {
	if !s.begun {
		s.begin()
	}
	for i := range s.levels {
		s.levels[i].add(at.UnixNano(), Bucket{least, greatest, mean, 1})
	}
}

func (l *level) add(at int64, x Bucket) {
	no := floorDiv(at, int64(l.width))
	if len(l.buckets) == 0 {
		l.first = no
	}
	switch {
	case no < l.first && l.halves:
		l.reach(no)
	case no < l.first:
		return
	case no-l.first >= Most:
		l.makeRoom(no)
	}
	no = floorDiv(at, int64(l.width)) // they may be wider now
	for int64(len(l.buckets)) <= no-l.first {
		l.buckets = append(l.buckets, Bucket{})
	}
	l.buckets[no-l.first].join(x)
}

// reach lets the level begin earlier.
func (l *level) reach(no int64) {
	for l.first+int64(len(l.buckets))-no > Most {
		l.halve()
		no = floorDiv(no, 2)
	}
	l.buckets = append(make([]Bucket, l.first-no, Most), l.buckets...)
	l.first = no
}

// makeRoom lets the level hold a bucket beyond its end.
func (l *level) makeRoom(no int64) {
	if l.halves {
		for no-l.first >= Most {
			l.halve()
			no = floorDiv(no, 2)
		}
		return
	}
	drop := no - l.first - Most + 1
	if drop >= int64(len(l.buckets)) {
		l.buckets = l.buckets[:0]
		l.first = no
		return
	}
	l.buckets = append(l.buckets[:0], l.buckets[drop:]...)
	l.first += drop
}

// halve joins the buckets two by two.
func (l *level) halve() {
	first := floorDiv(l.first, 2)
	n := 0
	for i, b := range l.buckets {
		to := int(floorDiv(l.first+int64(i), 2) - first)
		if to >= n {
			l.buckets[to] = b
			n = to + 1
			continue
		}
		l.buckets[to].join(b)
	}
	l.buckets = l.buckets[:n]
	l.first = first
	l.width = 2 * l.width
}

// Span is the time of which anything is held; ok is false of an empty series.
func (s *Series) Span() (from, to time.Time, ok bool) {
	l := &s.levels[levels]
	if len(l.buckets) == 0 {
		return from, to, false
	}
	newest := &s.levels[0] // whose end is exact
	return l.start(), newest.end(), true
}

func (l *level) start() time.Time {
	return time.Unix(0, l.first*int64(l.width))
}

func (l *level) end() time.Time {
	return time.Unix(0, (l.first+int64(len(l.buckets)))*int64(l.width))
}

// Columns is what was measured from one moment to another, cut into n stretches of equal length, from
// the widest buckets that are no wider than a stretch and are still held, else from the finest that
// are. A bucket that is wider than a stretch is in each that it touches.
func (s *Series) Columns(from, to time.Time, n int) []Bucket {
	out := make([]Bucket, max(0, n))
	if n <= 0 || !to.After(from) || !s.begun {
		return out
	}
	stretch := to.Sub(from) / time.Duration(n)
	l := s.levelFor(from, stretch)
	span := max(1, to.UnixMicro()-from.UnixMicro())
	wide := l.width > stretch
	width := l.width.Microseconds()
	for i, b := range l.buckets {
		if b.N == 0 {
			continue
		}
		// in whole numbers: no bucket slips over an edge by rounding
		begins := (l.first+int64(i))*width - from.UnixMicro()
		first := int(floorDiv(begins*int64(n), span))
		last := first
		if wide {
			last = int(floorDiv((begins+width-1)*int64(n), span))
		}
		for c := max(0, first); c <= min(last, n-1); c++ {
			out[c].join(b)
		}
	}
	return out
}

// levelFor chooses among the levels that hold all that is known since a moment.
func (s *Series) levelFor(from time.Time, stretch time.Duration) *level {
	whole := &s.levels[levels]
	var best *level
	for i := range s.levels {
		l := &s.levels[i]
		if len(l.buckets) == 0 ||
			l.start().After(from) && l.start().Add(-l.width).After(whole.start()) {
			continue
		}
		switch {
		case best == nil:
			best = l
		case l.width <= stretch && (best.width > stretch || l.width > best.width):
			best = l
		case best.width > stretch && l.width < best.width:
			best = l
		}
	}
	if best == nil {
		return whole
	}
	return best
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}
