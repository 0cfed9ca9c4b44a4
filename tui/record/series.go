package record

import (
	"fmt"
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

func (h heard) keepNewest(s *falconv1.Series) {
	if s == nil {
		return
	}
	if len(h) >= heardMost && h[s.Rank] == nil {
		clear(h)
	}
	h[s.Rank] = s
}

// packSeries leaves out of now the iterations that was has already; of those the
// chances, which the engine computes again from time to time, are changes.
func packSeries(was, now *falconv1.Series) *falconv1.RecordSeries {
	if !isWhole(now) {
		return &falconv1.RecordSeries{Series: now}
	}
	kept := overlap(was, now)
	rest := feed.Shallow(now)
	rest.Ms = now.Ms[kept:]
	rest.Probability = nil
	rest.MapRunLength = nil
	rest.Posterior = nil
	out := &falconv1.RecordSeries{
		Kept:    int32(kept),
		Series:  rest,
		Chances: changesOf(knownLevels(was, kept), levelsOf(now)),
	}
	if sameDecisions(was.GetDecisions(), now.GetDecisions()) {
		out.DecisionsKept, rest.Decisions = true, nil
	}
	return out
}

// sameDecisions reports whether two series have the same decisions, and any.
func sameDecisions(a, b []*falconv1.ChangeDecision) bool {
	return len(b) > 0 &&
		slices.EqualFunc(a, b, func(x, y *falconv1.ChangeDecision) bool {
			return proto.Equal(x, y)
		})
}

// overlap is how many of the newest columns of was are the oldest of now.
func overlap(was, now *falconv1.Series) int {
	if was == nil || was.RunLengths != now.RunLengths || !isWhole(was) {
		return 0
	}
	drop := int(now.FirstIteration - was.FirstIteration)
	n := min(len(was.Ms)-drop, len(now.Ms))
	if drop < 0 ||
		n <= 0 ||
		drop+n != len(was.Ms) ||
		!slices.Equal(was.Ms[drop:], now.Ms[:n]) {
		return 0
	}
	return n
}

// knownLevels are the levels of a series' newest columns.
func knownLevels(s *falconv1.Series, columns int) []int64 {
	if columns == 0 {
		return nil
	}
	all := levelsOf(s)
	return all[len(all)-columns*perColumn(s.RunLengths):]
}

// perColumn is how many numbers levels has of a column.
func perColumn(runLengths int32) int { return int(runLengths) + 2 }

// levelsOf are each column's P(r ≤ w), MAP run length and posterior, oldest first.
func levelsOf(s *falconv1.Series) []int64 {
	rows := int(s.RunLengths)
	out := make([]int64, 0, len(s.Ms)*perColumn(s.RunLengths))
	for i := range s.Ms {
		out = append(out, chanceLevel(s.Probability[i]), int64(s.MapRunLength[i]))
		for _, p := range s.Posterior[i*rows : (i+1)*rows] {
			out = append(out, chanceLevel(p))
		}
	}
	return out
}

// setLevels is levels' inverse, for a series that has its Ms alone.
func setLevels(s *falconv1.Series, all []int64) {
	n := perColumn(s.RunLengths)
	for ; len(all) >= n; all = all[n:] {
		s.Probability = append(s.Probability, chanceOf(all[0]))
		s.MapRunLength = append(s.MapRunLength, int32(all[1]))
		for _, l := range all[2:n] {
			s.Posterior = append(s.Posterior, chanceOf(l))
		}
	}
}

// changesOf turns was into now; what was does not have is 0.
func changesOf(was, now []int64) *falconv1.RecordChances {
	out := &falconv1.RecordChances{}
	skip := uint32(0)
	for i, n := range now {
		if i < len(was) {
			n -= was[i]
		}
		if n == 0 {
			skip++
			continue
		}
		out.Skip = append(out.Skip, skip)
		out.Delta = append(out.Delta, n)
		skip = 0
	}
	return out
}

// isWhole reports whether all parts of a series have the same number of columns.
func isWhole(s *falconv1.Series) bool {
	n := len(s.Ms)
	return len(s.Probability) == n &&
		len(s.MapRunLength) == n &&
		s.RunLengths >= 0 &&
		s.RunLengths <= maxLengths &&
		n <= maxColumns &&
		len(s.Posterior) == n*int(s.RunLengths)
}

// columnRange is a series with its columns [from, to) alone.
func columnRange(s *falconv1.Series, from, to int) *falconv1.Series {
	if !isWhole(s) {
		return proto.CloneOf(s)
	}
	out := feed.Shallow(s)
	rows := int(s.RunLengths)
	out.Ms, out.Probability, out.MapRunLength = s.Ms[from:to], s.Probability[from:to], s.MapRunLength[from:to]
	out.Posterior = s.Posterior[from*rows : to*rows]
	return out
}

// unpackSeries is pack's inverse.
func unpackSeries(was *falconv1.Series, d *falconv1.RecordSeries) (*falconv1.Series, error) {
	if d.Chances == nil {
		return d.Series, nil
	}
	kept := int(d.Kept)
	out := feed.Shallow(d.Series)
	if d.DecisionsKept {
		out.Decisions = was.GetDecisions()
	}
	if kept != 0 {
		if was == nil ||
			!isWhole(was) ||
			kept < 0 ||
			kept > len(was.Ms) ||
			was.RunLengths != out.RunLengths {
			return nil, fmt.Errorf("%w: a series that goes on from %d columns that it does not have",
				ErrFrame, kept)
		}
		out.Ms = slices.Concat(was.Ms[len(was.Ms)-kept:], out.Ms)
	}
	if len(out.Ms) > maxColumns || out.RunLengths < 0 || out.RunLengths > maxLengths {
		return nil, fmt.Errorf("%w: a series of %d columns and %d rows",
			ErrFrame, len(out.Ms), out.RunLengths)
	}
	all := make([]int64, len(out.Ms)*perColumn(out.RunLengths))
	copy(all, knownLevels(was, kept))
	if err := applyChanges(all, d.Chances); err != nil {
		return nil, err
	}
	out.Probability = nil
	out.MapRunLength = nil
	out.Posterior = nil
	setLevels(out, all)
	return out, nil
}

// applyChanges adds changes.
func applyChanges(all []int64, d *falconv1.RecordChances) error {
	if len(d.Skip) != len(d.Delta) {
		return fmt.Errorf("%w: %d values for %d numbers", ErrFrame, len(d.Delta), len(d.Skip))
	}
	at := 0
	for k, skip := range d.Skip {
		if at += int(skip); at >= len(all) {
			return fmt.Errorf("%w: number %d of %d", ErrFrame, at, len(all))
		}
		all[at] += d.Delta[k]
		at++
	}
	return nil
}

// fitState cuts a picture to what a screen wants of it, as the engine would.
func fitState(s *feed.State, w feed.Want) *feed.State {
	e := s.Snap.GetSeries()
	out := *s
	if !w.Recoveries {
		out.Recoveries, out.RecoveriesErr = nil, ""
	}
	if cut := fitSeries(e, w); cut != e {
		out.Snap = feed.Shallow(s.Snap)
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
	if isWhole(e) && n > int(w.Columns) {
		from := n - max(0, int(w.Columns))
		e = columnRange(e, from, n)
		e.FirstIteration += int64(from)
	}
	if !isWhole(e) || w.RunLengths >= e.RunLengths {
		return e
	}
	out := columnRange(e, 0, len(e.Ms))
	out.RunLengths, out.Posterior = w.RunLengths, foldTail(e, int(w.RunLengths))
	return out
}

// foldTail puts what is beyond the last row into it.
func foldTail(e *falconv1.Series, rows int) []float32 {
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
