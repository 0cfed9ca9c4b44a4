package columns

import falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"

// Views is the table as messages, by rank, for clients that ask for ranks.
func (t *Table) Views() []*falconv1.RankView {
	out := make([]*falconv1.RankView, t.world)
	block := make([]falconv1.RankView, t.world)
	for i := range out {
		out[i] = &block[i]
		t.Fill(out[i], i)
	}
	return out
}

// Fill overwrites a view with what the table says of a rank, which it must have.
func (t *Table) Fill(r *falconv1.RankView, i int) {
	v := &t.values
	r.Rank, r.Device = int32(i), t.devices[i]
	r.Health = falconv1.RankHealth(valueAt(v[health], i))
	r.Level = valueAt(v[level], i)
	r.SlowSteps = valueAt(v[slowSteps], i)
	r.Ms, r.Slowdown = float64(valueAt(v[ms], i))/per[ms], float64(valueAt(v[slowdown], i))/per[slowdown]
	r.SelfMs = float64(valueAt(v[selfMs], i)) / per[selfMs]
	r.SelfRatio = float64(valueAt(v[selfRatio], i)) / per[selfRatio]
	r.WaitMs = float64(valueAt(v[waitMs], i)) / per[waitMs]
	r.Probability = float64(valueAt(v[probability], i)) / per[probability]
	r.SmClockMhz = uint32(max(0, valueAt(v[smClockMhz], i)))
	r.TemperatureC = uint32(max(0, valueAt(v[temperatureC], i)))
	r.CnpPerS = float64(valueAt(v[cnpPerS], i)) / per[cnpPerS]
	r.WaitStep = valueAt(v[waitStep], i)
	r.TemperatureStep = valueAt(v[temperatureStep], i)
	r.ClockStep = valueAt(v[clockStep], i)
	r.CnpStep = valueAt(v[cnpStep], i)
	r.Busy, r.SmBusy = uint32(max(0, valueAt(v[busy], i))), uint32(max(0, valueAt(v[smBusy], i)))
	r.Gauges = r.Gauges[:0]
	for g, column := range v[gauges:] {
		if x := valueAt(column, i); x > 0 {
			r.Gauges = append(r.Gauges, make([]uint32, g-len(r.Gauges))...)
			r.Gauges = append(r.Gauges, uint32(x))
		}
	}
	r.Iteration, r.Failing = int64(valueAt(v[iteration], i)), valueAt(v[failing], i) != 0
}
