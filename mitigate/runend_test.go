package mitigate

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/failslow/falcon"
)

const runEndJob = `job epoch=1 tp=1 dp=4 pp=2 m=8,8,8,8 per=1 launch=true`

// slowJob is a job whose slow node is known, at iteration 90: 110 ms healthy, 200 ms now. A
// spare is there or not.
func slowJob(t *testing.T, job string, run int64, overheads map[falcon.Rung]float64) *script {
	sc := newScript(t)
	sc.p.cfg.RunIterations = run
	sc.p.cfg.OverheadsMs = overheads
	for _, cmd := range []string{
		job,
		"policy mode=approve cap=S4 owner=oncall S2=never S3=never drop=true variants=drop,replace",
		"iterations from=30 to=39 ms=110", "iterations from=40 to=90 ms=200",
		"incident id=INC-0001 state=located onset=40 relieved=-1 healthy=110 slow=200 cause=gpu_degradation devices=n1.g0",
	} {
		sc.play(cmd)
	}
	return sc
}

// choice is which variants of S4 the ladder offers, and the reasons of the others.
func choice(sc *script) (offered []falcon.Variant, reasons string) {
	for _, c := range sc.p.plans.candidates(sc.p.incidents.list[0]) {
		switch {
		case c.rung != falcon.RungS4:
		case c.err == nil:
			offered = append(offered, c.variant)
		default:
			reasons += string(c.variant) + ": " + c.err.Error() + "\n"
		}
	}
	return offered, reasons
}

func TestWhatRemainsOfTheRunDecides(t *testing.T) {
	// Replacing gains 90 ms an iteration and costs 30 s; dropping one of four replicas gains
	// 53.3 ms and costs 3 s.
	overheads := map[falcon.Rung]float64{falcon.RungS4: 30_000, costDrop: 3_000}
	spare := runEndJob + " spares=n8"
	cases := []struct {
		name, job string
		run       int64
		want      string
		reason    string
	}{
		{"not known: policy's list, cheapest first", spare, 0, "drop replace", ""},
		{
			"long", spare, 100_000, "replace",
			"drop: in the 99909 iterations that the run still has, S4 (replace) saves",
		},
		{
			"short", spare, 91 + 400, "drop",
			"replace: in the 400 iterations that the run still has, S4 (drop) saves",
		},
		{"long, without a spare", runEndJob, 100_000, "drop", "replace: no spare node is connected"},
		{
			"nearly over", spare, 91 + 50, "",
			"drop: the run ends in 50 iterations: it would save 2.7 s until then and costs 3.0 s",
		},
		{"over", spare, 91, "", "replace: the run ends in 0 iterations"},
		{"longer than it said", spare, 50, "", "replace: the run ends in 0 iterations"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, reasons := choice(slowJob(t, c.job, c.run, overheads))
			var names []string
			for _, v := range got {
				names = append(names, string(v))
			}
			if strings.Join(names, " ") != c.want || !strings.Contains(reasons, c.reason) {
				t.Errorf("offers %v, want %q; reasons:\n%s", names, c.want, reasons)
			}
		})
	}
}

// Played iteration by iteration, no other variant ends the run's work sooner than the one that is offered.
func TestTheChoiceAgainstARunThatIsPlayed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		left := rapid.Int64Range(0, 3000).Draw(rt, "left")
		restart := rapid.Float64Range(1, 60_000).Draw(rt, "restart")
		drop := rapid.Float64Range(1, 60_000).Draw(rt, "drop")
		sc := slowJob(
			t,
			runEndJob+
				" spares=n8",
			91+left,
			map[falcon.Rung]float64{falcon.RungS4: restart, costDrop: drop},
		)
		got, _ := choice(sc)
		ends := map[falcon.Variant]float64{
			"":                    0,
			falcon.VariantReplace: restart,
			falcon.VariantDrop:    drop,
		}
		for range left { // each of so many iterations of the healthy batch
			ends[""] += 200
			ends[falcon.VariantReplace] += 110
			ends[falcon.VariantDrop] += 110.0 * 4 / 3
		}
		best := falcon.Variant("")
		for _, v := range []falcon.Variant{falcon.VariantReplace, falcon.VariantDrop} {
			if ends[v] < ends[best] {
				best = v
			}
		}
		chosen := falcon.Variant("")
		if len(got) > 1 {
			rt.Fatalf("offers %v", got)
		}
		if len(got) == 1 {
			chosen = got[0]
		}
		if ends[chosen] > ends[best]+1e-6*(1+ends[best]) {
			rt.Errorf("%d left, restart %.0f, drop %.0f: chose %q (%.0f ms), %q ends after %.0f ms",
				left, restart, drop, chosen, ends[chosen], best, ends[best])
		}
	})
}

func TestARunsLengthIsChecked(t *testing.T) {
	if err := (Config{RunIterations: -1}).Check(); err == nil ||
		!strings.Contains(err.Error(), "run_iterations") {
		t.Error(err)
	}
	if err := (Config{
		RunIterations: 5,
		OverheadsMs:   map[falcon.Rung]float64{costDrop: 1},
	}).Check(); err != nil {
		t.Error(err)
	}
}
