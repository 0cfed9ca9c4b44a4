package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/failslow/falcon"
)

// Size of a chart in text.
const (
	chartW = 96
	chartH = 8
)

// eighths fill a cell from below.
var eighths = []rune(" ▁▂▃▄▅▆▇█")

// Text draws the chart: iteration time from 0 up, below it the probability of
// a change, and the marks. A column of several iterations shows
// the slowest of them.
func (c *Chart) Text() string {
	per := (len(c.Ms) + chartW - 1) / chartW
	ms := slowestOf(c.Ms, per)
	p := slowestOf(c.Probability, per)
	top := max(slices.Max(ms), 1)
	var b strings.Builder
	for row := chartH - 1; row >= 0; row-- {
		label := ""
		switch row {
		case chartH - 1:
			label = fmt.Sprintf("%.0f ms", top)
		case 0:
			label = "0"
		}
		fmt.Fprintf(&b, "%9s │", label)
		for _, v := range ms {
			b.WriteRune(blockOf(float64(v)/float64(top)*chartH - float64(row)))
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%9s │%s\n%9s │", "marks", c.marksRow(per, len(ms)), "P(change)")
	for _, v := range p {
		b.WriteRune(blockOf(float64(v)))
	}
	fmt.Fprintf(&b,
		"\n%9s └ iteration %d to %d, %d a column; O onset, A applied, R reverted, X relief, E new job epoch; change where P is over %.2f\n",
		"", c.FirstIteration, c.FirstIteration+int64(len(c.Ms))-1, per, c.Threshold)
	if c.CutFrom != nil {
		fmt.Fprintf(&b,
			"%9s   begins %d iterations after the onset at iteration %d: older ones are no longer held\n",
			"", c.FirstIteration-*c.CutFrom, *c.CutFrom)
	}
	return b.String()
}

// blockOf is the block that fills a share of a cell.
func blockOf(share float64) rune {
	n := int(share*8 + 0.5)
	return eighths[max(0, min(8, n))]
}

func slowestOf(v []float32, per int) []float32 {
	var out []float32
	for chunk := range slices.Chunk(v, max(1, per)) {
		out = append(out, slices.Max(chunk))
	}
	return out
}

var letters = map[string]byte{
	"onset":    'O',
	"applied":  'A',
	"reverted": 'R',
	"relief":   'X',
	"epoch":    'E',
}

func (c *Chart) marksRow(per, columns int) string {
	row := []byte(strings.Repeat(" ", columns))
	for _, m := range c.Marks {
		at := int((m.Iteration - c.FirstIteration) / int64(max(1, per)))
		if m.Iteration >= c.FirstIteration && at < columns && letters[m.Kind] != 0 {
			row[at] = letters[m.Kind]
		}
	}
	return strings.TrimRight(string(row), " ")
}

// Stretch is the iteration time between two marks.
type Stretch struct {
	From, To int64 // last included
	After    string
	MedianMs float64
}

// Stretches are the medians between the marks: the recovery curve in numbers.
func (c *Chart) Stretches() []Stretch {
	marks := slices.Clone(c.Marks)
	slices.SortStableFunc(marks, func(a, b Mark) int {
		return int(a.Iteration - b.Iteration)
	})
	end := c.FirstIteration + int64(len(c.Ms))
	from, after := c.FirstIteration, c.lastBefore(marks)
	var out []Stretch
	put := func(to int64) {
		if to > from {
			out = append(out, Stretch{
				from,
				to - 1,
				after,
				medianOf(c.Ms[from-c.FirstIteration : to-c.FirstIteration]),
			})
		}
	}
	for _, m := range marks {
		if m.Iteration < from || m.Iteration >= end || letters[m.Kind] == 0 {
			continue
		}
		put(m.Iteration)
		from, after = m.Iteration, m.Kind
	}
	put(end)
	return out
}

// lastBefore is what had come last before the chart's first iteration.
func (c *Chart) lastBefore(marks []Mark) string {
	after := "before"
	if c.CutFrom != nil {
		after = "onset"
	}
	for _, m := range marks {
		if m.Iteration < c.FirstIteration &&
			letters[m.Kind] != 0 &&
			(c.CutFrom == nil || m.Iteration >= *c.CutFrom) {
			after = m.Kind
		}
	}
	return after
}

func medianOf(v []float32) float64 {
	ms := make([]float64, 0, len(v))
	for _, x := range v {
		if x > 0 { // 0 is not known
			ms = append(ms, float64(x))
		}
	}
	return falcon.Median(ms)
}
