package record

import (
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
)

// maxColumns and maxLengths bound a series that is put together from frames.
const (
	maxColumns = 4096
	maxLengths = 1024
)

// heard is the newest series of each rank, the writer's and the reader's
// alike: the worst rank may change with every picture, and back.
type heard map[int32]*falconv1.Series

// heardMost bounds it.
const heardMost = 64

func (h heard) keep(s *falconv1.Series) {
	if s == nil {
		return
	}
	if len(h) >= heardMost && h[s.Rank] == nil {
		clear(h)
	}
	h[s.Rank] = s
}

// diffSeries leaves out of now the columns that was had already; nil where
// nothing changed.
func diffSeries(was, now *falconv1.Series) *falconv1.RecordSeries {
	switch {
	case now == nil && was == nil, now != nil && proto.Equal(was, now):
		return nil
	case now == nil:
		return &falconv1.RecordSeries{None: true}
	}
	kept := overlap(was, now)
	out := columns(now, kept, len(now.Ms))
	out.Posterior = coarse(out.Posterior)
	return &falconv1.RecordSeries{Kept: int32(kept), Series: out}
}

// coarse rounds a posterior to one part in 8,000, and what is too small to be
// shown to 0: the rest is noise that fills the disk.
func coarse(p []float32) []float32 {
	const low, shown = 1 << 11, 1e-20
	out := make([]float32, len(p))
	for i, x := range p {
		if x >= shown {
			out[i] = math.Float32frombits((math.Float32bits(x) + low/2) &^ (low - 1))
		}
	}
	return out
}

// overlap is how many of the newest columns of was are the oldest of now.
func overlap(was, now *falconv1.Series) int {
	if was == nil || was.Rank != now.Rank || was.RunLengths != now.RunLengths || !whole(was) || !whole(now) {
		return 0
	}
	drop := int(now.FirstIteration - was.FirstIteration)
	n := min(len(was.Ms)-drop, len(now.Ms))
	if drop < 0 || n <= 0 || drop+n != len(was.Ms) {
		return 0
	}
	a, b := columns(was, drop, drop+n), columns(now, 0, n)
	if !slices.Equal(a.Ms, b.Ms) || !slices.Equal(a.Probability, b.Probability) ||
		!slices.Equal(a.MapRunLength, b.MapRunLength) || !slices.Equal(a.Posterior, b.Posterior) {
		return 0
	}
	return n
}

// whole says that all parts of a series have the same number of columns.
func whole(s *falconv1.Series) bool {
	n := len(s.Ms)
	return len(s.Probability) == n && len(s.MapRunLength) == n && s.RunLengths >= 0 && s.RunLengths <= maxLengths &&
		n <= maxColumns && len(s.Posterior) == n*int(s.RunLengths)
}

// columns is a series with its columns [from, to) alone.
func columns(s *falconv1.Series, from, to int) *falconv1.Series {
	if !whole(s) {
		return proto.CloneOf(s)
	}
	out := shallow(s)
	rows := int(s.RunLengths)
	out.Ms, out.Probability, out.MapRunLength = s.Ms[from:to], s.Probability[from:to], s.MapRunLength[from:to]
	out.Posterior = s.Posterior[from*rows : to*rows]
	return out
}

// applySeries is diffSeries backwards.
func applySeries(was *falconv1.Series, d *falconv1.RecordSeries) (*falconv1.Series, error) {
	switch {
	case d == nil:
		return was, nil
	case d.None || d.Series == nil:
		return nil, nil
	case d.Kept == 0:
		return d.Series, nil
	}
	kept := int(d.Kept)
	if was == nil || !whole(was) || !whole(d.Series) || kept < 0 || kept > len(was.Ms) ||
		was.RunLengths != d.Series.RunLengths || kept+len(d.Series.Ms) > maxColumns {
		return nil, fmt.Errorf("%w: a series that goes on from %d columns that it does not have", ErrFrame, kept)
	}
	old := columns(was, len(was.Ms)-kept, len(was.Ms))
	s := d.Series
	out := shallow(s)
	out.Ms, out.Probability = slices.Concat(old.Ms, s.Ms), slices.Concat(old.Probability, s.Probability)
	out.MapRunLength, out.Posterior = slices.Concat(old.MapRunLength, s.MapRunLength), slices.Concat(old.Posterior, s.Posterior)
	return out, nil
}

// fit cuts a picture to what a screen wants of it, as the engine would.
func fit(s *feed.State, w feed.Want) *feed.State {
	e := s.Snap.GetSeries()
	out := *s
	if !w.Recoveries {
		out.Recoveries, out.RecoveriesErr = nil, ""
	}
	if cut := fitSeries(e, w); cut != e {
		out.Snap = shallow(s.Snap)
		out.Snap.Series = cut
	}
	return &out
}

// fitSeries keeps the newest columns, and fewer run lengths with the rest in
// the last row; a series of another rank than the one wanted is none.
func fitSeries(e *falconv1.Series, w feed.Want) *falconv1.Series {
	if e == nil {
		return nil
	}
	if w.Rank >= 0 && w.Rank != e.Rank {
		return &falconv1.Series{Rank: w.Rank, Threshold: e.Threshold}
	}
	n := len(e.Ms)
	if whole(e) && n > int(w.Columns) {
		from := n - max(0, int(w.Columns))
		e = columns(e, from, n)
		e.FirstIteration += int64(from)
	}
	if !whole(e) || w.RunLengths >= e.RunLengths {
		return e
	}
	out := columns(e, 0, len(e.Ms))
	out.RunLengths, out.Posterior = w.RunLengths, fold(e, int(w.RunLengths))
	return out
}

// fold puts what is beyond the last row into it.
func fold(e *falconv1.Series, rows int) []float32 {
	var out []float32
	if rows <= 0 {
		return nil
	}
	for c := 0; c < len(e.Posterior); c += int(e.RunLengths) {
		col := slices.Clone(e.Posterior[c : c+rows])
		for _, p := range e.Posterior[c+rows : c+int(e.RunLengths)] {
			col[rows-1] += p
		}
		out = append(out, col...)
	}
	return out
}
