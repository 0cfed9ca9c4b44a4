package report

import (
	"fmt"
	"strings"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/phrase"
)

// Alarm is what decided an alarm, as it was then.
type Alarm struct {
	By        string       `json:"by"`   // "bocd", "reference", "shift", "early", "throughput", "windows"
	Kind      string       `json:"kind"` // "onset", "relief", "settled", "jitter": turned down
	Rank      int32        `json:"rank"` // -1: the job's series
	Iteration int64        `json:"iteration"`
	DecidedAt int64        `json:"decided_at_iteration"`
	BeforeMs  float64      `json:"before_ms"`
	AfterMs   float64      `json:"after_ms"`
	Points    int32        `json:"points"`
	Drift     bool         `json:"drift"`
	Opened    bool         `json:"opened"`
	Onset     int64        `json:"onset_iteration"`
	Window    uint64       `json:"window"`
	Ranks     []int32      `json:"ranks,omitempty"`
	Confirmed bool         `json:"confirmed_by_counters"`
	Filter    *FilterState `json:"filter,omitempty"`

	text, on string
}

// FilterState is the filter at that moment; chances are those of run_lengths.
type FilterState struct {
	Probability    float64   `json:"probability"`
	MapRunLength   int32     `json:"map_run_length"`
	MapProbability float64   `json:"map_probability"`
	CentreMs       float64   `json:"centre_ms"`
	ScaleMs        float64   `json:"scale_ms"`
	From           int64     `json:"from_iteration"`
	Seen           int32     `json:"seen"`
	RunLengths     []int32   `json:"run_lengths"`
	Chances        []float64 `json:"chances"`
	Removed        []Removed `json:"removed"`
}

// Removed is an iteration that the filter was fed as another time.
type Removed struct {
	Iteration int64   `json:"iteration"`
	Ms        float64 `json:"ms"`
	AsMs      float64 `json:"as_ms"`
}

// alarmsOf are the decisions at a chart's iterations.
func alarmsOf(c *falconv1.Series) []Alarm {
	last := c.GetFirstIteration() + int64(len(c.GetMs())) - 1
	var out []Alarm
	for _, d := range c.GetDecisions() {
		if d.GetIteration() > last {
			continue
		}
		a := Alarm{
			By:        d.GetBy(),
			Kind:      d.GetKind(),
			Rank:      d.GetRank(),
			Iteration: d.GetIteration(),
			DecidedAt: d.GetDecidedIteration(),
			BeforeMs:  d.GetBeforeMs(),
			AfterMs:   d.GetAfterMs(),
			Points:    d.GetPoints(),
			Drift:     d.GetDrift(),
			Opened:    d.GetOpened(),
			Onset:     d.GetOnset(),
			Window:    d.GetWindow(),
			Ranks:     d.GetRanks(),
			Confirmed: d.GetConfirming(),
			text:      phrase.Decided(d),
			on:        phrase.DecidedOn(d, c.GetWindow()),
		}
		if f := d.GetFilter(); f != nil {
			a.Filter = filterOf(f)
		}
		out = append(out, a)
	}
	return out
}

func filterOf(f *falconv1.FilterState) *FilterState {
	out := &FilterState{
		Probability:    f.GetProbability(),
		MapRunLength:   f.GetMapRunLength(),
		MapProbability: f.GetMapProbability(),
		CentreMs:       f.GetCentreMs(),
		ScaleMs:        f.GetScaleMs(),
		From:           f.GetFrom(),
		Seen:           f.GetSeen(),
		RunLengths:     f.GetRunLengths(),
		Chances:        f.GetChances(),
		Removed:        []Removed{},
	}
	for _, r := range f.GetRemoved() {
		out.Removed = append(out.Removed, Removed{r.GetIteration(), r.GetMs(), r.GetAsMs()})
	}
	return out
}

// writeAlarms lists what decided.
func (c *Chart) writeAlarms(b *strings.Builder) {
	if len(c.Alarms) == 0 {
		return
	}
	b.WriteString("\nWhat decided, as it was then:\n\n")
	for _, a := range c.Alarms {
		fmt.Fprintf(b, "- %s%s\n", markdown(a.text), markdown(phrase.Prefixed(". ", a.on)))
	}
}
