package autopsy

import (
	"fmt"
	"math"
)

// Of a drift: iterations that take longer and longer, without a place where it begins.
const (
	driftBlocks = 8 // parts of a series whose medians are compared
	driftLeast  = 5 // points of a part
	// pairs of parts in order, less those that are not, of 28: by chance one of 5,000 series
	driftOrder  = 26
	driftChange = 0.08 // from the first part to the last
	driftTimes  = 6    // that change in units of what the parts differ from a line
	sureOfDrift = 0.7
)

// Drift is a series that grows steadily.
type Drift struct {
	First, Last float64 // medians of the first and the last part
	From        int     // the first point of the first part that is higher by the least change that counts
}

// drift finds steady growth by the order of the medians of equal parts (Mann and Kendall's test), which noise
// that lasts for less than a part does not imitate.
func drift(values []float64) *Drift {
	size := len(values) / driftBlocks
	if size < driftLeast {
		return nil
	}
	var parts [driftBlocks]float64
	for i := range parts {
		parts[i] = math.Log(median(values[i*size : (i+1)*size]))
	}
	inOrder := 0
	for i := range parts {
		for k := i + 1; k < driftBlocks; k++ {
			switch {
			case parts[k] > parts[i]:
				inOrder++
			case parts[k] < parts[i]:
				inOrder--
			}
		}
	}
	change := parts[driftBlocks-1] - parts[0]
	if inOrder < driftOrder ||
		change < math.Log1p(driftChange) ||
		change < driftTimes*offLine(parts[:]) {
		return nil
	}
	out := &Drift{First: math.Exp(parts[0]), Last: math.Exp(parts[driftBlocks-1])}
	for i := 1; i < driftBlocks && out.From == 0; i++ {
		if parts[i] >= parts[0]+math.Log1p(leastChange) {
			out.From = i * size
		}
	}
	return out
}

// offLine is the standard deviation of values from the straight line through them.
func offLine(values []float64) float64 {
	n := float64(len(values))
	var sx, sy, sxx, sxy float64
	for i, y := range values {
		x := float64(i)
		sx += x
		sy += y
		sxx += x * x
		sxy += x * y
	}
	slope := (n*sxy - sx*sy) / (n*sxx - sx*sx)
	at := (sy - slope*sx) / n
	sum := 0.0
	for i, y := range values {
		d := y - at - slope*float64(i)
		sum += d * d
	}
	return math.Sqrt(sum / (n - 2))
}

// drifting makes the opinion of a drift.
func (s Series) drifting(values []float64, d *Drift, noise float64) opinion {
	words := fmt.Sprintf("iterations take longer and longer: %.1f %% more at the end than at the beginning",
		100*(d.Last/d.First-1))
	o := opinion{
		kind:       KindSlow,
		rank:       orderSlow,
		confidence: sureOfDrift,
		judged:     true,
		slowdown:   d.Last / d.First,
		onset:      s.onset(d.From),
	}
	if s.Unit == "ms" {
		for _, v := range values {
			o.costS += max(0, v-d.First) / 1e3 * float64(max(1, s.Every))
		}
		words += fmt.Sprintf(" (%s, was %s)", ms(d.Last), ms(d.First))
	}
	o.summary = words
	p := s.Points[d.From]
	text := fmt.Sprintf("%s: %s; noise of a point %.2g %%, all of %d parts in order",
		s.Name, words, 100*noise, driftBlocks)
	o.findings = append(o.findings, Finding{
		Kind: "series",
		File: s.File,
		Line: p.Line,
		Time: timeOf(p),
		Text: text,
	})
	o.findings = append(o.findings, Finding{
		Kind: "column",
		File: s.File,
		Text: s.Name + ": " + s.Why,
	})
	o.next = []string{
		"look for what grows with the iterations: memory of the process and of the host, a cache, a list, the length of samples",
	}
	return o
}
