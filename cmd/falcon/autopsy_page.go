package main

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"os"
	"strings"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/autopsy"
)

//go:embed autopsy.html
var autopsyHTML string

var autopsyPage = template.Must(template.New("autopsy").Parse(autopsyHTML))

// chart is a series as the page draws it.
type chart struct {
	Name, File, Unit string
	Line             string // points of a polyline
	Onset            float64
	HasOnset         bool
	Low, High        string
	From, To         string
}

// The drawing's size, in its own units; the page scales it.
const (
	chartW    = 900
	chartH    = 160
	chartDots = 600 // a long series is drawn by the least and the largest value of each part
	chartMost = 6
)

// writeAutopsyPage writes an answer as one page that needs no other file.
func writeAutopsyPage(path string, a autopsy.Answer, facts *autopsy.Facts) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("can't write %s: %w", path, err)
	}
	err = renderAutopsy(file, a, facts)
	if closed := file.Close(); err == nil {
		err = closed
	}
	return err
}

func renderAutopsy(w io.Writer, a autopsy.Answer, facts *autopsy.Facts) error {
	var charts []chart
	for _, s := range facts.Series[:min(chartMost, len(facts.Series))] {
		charts = append(charts, chartOf(s, a))
	}
	cost := ""
	if a.CostS >= 1 {
		cost = falcon.DurationText(1e3 * a.CostS)
	}
	return autopsyPage.Execute(w, map[string]any{
		"Cost":    cost,
		"Answer":  a,
		"Charts":  charts,
		"Title":   strings.ToUpper(a.Kind),
		"W":       chartW,
		"H":       chartH,
		"Percent": fmt.Sprintf("%.0f %%", 100*a.Confidence),
	})
}

func chartOf(s autopsy.Series, a autopsy.Answer) chart {
	low := math.Inf(1)
	high := 0.0
	for _, p := range s.Points {
		low = min(low, p.Value)
		high = max(high, p.Value)
	}
	top := clippedTop(s, high)
	c := chart{
		Name: s.Name,
		File: s.File,
		Unit: s.Unit,
		Low:  fmt.Sprintf("%.4g", low),
		High: fmt.Sprintf("%.4g", top),
	}
	if len(s.Points) == 0 || !(top > low) {
		return c
	}
	x := func(i int) float64 {
		return float64(i) / math.Max(1, float64(len(s.Points)-1)) * chartW
	}
	var line strings.Builder
	stride := max(1, 2*len(s.Points)/chartDots)
	for from := 0; from < len(s.Points); from += stride {
		part := s.Points[from:min(len(s.Points), from+stride)]
		least := part[0].Value
		most := part[0].Value
		for _, p := range part {
			least = min(least, p.Value)
			most = max(most, p.Value)
		}
		for _, v := range []float64{least, most} {
			fmt.Fprintf(&line, "%.1f,%.1f ", x(from), chartH*(1-(min(v, top)-low)/(top-low)))
		}
	}
	c.Line = line.String()
	c.From = pointName(s, 0)
	c.To = pointName(s, len(s.Points)-1)
	if a.Onset != nil &&
		a.Onset.Index < len(s.Points) &&
		a.Kind == autopsy.KindSlow {
		c.Onset = x(a.Onset.Index)
		c.HasOnset = true
	}
	return c
}

// clippedTop keeps single points from flattening the rest.
func clippedTop(s autopsy.Series, high float64) float64 {
	total := 0.0
	for _, p := range s.Points {
		total += p.Value
	}
	return min(high, 4*total/math.Max(1, float64(len(s.Points))))
}

func pointName(s autopsy.Series, i int) string {
	if p := s.Points[i]; p.Iteration >= 0 {
		return fmt.Sprintf("iteration %d", p.Iteration)
	}
	return fmt.Sprintf("row %d", i)
}
