package convert

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func anyCalls(t *rapid.T) []falcon.CallTiming {
	ns := func(name string) float64 {
		return float64(rapid.Int64Range(0, 1<<50).Draw(t, name)) / 1e6
	}
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) falcon.CallTiming {
		return falcon.CallTiming{
			Comm:       rapid.Uint64Range(1, 3).Draw(t, "comm"),
			Ordinal:    rapid.Uint64().Draw(t, "ordinal"),
			Op:         falcon.Op(rapid.Uint8().Draw(t, "op")),
			Peer:       rapid.IntRange(-1, 3).Draw(t, "peer"),
			Bytes:      rapid.Int64Range(0, 2).Draw(t, "bytes"),
			StartMs:    ns("start"),
			DurationMs: ns("duration"),
			QueueMs:    ns("queue"),
		}
	}), 0, 8).Draw(t, "calls")
}

// Calls in columns are the calls, as one message each carries them too.
func TestColumnsKeepCalls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := falcon.RankProfile{
			Rank:         3,
			Iterations:   2,
			MicroBatches: 4,
			SelfMs:       1.5,
			QueueMs:      0.25,
			Dropped:      7,
			Calls:        anyCalls(t),
		}
		if len(want.Calls) == 0 {
			want.Calls = nil
		}
		packed := overTheWire(t, PackedProfileToProto(want)).(*falconv1.RankProfile)
		plain := overTheWire(t, ProfileToProto(want)).(*falconv1.RankProfile)
		got := ProfileFromProto(9, packed)
		other := ProfileFromProto(9, plain)
		if len(other.Calls) == 0 {
			other.Calls = nil
		}
		want.Window = 9
		if d := cmp.Diff(want, got); d != "" || !cmp.Equal(got, other) {
			t.Fatalf("lost or changed:\n%s%s", d, cmp.Diff(other, got))
		}
	})
}

// Columns that do not fit together are no calls.
func TestColumnsThatDoNotFit(t *testing.T) {
	calls := []falcon.CallTiming{{Comm: 1, Ordinal: 1, DurationMs: 1}, {
		Comm:       1,
		Ordinal:    2,
		DurationMs: 1,
	}}
	for name, spoil := range map[string]func(*falconv1.CallColumns){
		"a class of none":    func(c *falconv1.CallColumns) { c.Class[1] = 1 },
		"a huge class":       func(c *falconv1.CallColumns) { c.Class[1] = math.MaxUint32 },
		"no classes":         func(c *falconv1.CallColumns) { c.Classes = nil },
		"an ordinal too few": func(c *falconv1.CallColumns) { c.Ordinal = c.Ordinal[1:] },
		"a start too many": func(c *falconv1.CallColumns) {
			c.StartNs = append(c.StartNs, 1)
		},
		"no durations":        func(c *falconv1.CallColumns) { c.DurationNs = nil },
		"no queue":            func(c *falconv1.CallColumns) { c.QueueNs = nil },
		"times without calls": func(c *falconv1.CallColumns) { c.Class = nil },
	} {
		c := callsToColumns(calls)
		if !ValidColumns(c) || len(callsFromColumns(c)) != 2 {
			t.Fatal("they fit")
		}
		spoil(c)
		if ValidColumns(c) || len(callsFromColumns(c)) != 0 {
			t.Errorf("%s: %v", name, callsFromColumns(c))
		}
	}
}

func FuzzColumns(f *testing.F) {
	seed, err := proto.Marshal(PackedProfileToProto(falcon.RankProfile{Calls: []falcon.CallTiming{{
		Comm:       1,
		Ordinal:    5,
		Peer:       -1,
		Bytes:      1 << 20,
		StartMs:    1,
		DurationMs: 2,
	}}}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, b []byte) {
		var p falconv1.RankProfile
		if proto.Unmarshal(b, &p) != nil {
			return
		}
		got := ProfileFromProto(1, &p)
		if p.Columns != nil && len(got.Calls) > len(p.Columns.Class) {
			t.Errorf("%d calls of %d", len(got.Calls), len(p.Columns.Class))
		}
	})
}

// usualProfile is what a rank of a job with three kinds of communicators measures in a window.
func usualProfile() falcon.RankProfile {
	rng := rand.New(rand.NewPCG(1, 1))
	out := falcon.RankProfile{
		Iterations:   4,
		MicroBatches: 8,
		SelfMs:       20,
	}
	at := 0.0
	ordinals := [3]uint64{40_000, 9_000, 7_000}
	call := func(comm int, op falcon.Op, peer int, bytes int64, ms float64) {
		ms = math.Round(ms*(1+0.05*rng.NormFloat64())*1e6) / 1e6
		out.Calls = append(out.Calls, falcon.CallTiming{
			Comm:       uint64(comm+1) << 40,
			Ordinal:    ordinals[comm],
			Op:         op,
			Peer:       peer,
			Bytes:      bytes,
			StartMs:    math.Round(at*1e6) / 1e6,
			DurationMs: ms,
			QueueMs:    math.Round(rng.Float64()*80e6) / 1e6,
		})
		ordinals[comm]++
		at += ms + 2
	}
	for range out.Iterations {
		for range out.MicroBatches {
			for range 4 {
				call(0, 1, -1, 8<<20, 0.9)
			}
			call(1, 9, 1, 4<<20, 0.4)
			call(1, 10, 3, 4<<20, 6)
		}
		for range 4 {
			call(2, 1, -1, 64<<20, 11)
		}
	}
	return out
}

// BenchmarkProfile reads a rank's profile from the wire; bytes/call are those on it.
func BenchmarkProfile(b *testing.B) {
	p := usualProfile()
	for name, to := range map[string]func(falcon.RankProfile) *falconv1.RankProfile{
		"calls":   ProfileToProto,
		"columns": PackedProfileToProto,
	} {
		b.Run(name, func(b *testing.B) {
			wire, err := proto.Marshal(to(p))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				var m falconv1.RankProfile
				if err := proto.Unmarshal(wire, &m); err != nil {
					b.Fatal(err)
				}
				if got := ProfileFromProto(1, &m); len(got.Calls) != len(p.Calls) {
					b.Fatal("calls are missing")
				}
			}
			b.ReportMetric(float64(len(wire))/float64(len(p.Calls)), "bytes/call")
		})
	}
}
