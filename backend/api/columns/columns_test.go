package columns

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// tableOf is a table of ranks in order, which follows another or nil.
func tableOf(version uint64, ranks []*falconv1.RankView, prev *Table) *Table {
	return tableOfVersion(version, ranks).After(prev)
}

func tableOfVersion(version uint64, ranks []*falconv1.RankView) *Table {
	t := Of(len(ranks), ranks)
	t.Version = version
	return t
}

// plain is the simple second way: every rank rounded by itself.
func plain(ranks []*falconv1.RankView) []*falconv1.RankView {
	down := func(x, per float64) float64 {
		return math.Floor(x*per+slack) / per
	}
	var out []*falconv1.RankView
	for _, r := range ranks {
		v := proto.CloneOf(r)
		v.Ms, v.WaitMs, v.SelfMs = down(r.Ms, 100), down(r.WaitMs, 100), down(r.SelfMs, 1000)
		v.Slowdown = down(r.Slowdown, 1e4)
		v.SelfRatio = down(r.SelfRatio, 1e4)
		v.Probability = down(r.Probability, 1e4)
		out = append(out, v)
	}
	return out
}

func randomRanks(rng *rand.Rand, n int) []*falconv1.RankView {
	out := make([]*falconv1.RankView, n)
	for i := range out {
		out[i] = &falconv1.RankView{
			Rank:         int32(i),
			Device:       string(rune('a' + i%26)),
			Health:       falconv1.RankHealth(rng.IntN(6)),
			Level:        rng.Int32N(7),
			Ms:           210 * (1 + 0.01*rng.NormFloat64()),
			Slowdown:     0.01 * rng.NormFloat64(),
			SelfMs:       rng.Float64() * 10,
			WaitMs:       rng.Float64() * 100,
			Probability:  rng.Float64(),
			SmClockMhz:   rng.Uint32N(2000),
			TemperatureC: rng.Uint32N(100),
			Iteration:    rng.Int64N(1 << 20),
			SelfRatio:    1 + rng.Float64(),
			SlowSteps:    rng.Int32N(3),
			Failing:      rng.IntN(9) == 0,
			Gauges:       someGauges(rng),
		}
	}
	return out
}

// someGauges are those of a rank, of which the last is known.
func someGauges(rng *rand.Rand) []uint32 {
	out := make([]uint32, rng.IntN(GaugesMost))
	for i := range out {
		out[i] = rng.Uint32N(3)
	}
	if n := len(out); n > 0 {
		out[n-1] = 1 + rng.Uint32N(700)
	}
	return out
}

// change alters a share of the ranks, and all iterations by one.
func change(rng *rand.Rand, ranks []*falconv1.RankView, share float64) []*falconv1.RankView {
	fresh := randomRanks(rng, len(ranks))
	out := make([]*falconv1.RankView, len(ranks))
	for i, r := range ranks {
		out[i] = proto.CloneOf(r)
		out[i].Iteration++
		if rng.Float64() < share {
			out[i] = fresh[i]
			out[i].Device = r.Device + "x"
		}
	}
	return out
}

func sent(t testing.TB, m *falconv1.RankColumns) *falconv1.RankColumns {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	out := &falconv1.RankColumns{}
	if err := proto.Unmarshal(b, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func wantViews(t *testing.T, got, want []*falconv1.RankView) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d views, want %d", len(got), len(want))
	}
	for i := range want {
		if !proto.Equal(got[i], want[i]) {
			t.Fatalf("rank %d is %v, want %v", i, got[i], want[i])
		}
	}
}

// A reader that follows changes, one that begins late, and one that gets each
// picture whole see the same, which is the plain rounding.
func TestReadersSeeThePlainRounding(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		ranks := randomRanks(rng, 1+rng.IntN(200))
		var log Log
		var table *Table
		var views []*falconv1.RankView
		for version := uint64(1); version < 12; version++ {
			known := uint64(0)
			if table != nil {
				known = table.Version
			}
			if version%3 != 0 { // sometimes it misses one
				next, err := Decode(
					version,
					table,
					sent(t, log.Since(known, tableOfVersion(version, ranks))),
				)
				if err != nil {
					t.Fatal(err)
				}
				views = next.Views()
				table = next
				wantViews(t, views, plain(ranks))
			}
			whole, err := Decode(
				version,
				nil,
				sent(t, log.Since(0, tableOfVersion(version, ranks))),
			)
			if err != nil {
				t.Fatal(err)
			}
			wantViews(t, whole.Views(), plain(ranks))
			ranks = change(rng, ranks, []float64{0, 0.02, 0.3, 1}[rng.IntN(4)])
		}
	}
}

