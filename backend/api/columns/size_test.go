package columns

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func protoFloat(x float64) protoreflect.Value {
	return protoreflect.ValueOfFloat64(x)
}

// protoOne is 1, or true, or a word, in a field's own type.
func protoOne(f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString("n1.g0")
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(1)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(1)
	}
	return protoreflect.ValueOfInt32(1)
}

// job is a healthy synchronous job: all ranks at about the same iteration time,
// with noise of their own, and profiled once.
func job(rng *rand.Rand, n int, iteration int64) []*falconv1.RankView {
	out := make([]*falconv1.RankView, n)
	block := make([]falconv1.RankView, n)
	for i := range out {
		v := &block[i]
		out[i] = v
		v.Rank = int32(i)
		v.Device = fmt.Sprintf("n%d.g%d", i/8, i%8)
		v.Health = falconv1.RankHealth_RANK_HEALTH_OK
		v.Ms = 4200 * (1 + 0.004*rng.NormFloat64())
		v.Slowdown = v.Ms/4200 - 1
		v.Iteration = iteration
		v.SelfMs = 10 + 0.01*float64(i%7)
		v.SelfRatio = 1 + 0.001*float64(i%7)
		v.WaitMs = 42
		v.SmClockMhz = 1980
		v.TemperatureC = uint32(60 + i%5)
	}
	return out
}

// next is the job a pull later, while the agents of one node in so many have
// reported a new iteration.
func next(rng *rand.Rand, ranks []*falconv1.RankView, every int) []*falconv1.RankView {
	out := make([]*falconv1.RankView, len(ranks))
	fresh := job(rng, len(ranks), ranks[0].Iteration+1)
	for i := range out {
		out[i] = ranks[i]
		if i/8%every == 0 {
			out[i] = fresh[i]
			out[i].SelfMs = ranks[i].SelfMs
			out[i].SelfRatio = ranks[i].SelfRatio
			out[i].WaitMs = ranks[i].WaitMs
		}
	}
	return out
}

// Bytes of one pull: the ranks as messages, as columns from nothing, when all
// ranks have a new iteration, and when one node in 25 has.
func TestBytesOfAPull(t *testing.T) {
	for _, n := range []int{1024, 10_000, 100_000} {
		rng := rand.New(rand.NewPCG(7, 8))
		ranks := job(rng, n, 1000)
		messages := proto.Size(&falconv1.SnapshotReply{Ranks: ranks})
		var log Log
		whole := proto.Size(log.Since(0, tableOfVersion(1, ranks)))
		all := next(rng, ranks, 1)
		every := proto.Size(log.Since(1, tableOfVersion(2, all)))
		third := tableOfVersion(3, next(rng, all, 25))
		few := proto.Size(log.Since(2, third))
		none := proto.Size(log.Since(3, third))
		t.Logf(
			"%7d ranks: messages %9d B, columns %8d B whole, %7d B a new iteration of all, %6d B of one node in 25, %d B unchanged",
			n, messages, whole, every, few, none,
		)
		if whole > messages/4 || every > messages/15 || few > messages/150 || none > 32 {
			t.Errorf("%d ranks: %d, %d, %d, %d bytes against %d", n, whole, every, few, none, messages)
		}
	}
}

func benchmarkEncode(b *testing.B, every int) {
	rng := rand.New(rand.NewPCG(7, 8))
	a := job(rng, 100_000, 1000)
	base := tableOf(1, a, nil)
	c := next(rng, a, every)
	b.ReportAllocs()
	for b.Loop() {
		t := tableOf(2, c, base)
		Encode(base, t)
	}
}

func BenchmarkEncode100kAll(b *testing.B) {
	benchmarkEncode(b, 1)
}

func BenchmarkEncode100kFew(b *testing.B) {
	benchmarkEncode(b, 25)
}

func benchmarkDecode(b *testing.B, every int) {
	rng := rand.New(rand.NewPCG(7, 8))
	ranks := job(rng, 100_000, 1000)
	base := tableOf(1, ranks, nil)
	t := tableOf(2, next(rng, ranks, every), base)
	wire, err := proto.Marshal(Encode(base, t))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ReportMetric(float64(len(wire)), "wire-B")
	for b.Loop() {
		m := &falconv1.RankColumns{}
		if err := proto.Unmarshal(wire, m); err != nil {
			b.Fatal(err)
		}
		got, err := Decode(2, base, m)
		if err != nil {
			b.Fatal(err)
		}
		got.Views()
	}
}

func BenchmarkDecode100kAll(b *testing.B) {
	benchmarkDecode(b, 1)
}

func BenchmarkDecode100kFew(b *testing.B) {
	benchmarkDecode(b, 25)
}

// The way without columns, for comparison.
func BenchmarkDecodeMessages100k(b *testing.B) {
	wire, err := proto.Marshal(&falconv1.SnapshotReply{
		Ranks: job(rand.New(rand.NewPCG(7, 8)), 100_000, 1000),
	})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ReportMetric(float64(len(wire)), "wire-B")
	for b.Loop() {
		if err := proto.Unmarshal(wire, &falconv1.SnapshotReply{}); err != nil {
			b.Fatal(err)
		}
	}
}
