package main

import (
	"fmt"
	"io"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/bocd"
	"github.com/failslow/falcon/detect/trace/column"
	"github.com/failslow/falcon/detect/trace/logs"
)

// iterationsReport is the document of falcon detect iterations.
type iterationsReport struct {
	Points     int            `json:"points"`
	Format     string         `json:"format"`
	Column     string         `json:"column"`
	Unit       string         `json:"unit"` // of the column; all times in the report are milliseconds
	Why        string         `json:"why"`
	Notes      []string       `json:"notes"`
	BaselineMs float64        `json:"baseline_ms"`
	LevelMs    float64        `json:"level_ms"`
	Changes    []changeReport `json:"changes"`
	Jitters    []jitterReport `json:"jitters"`
}

type changeReport struct {
	Index       int     `json:"index"`               // row, from 0
	Iteration   *int64  `json:"iteration,omitempty"` // number in the file
	Kind        string  `json:"kind"`
	BeforeMs    float64 `json:"before_ms"`
	AfterMs     float64 `json:"after_ms"`
	Change      float64 `json:"change"`
	Probability float64 `json:"probability"`
	DetectedAt  int     `json:"detected_at"`
	known       *int64  // the iteration of DetectedAt
}

type jitterReport struct {
	Index       int     `json:"index"`
	Iteration   *int64  `json:"iteration,omitempty"`
	Probability float64 `json:"probability"`
	Change      float64 `json:"change"`
	DetectedAt  int     `json:"detected_at"`
}

func newIterationsReport(s logs.Series) iterationsReport {
	return iterationsReport{
		Format:  s.Format,
		Column:  s.Column,
		Unit:    s.Unit,
		Why:     s.Why,
		Notes:   append([]string{}, s.Notes...),
		Changes: []changeReport{},
		Jitters: []jitterReport{},
	}
}

func (r *iterationsReport) addChange(c bocd.Change, steps []int64) {
	step := func(row int) *int64 {
		if row < 0 || row >= len(steps) {
			return nil
		}
		return &steps[row]
	}
	if c.Kind == bocd.KindJitter {
		r.Jitters = append(r.Jitters, jitterReport{
			c.Index,
			step(c.Index),
			c.Probability,
			c.Change,
			c.DetectedAt,
		})
		return
	}
	r.Changes = append(r.Changes, changeReport{
		c.Index,
		step(c.Index),
		string(c.Kind),
		c.BeforeMs,
		c.AfterMs,
		c.Change,
		c.Probability,
		c.DetectedAt,
		step(c.DetectedAt),
	})
}

// leastPoints is the number of points for the scale and a verified change.
const leastPoints = 13

func printIterations(w io.Writer, r iterationsReport) error {
	fmt.Fprintf(w, "%s: column %s%s (%s)\n", r.Format, r.Column, inUnit(r.Unit), r.Why)
	for _, n := range r.Notes {
		fmt.Fprintf(w, "  %s\n", n)
	}
	if r.Points < leastPoints {
		_, err := fmt.Fprintf(w, "%d iterations, now %s: too few, a change needs at least %d\n",
			r.Points, r.text(r.LevelMs), leastPoints)
		return err
	}
	_, err := fmt.Fprintf(w, "%d iterations, baseline %s, now %s\n",
		r.Points, r.text(r.BaselineMs), r.text(r.LevelMs))
	if err == nil && len(r.Changes) == 0 {
		_, err = fmt.Fprintln(w, "no verified change")
	}
	for _, c := range r.Changes {
		if err != nil {
			break
		}
		_, err = fmt.Fprintf(w, "%-7s at %s: %s → %s (%+.1f %%), probability %.3f, detected at %s\n",
			c.Kind, where(c.Index, c.Iteration), r.text(c.BeforeMs), r.text(c.AfterMs),
			100*c.Change, c.Probability, where(c.DetectedAt, c.known))
	}
	if err == nil {
		_, err = fmt.Fprintf(w, "%d alarms rejected as jitter\n", len(r.Jitters))
	}
	return err
}

// text formats a duration, or a number if the series has no unit.
func (r *iterationsReport) text(ms float64) string {
	if r.Unit == "" {
		return fmt.Sprintf("%.4g", ms)
	}
	return falcon.DurationText(ms)
}

// where formats the iteration number, or the row if there is none.
func where(row int, iteration *int64) string {
	if iteration == nil {
		return fmt.Sprintf("row %d", row)
	}
	return fmt.Sprintf("iteration %d", *iteration)
}

// inUnit formats the unit of a column.
func inUnit(unit string) string {
	switch word := column.Unit(unit).Word(); {
	case word != "":
		return " in " + word
	case unit == "it/s":
		return " in iterations per second"
	case unit == "/s":
		return " per second"
	}
	return ""
}
