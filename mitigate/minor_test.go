package mitigate

import (
	"testing"

	"github.com/failslow/falcon"
)

// A job that is 2 % slower is left as it is however long that lasts: no rung gains 3 %.
// At 5.6 % a rung is due once waiting has cost as much as taking it.
func TestMinorSlowdownsGoByPrice(t *testing.T) {
	play := func(slow, self, overheadS2 float64, n int64) *rig {
		r := newRig(Config{OverheadsMs: map[falcon.Rung]float64{falcon.RungS2: overheadS2}})
		job := fourReplicas(1, 8, 8, 8, 8)
		job.CanLaunch = true
		job.Spares = []falcon.Node{"spare"}
		for rank := range 4 {
			job.Placement = append(job.Placement, falcon.NewDevice(
				falcon.Node("n"+string(rune('0'+rank))),
				0,
			))
		}
		r.step(job, SetPolicy{falcon.Policy{
			Mode:  falcon.ModeAuto,
			Cap:   falcon.RungS4,
			Owner: "team",
		}})
		v := gpuIncident("INC-0001", 2, 0)
		v.HealthyMs = 80_000
		v.SlowMs = slow
		v.Verdict.Devices = []falcon.Device{job.Placement[2]}
		r.step(Incident{v}, Speeds{
			Incident: "INC-0001",
			SelfMs:   []float64{10_000, 10_000, self, 10_000},
		})
		r.iterations(0, n, slow)
		return r
	}
	actions := func(r *rig) (out []falcon.Rung) {
		for _, a := range r.newest {
			out = append(out, a.Rung)
		}
		return out
	}
	const day = 24 * 3600 / 80
	if r := play(81_600, 10_200, 500, day); len(actions(r)) > 0 {
		t.Errorf("+2 %% for a day: %v proposed", actions(r))
	}
	if r := play(84_500, 10_560, 1e12, 600/5); len(actions(r)) > 0 {
		t.Errorf("+5.6 %%: %v proposed before it has cost 600 s", actions(r))
	}
	if r := play(84_500, 10_560, 1e12, 600/4); len(actions(r)) != 1 || actions(r)[0] != falcon.RungS4 {
		t.Errorf("+5.6 %% that has cost more than 600 s: %v proposed, want S4; %v", actions(r), r.notes)
	}
}
