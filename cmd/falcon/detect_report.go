package main

import (
	"fmt"
	"io"

	"github.com/failslow/falcon/detect/bocd"
)

// iterationsReport is the document of falcon detect iterations.
type iterationsReport struct {
	Points     int            `json:"points"`
	Column     string         `json:"column"`
	BaselineMs float64        `json:"baseline_ms"`
	LevelMs    float64        `json:"level_ms"`
	Changes    []changeReport `json:"changes"`
	Jitters    []jitterReport `json:"jitters"`
}

type changeReport struct {
	Index       int     `json:"index"`
	Kind        string  `json:"kind"`
	BeforeMs    float64 `json:"before_ms"`
	AfterMs     float64 `json:"after_ms"`
	Change      float64 `json:"change"`
	Probability float64 `json:"probability"`
	DetectedAt  int     `json:"detected_at"`
}

type jitterReport struct {
	Index       int     `json:"index"`
	Probability float64 `json:"probability"`
	Change      float64 `json:"change"`
	DetectedAt  int     `json:"detected_at"`
}

func (r *iterationsReport) addChange(c bocd.Change) {
	if c.Kind == bocd.KindJitter {
		r.Jitters = append(r.Jitters, jitterReport{c.Index, c.Probability, c.Change, c.DetectedAt})
		return
	}
	r.Changes = append(r.Changes, changeReport{
		c.Index, string(c.Kind), c.BeforeMs, c.AfterMs, c.Change, c.Probability, c.DetectedAt,
	})
}

func printIterations(w io.Writer, r iterationsReport) error {
	_, err := fmt.Fprintf(w, "%d iterations, baseline %.4g ms, now %.4g ms\n", r.Points, r.BaselineMs, r.LevelMs)
	if err == nil && len(r.Changes) == 0 {
		_, err = fmt.Fprintln(w, "no verified change")
	}
	for _, c := range r.Changes {
		if err != nil {
			break
		}
		_, err = fmt.Fprintf(w, "%-7s at %d: %.4g → %.4g ms (%+.1f %%), probability %.3f, known at %d\n",
			c.Kind, c.Index, c.BeforeMs, c.AfterMs, 100*c.Change, c.Probability, c.DetectedAt)
	}
	if err == nil {
		_, err = fmt.Fprintf(w, "%d alarms turned down as jitter\n", len(r.Jitters))
	}
	return err
}
