package engine

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/detect"
)

// What decided each alarm of a job arrives at a console to the last bit.
func TestDecisionsArriveBitForBit(t *testing.T) {
	m := detect.New(detect.Config{})
	now := time.Unix(1000, 0)
	m.Step(now, detect.Job{
		Epoch:     1,
		Layout:    falcon.Layout{TP: 1, DP: 2, PP: 1},
		Placement: falcon.Placement{"n0.g0", "n0.g1"},
	})
	rng := rand.New(rand.NewPCG(4, 4))
	seen := map[*detect.Decision]bool{}
	removed := 0
	for i := range int64(900) {
		ms := 100 * (1 + 0.01*rng.NormFloat64())
		if i%300 > 150 && i%300 < 230 {
			ms *= 1.4 // a slowdown
		}
		if i%97 < 3 && i > 50 {
			ms *= 2 // a burst
		}
		now = now.Add(time.Duration(ms * 1e6))
		m.Step(now, detect.Samples{
			Samples: []falcon.Sample{
				{Rank: 0, Iteration: i, Ms: ms},
				{Rank: 1, Iteration: i, Ms: ms * 0.999},
			},
		})
		m.Advance()
		for _, d := range m.Decisions() {
			if !seen[d] {
				seen[d] = true
				removed += checkWire(t, d)
			}
		}
	}
	if len(seen) < 20 || removed == 0 {
		t.Errorf("%d alarms, %d iterations removed", len(seen), removed)
	}
	if got := decisionsFrom(m.Decisions(), 0); len(got) != decisionsSent {
		t.Errorf("%d decisions are sent", len(got))
	}
	for _, d := range decisionsFrom(m.Decisions(), 800) {
		if d.DecidedIteration < 800 || d.Rank >= 0 && !d.Opened {
			t.Errorf("%+v is sent", d)
		}
	}
}

func checkWire(t *testing.T, d *detect.Decision) (removed int) {
	t.Helper()
	b, err := proto.Marshal(decisionToProto(d))
	if err != nil {
		t.Fatal(err)
	}
	var w falconv1.ChangeDecision
	if err := proto.Unmarshal(b, &w); err != nil {
		t.Fatal(err)
	}
	same := func(a, b float64) bool {
		return math.Float64bits(a) == math.Float64bits(b)
	}
	ok := w.By == string(d.By) &&
		w.Kind == string(d.Kind) &&
		int(w.Rank) == int(d.Rank) &&
		w.Iteration == d.Iteration &&
		w.DecidedIteration == d.DecidedAt &&
		same(w.BeforeMs, d.BeforeMs) &&
		same(w.AfterMs, d.AfterMs) &&
		int(w.Points) == d.Points &&
		w.Opened == d.Opened &&
		(w.Filter == nil) == (d.Filter == nil)
	if f := d.Filter; f != nil && ok {
		ok = same(w.Filter.Probability, f.PRecent) &&
			int(w.Filter.MapRunLength) == f.MAP &&
			same(w.Filter.MapProbability, f.PMAP) &&
			same(w.Filter.CentreMs, f.CentreMs) &&
			same(w.Filter.ScaleMs, f.ScaleMs) &&
			w.Filter.From == f.From &&
			int(w.Filter.Seen) == f.Seen &&
			w.Filter.Alarm == f.Alarm &&
			len(w.Filter.Chances) == len(f.Runs) &&
			len(w.Filter.Removed) == len(f.Removed)
		for i, r := range f.Runs {
			ok = ok &&
				same(w.Filter.Chances[i], r.P) &&
				int(w.Filter.RunLengths[i]) == r.Length
		}
		ok = ok &&
			slices.EqualFunc(
				w.Filter.Removed,
				f.Removed,
				func(a *falconv1.RemovedIteration, b detect.RemovedIteration) bool {
					return a.Iteration == b.Iteration &&
						same(a.Ms, b.Ms) &&
						same(a.AsMs, b.As)
				},
			)
		removed = len(f.Removed)
	}
	if !ok {
		t.Errorf("%+v arrives as %v", d, &w)
	}
	return removed
}
