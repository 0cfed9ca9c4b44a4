package columns

import falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"

// rebuildShare of the ranks have to differ for all views to be made anew in
// one block; below it each that differs is made alone, so that no old block
// is held for a few of its views and views take two blocks' room at most.
const rebuildShare = 4

// Views is the table as messages, by rank. Those of old, the views of prev,
// are used again where nothing has changed; both may be nil.
func (t *Table) Views(prev *Table, old []*falconv1.RankView) []*falconv1.RankView {
	if prev == nil || prev.world != t.world || len(old) != t.world {
		return t.all()
	}
	differs, n := t.differing(prev)
	switch {
	case n == 0:
		return old
	case n > t.world/rebuildShare:
		return t.all()
	}
	out := make([]*falconv1.RankView, t.world)
	for i := range out {
		if !differs[i] {
			out[i] = old[i]
			continue
		}
		out[i] = &falconv1.RankView{}
		t.fill(out[i], i)
	}
	return out
}

func (t *Table) all() []*falconv1.RankView {
	out, block := make([]*falconv1.RankView, t.world), make([]falconv1.RankView, t.world)
	for i := range out {
		out[i] = &block[i]
		t.fill(out[i], i)
	}
	return out
}

// differing says which ranks are not as in prev, and how many.
func (t *Table) differing(prev *Table) (differs []bool, n int) {
	differs = make([]bool, t.world)
	note := func(i int) {
		if !differs[i] {
			differs[i] = true
			n++
		}
	}
	for p := range places {
		a, b := t.values[p], prev.values[p]
		if same(a, b) {
			continue
		}
		for i := range differs {
			if at(a, i) != at(b, i) {
				note(i)
			}
		}
	}
	if !same(t.devices, prev.devices) {
		for i := range differs {
			if t.devices[i] != prev.devices[i] {
				note(i)
			}
		}
	}
	return differs, n
}

func (t *Table) fill(r *falconv1.RankView, i int) {
	v := &t.values
	r.Rank, r.Device = int32(i), t.devices[i]
	r.Health, r.Level, r.SlowSteps = falconv1.RankHealth(at(v[health], i)), at(v[level], i), at(v[slowSteps], i)
	r.Ms, r.Slowdown = float64(at(v[ms], i))/per[ms], float64(at(v[slowdown], i))/per[slowdown]
	r.SelfMs, r.SelfRatio = float64(at(v[selfMs], i))/per[selfMs], float64(at(v[selfRatio], i))/per[selfRatio]
	r.WaitMs, r.Probability = float64(at(v[waitMs], i))/per[waitMs], float64(at(v[probability], i))/per[probability]
	r.SmClockMhz, r.TemperatureC = uint32(max(0, at(v[smClockMhz], i))), uint32(max(0, at(v[temperatureC], i)))
	r.CnpPerS = float64(at(v[cnpPerS], i)) / per[cnpPerS]
	r.WaitStep, r.TemperatureStep, r.ClockStep, r.CnpStep = at(v[waitStep], i), at(v[temperatureStep], i), at(v[clockStep], i), at(v[cnpStep], i)
	r.Iteration, r.Failing = int64(at(v[iteration], i)), at(v[failing], i) != 0
}
