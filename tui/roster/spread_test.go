package roster

import (
	"testing"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// The spread is of the ranks that have measured anything; the others do not count as 0.
func TestSpreadOfWhatWasMeasured(t *testing.T) {
	snap := &falconv1.SnapshotReply{
		Job: &falconv1.Job{Tp: 1, Dp: 4, Pp: 1, World: 4},
		Ranks: []*falconv1.RankView{
			{Rank: 0, Device: "n0.g0", SmClockMhz: 1980, SelfRatio: 1},
			{Rank: 1, Device: "n0.g1"},
			{Rank: 2, Device: "n1.g0", SmClockMhz: 990, SelfRatio: 2},
			{Rank: 3, Device: "n1.g1", SmClockMhz: 1980},
		},
	}
	got := Make(snap, nil).Spreads()
	if want := (Spread{990, 1650, 1980, 3}); got.ClockMHz != want {
		t.Errorf("clocks %+v, want %+v", got.ClockMHz, want)
	}
	if want := (Spread{1, 1.5, 2, 2}); got.SelfRatio != want {
		t.Errorf("self times %+v, want %+v", got.SelfRatio, want)
	}
	if got.TemperatureC != (Spread{}) {
		t.Errorf("temperatures %+v of no reading", got.TemperatureC)
	}
}

func BenchmarkSpreads100k(b *testing.B) {
	snap := &falconv1.SnapshotReply{Job: &falconv1.Job{
		Tp:    1,
		Dp:    100_000,
		Pp:    1,
		World: 100_000,
	}}
	for i := range int32(100_000) {
		snap.Ranks = append(snap.Ranks, &falconv1.RankView{
			Rank:         i,
			SmClockMhz:   uint32(1900 + i%80),
			SelfRatio:    1,
			WaitMs:       2,
			TemperatureC: 60,
		})
	}
	t := Make(snap, nil)
	b.ReportAllocs()
	for b.Loop() {
		t.spreads = lazySpreads{}
		t.Spreads()
	}
}
