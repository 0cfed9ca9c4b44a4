package record

import (
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"
)

// ErrPlace is wrapped by errors about a place that a recording does not have.
var ErrPlace = errors.New("record: no such place")

// Place is a point of a recording; the zero Place is its beginning.
type Place struct {
	kind  string // "", placeIteration, placeTime, placeEvent, placeIncident, placeEnd
	n     int64
	clock time.Duration // since midnight UTC
}

const (
	placeIteration = "iteration"
	placeTime      = "time"
	placeEvent     = "event"
	placeIncident  = "incident"
	placeEnd       = "end"
)

// ParsePlace reads "120" (an iteration), "14:02:11" (a time of day, UTC),
// "event:3" or "incident:1" (the third event, the first incident), "start" or
// "end".
func ParsePlace(text string) (Place, error) {
	text = strings.TrimSpace(text)
	switch text {
	case "", "start":
		return Place{}, nil
	case placeEnd:
		return Place{kind: placeEnd}, nil
	}
	for _, kind := range []string{placeEvent, placeIncident} {
		if rest, ok := strings.CutPrefix(text, kind); ok {
			n, err := strconv.ParseInt(strings.TrimPrefix(rest, ":"), 10, 32)
			if rest == "" {
				n, err = 1, nil
			}
			if err == nil && n >= 1 {
				return Place{kind: kind, n: n}, nil
			}
		}
	}
	if t, err := time.Parse("15:04:05", strings.TrimSuffix(text, "Z")); err == nil {
		return Place{
			kind:  placeTime,
			clock: time.Duration(t.Hour()*3600+t.Minute()*60+t.Second()) * time.Second,
		}, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
		return Place{kind: placeIteration, n: n}, nil
	}
	return Place{}, fmt.Errorf(
		"%w: %q; give an iteration, a time of day such as 14:02:11, event:N, incident:N, start or end",
		ErrPlace, text,
	)
}

// Find is the frame of a place.
func (r *Recording) Find(p Place) (int, error) {
	last := len(r.Moments) - 1
	switch p.kind {
	case placeEnd:
		return last, nil
	case placeIteration:
		return r.firstFrame(p, func(m Moment) bool { return m.Iteration >= p.n })
	case placeTime:
		at := r.Moments[0].At.UTC().Truncate(24 * time.Hour).Add(p.clock)
		if at.Before(r.Moments[0].At.Truncate(time.Second)) {
			at = at.Add(24 * time.Hour)
		}
		return r.firstFrame(p, func(m Moment) bool {
			return !m.At.Before(at)
		})
	case placeEvent:
		return r.nthFrame(p, func(m Moment) bool { return m.Event })
	case placeIncident:
		return r.nthFrame(p, func(m Moment) bool { return m.Incident })
	}
	return 0, nil
}

func (r *Recording) firstFrame(p Place, ok func(Moment) bool) (int, error) {
	i := sort.Search(len(r.Moments), func(i int) bool {
		return ok(r.Moments[i])
	})
	if i == len(r.Moments) {
		return 0, r.placeMissing(p)
	}
	return i, nil
}

func (r *Recording) nthFrame(p Place, ok func(Moment) bool) (int, error) {
	left := p.n
	for i, m := range r.Moments {
		if ok(m) {
			left--
		}
		if left == 0 {
			return i, nil
		}
	}
	return 0, r.placeMissing(p)
}

func (r *Recording) placeMissing(p Place) error {
	first := r.Moments[0]
	last := r.Moments[len(r.Moments)-1]
	return fmt.Errorf("%w: it has no such %s; it holds iterations %d to %d, %s to %s UTC", ErrPlace, p.kind,
		max(0, first.Iteration), last.Iteration, first.At.UTC().Format("15:04:05"),
		last.At.UTC().Format("15:04:05"))
}

// frameAfter is the frame that a command leads to from frame i.
func (r *Recording) frameAfter(i int, c Command) int {
	last := len(r.Moments) - 1
	switch c.kind {
	case doFrame:
		return max(0, min(last, i+c.n))
	case doEnds:
		if c.n > 0 {
			return last
		}
		return 0
	case doIteration:
		here := r.Moments[i].Iteration
		return r.searchFrame(i, c.n, func(m Moment) bool { return m.Iteration != here })
	case doEvent:
		return r.searchFrame(i, c.n, func(m Moment) bool { return m.Event })
	case doIncident:
		return r.searchFrame(i, c.n, func(m Moment) bool { return m.Incident })
	}
	return i
}

// searchFrame is the next frame in a direction that is ok, else the last there.
func (r *Recording) searchFrame(i, by int, ok func(Moment) bool) int {
	for k := i + by; k >= 0 && k < len(r.Moments); k += by {
		if ok(r.Moments[k]) {
			return k
		}
	}
	if by > 0 {
		return len(r.Moments) - 1
	}
	return 0
}
