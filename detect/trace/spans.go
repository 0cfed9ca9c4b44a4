package trace

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// Bounds on spans that have begun and not ended.
const (
	maxNested   = 64      // on one lane
	maxOpen     = 1 << 17 // over all lanes
	maxOpenArgs = 4 << 10 // bytes of arguments kept with one; longer ones are left out
)

// openSpan is a span that has begun (ph "B") and waits for its end (ph "E").
type openSpan struct {
	name, cat string
	ts        json.Number
	args      json.RawMessage
}

func (c *chrome) beginSpan(e *event) error {
	k := laneKey{c.file, traceID(e.Pid), traceID(e.Tid)}
	if len(c.open[k]) >= maxNested || c.opened >= maxOpen {
		return fmt.Errorf("%w: more than %d spans on one lane, or %d in all, have begun and not ended",
			ErrTooLarge, maxNested, maxOpen)
	}
	if c.open == nil {
		c.open = map[laneKey][]openSpan{}
	}
	s := openSpan{name: e.Name, cat: e.Cat, ts: e.Ts}
	if len(e.Args) <= maxOpenArgs {
		s.args = bytes.Clone(e.Args)
	}
	c.open[k] = append(c.open[k], s)
	c.opened++
	return nil
}

// endSpan completes the lane's last open span; an end without a beginning is ignored.
func (c *chrome) endSpan(e *event) error {
	k := laneKey{c.file, traceID(e.Pid), traceID(e.Tid)}
	open := c.open[k]
	if len(open) == 0 {
		return nil
	}
	s := open[len(open)-1]
	c.opened--
	if c.open[k] = open[:len(open)-1]; len(open) == 1 {
		delete(c.open, k)
	}
	from, errFrom := s.ts.Float64()
	to, errTo := e.Ts.Float64()
	if errFrom != nil || errTo != nil {
		return malformed(0, "span %q: ts is out of range", clipField(s.name))
	}
	whole := event{
		Ph:   "X",
		Name: s.name,
		Cat:  s.cat,
		Ts:   s.ts,
		Pid:  e.Pid,
		Tid:  e.Tid,
		Args: s.args,
		Dur:  json.Number(strconv.FormatFloat(to-from, 'g', -1, 64)),
	}
	return c.takeEvent(&whole)
}