// Every field of a rank has a column: a new one without is noticed here.
func TestEveryFieldTravels(t *testing.T) {
	r := &falconv1.RankView{}
	m := r.ProtoReflect()
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.Name() == "rank" {
			continue
		}
		one := m.NewField(f)
		switch v := one.Interface().(type) {
		case protoreflect.List:
			for range GaugesMost {
				v.Append(protoreflect.ValueOfUint32(1))
			}
			m.Set(f, one)
		case float64:
			_ = v
			m.Set(f, protoFloat(1))
		default:
			m.Set(f, protoOne(f))
		}
	}
	table := tableOf(1, []*falconv1.RankView{r}, nil)
	got, err := Decode(1, nil, sent(t, Encode(nil, table)))
	if err != nil {
		t.Fatal(err)
	}
	wantViews(t, got.Views(), []*falconv1.RankView{r})
}

func TestUnchangedTablesSendNothing(t *testing.T) {
	ranks := randomRanks(rand.New(rand.NewPCG(1, 2)), 100)
	a := tableOf(1, ranks, nil)
	b := tableOf(2, ranks, a)
	if m := Encode(a, b); len(m.Columns) != 0 || len(m.Devices) != 0 {
		t.Errorf("nothing has changed and this is sent: %v", m)
	}
}

// Of ranks that are not listed, or have no place, nothing is known.
func TestTablesOfSomeRanks(t *testing.T) {
	ranks := randomRanks(rand.New(rand.NewPCG(1, 2)), 4)
	got := Of(4, []*falconv1.RankView{ranks[2], nil, {Rank: 4, Ms: 1}, {Rank: -1, Ms: 1}}).Views()
	whole := tableOf(1, ranks, nil)
	want := []*falconv1.RankView{{}, {Rank: 1}, whole.Views()[2], {Rank: 3}}
	wantViews(t, got, want)
}

func TestValuesAreNeverRoundedUp(t *testing.T) {
	for _, x := range []float64{
		1.05, 1.1, 1.25, 1.5, 1.75, 2, 0.05, 0.9, 0.0001, 1.0999, 1.09999, 1.1 - 1e-9,
	} {
		r := &falconv1.RankView{SelfRatio: x}
		table := tableOf(1, []*falconv1.RankView{r}, nil)
		got := table.Views()[0].SelfRatio
		if got > x || x-got > 1e-4 {
			t.Errorf("%v becomes %v", x, got)
		}
		if (x >= 1.1) != (got >= 1.1) {
			t.Errorf("%v becomes %v: another judgement", x, got)
		}
	}
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 1e300, -1e300} {
		table := tableOf(
			1,
			[]*falconv1.RankView{{Ms: x, Iteration: math.MaxInt64}},
			nil,
		)
		if got := table.Views()[0].Ms; math.IsNaN(got) || math.IsInf(got, 0) {
			t.Errorf("%v becomes %v", x, got)
		}
	}
}

func TestBrokenMessagesAreRefused(t *testing.T) {
	base := tableOf(5, randomRanks(rand.New(rand.NewPCG(3, 4)), 4), nil)
	for name, c := range map[string]struct {
		m    *falconv1.RankColumns
		want error
	}{
		"another base": {&falconv1.RankColumns{World: 4, BaseVersion: 4}, ErrBase},
		"other world":  {&falconv1.RankColumns{World: 5, BaseVersion: 5}, ErrBase},
		"negative":     {&falconv1.RankColumns{World: -1}, ErrBroken},
		"huge":         {&falconv1.RankColumns{World: MaxWorld + 1}, ErrBroken},
		"too few": {
			&falconv1.RankColumns{
				World:   4,
				Columns: []*falconv1.Column{{Residues: []int32{1}}},
			},
			ErrBroken,
		},
		"beyond": {
			&falconv1.RankColumns{
				World: 4,
				Columns: []*falconv1.Column{{
					Gaps:     []uint32{4},
					Residues: []int32{1},
				}},
			},
			ErrBroken,
		},
		"far beyond": {
			&falconv1.RankColumns{
				World: 4,
				Columns: []*falconv1.Column{{
					Gaps:     []uint32{math.MaxUint32, 1},
					Residues: []int32{1, 1},
				}},
			},
			ErrBroken,
		},
		"no devices": {&falconv1.RankColumns{World: 4, DeviceGaps: []uint32{1}}, ErrBroken},
	} {
		if _, err := Decode(6, base, c.m); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	rng := rand.New(rand.NewPCG(5, 6))
	ranks := randomRanks(rng, 40)
	base := tableOf(5, ranks, nil)
	next := tableOf(6, change(rng, ranks, 0.2), base)
	for _, m := range []*falconv1.RankColumns{Encode(nil, base), Encode(base, next)} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m := &falconv1.RankColumns{}
		if proto.Unmarshal(b, m) != nil || m.World > 1<<12 {
			return
		}
		got, err := Decode(7, base, m)
		if err != nil {
			return
		}
		again, err := Decode(7, nil, sent(t, Encode(nil, got)))
		if err != nil {
			t.Fatal(err)
		}
		wantViews(t, again.Views(), got.Views())
	})
}
