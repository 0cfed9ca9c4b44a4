package read

import (
	"strconv"
	"strings"

	"github.com/failslow/falcon/detect/autopsy"
)

// comms reads the table of DeepSpeed's comms logger with show_straggler: of each collective the
// time in it, and the part of it that is waiting for the last to arrive.
type comms struct {
	file  string
	open  bool
	op    string
	found []autopsy.Wait
}

// take reports whether the line is of the table.
func (c *comms) take(l *line) bool {
	body := strings.TrimSpace(l.body)
	if strings.HasPrefix(body, "Comm. Op") {
		c.open = strings.Contains(body, "Total straggler(ms)")
		return true
	}
	if !c.open || body == "" {
		return false
	}
	cells := strings.Fields(body)
	switch {
	case len(cells) == 1:
		c.op = clipped(cells[0])
		return true
	case len(cells) == commsCells && isDigit(body[0]):
		in, err1 := strconv.ParseFloat(cells[3], 64)
		waited, err2 := strconv.ParseFloat(cells[4], 64)
		if err1 == nil && err2 == nil && len(c.found) < itemsMost {
			c.found = append(c.found, autopsy.Wait{
				Op:     c.op,
				Size:   cells[0] + " " + cells[1],
				InMs:   in,
				WaitMs: waited,
				Source: l.source(c.file),
			})
		}
		return true
	}
	c.open = false
	return false
}

const commsCells = 7 // of a row: a size and its unit, a count and four times
