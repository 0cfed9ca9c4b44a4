package evaltest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/peer"
	"github.com/failslow/falcon/detect/trace"
	"github.com/failslow/falcon/detect/trace/judge"
)

// profileDoc writes windows of an overlapped job as a profile file.
func profileDoc(t *testing.T, j *Overlapped, healthy map[string]any) map[string]any {
	t.Helper()
	const iterations = 4
	_, profiles := j.Window(iterations)
	ranks, selves := []int{}, []float64{}
	byOp := map[falcon.Op]map[string]any{}
	var groups []map[string]any
	for r, p := range profiles {
		ranks, selves = append(ranks, r), append(selves, max(p.SelfMs, 1e-6))
	}
	for k := range profiles[0].Calls {
		c := profiles[0].Calls[k]
		if byOp[c.Op] == nil {
			byOp[c.Op] = map[string]any{
				"dimension":    "dp",
				"ranks":        ranks,
				"op":           strings.ToLower(c.Op.String()),
				"bytes":        c.Bytes,
				"internode":    true,
				"durations_ms": [][]float64{},
				"starts_ms":    [][]float64{},
			}
			groups = append(groups, byOp[c.Op])
		}
		var durations, starts []float64
		for _, p := range profiles {
			durations, starts = append(durations, p.Calls[k].DurationMs), append(starts, p.Calls[k].StartMs)
		}
		g := byOp[c.Op]
		g["durations_ms"] = append(g["durations_ms"].([][]float64), durations)
		g["starts_ms"] = append(g["starts_ms"].([][]float64), starts)
	}
	doc := map[string]any{
		"layout":     map[string]int{"tp": 1, "dp": len(profiles), "pp": 1},
		"iterations": iterations,
		"groups":     groups,
		"self_ms":    selves,
	}
	if healthy != nil {
		doc["healthy"] = healthy
	}
	return doc
}

func judgeDoc(t *testing.T, doc map[string]any) judge.ProfileReport {
	t.Helper()
	b, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	p, err := trace.ReadProfile(strings.NewReader(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	r, err := judge.Profile(p, peer.Rules{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestProfileOfAnOverlappedJob(t *testing.T) {
	for _, sharded := range []bool{false, true} {
		j := NewOverlapped(sharded, 4, 3, 2)
		healthy := profileDoc(t, j, nil)
		if r := judgeDoc(t, healthy); r.Overlap == nil || len(r.Ranks) > 0 {
			t.Errorf("sharded %t: overlap %v, ranks %v of a healthy job", sharded, r.Overlap, r.Ranks)
		}
		j.Clock[3] = 0.5
		j.Window(2)
		r := judgeDoc(t, profileDoc(t, j, healthy))
		if len(r.Ranks) != 1 ||
			r.Ranks[0].Rank != 3 ||
			!strings.Contains(r.Ranks[0].Rule, "entered last") {
			t.Errorf("sharded %t: %+v", sharded, r.Ranks)
		}
	}
}
