package ranktable_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/recovery/ranktable"
	"github.com/failslow/falcon/recovery/ranktable/ranktabletest"
)

// cluster is a placement of servers of eight devices, and its addresses.
func cluster(servers int) (falcon.Placement, map[falcon.Node]string) {
	var p falcon.Placement
	hosts := map[falcon.Node]string{"spare": "10.9.9.9"}
	for i := range servers {
		n := falcon.Node(fmt.Sprintf("node-%04d", i))
		hosts[n] = fmt.Sprintf("10.0.%d.%d", i>>8, i&255)
		for k := range 8 {
			p = append(p, falcon.NewDevice(n, k))
		}
	}
	return p, hosts
}

// replaced puts the spare in the place of server i.
func replaced(p falcon.Placement, i int, spare falcon.Node) falcon.Placement {
	out := slices.Clone(p)
	for k := range 8 {
		out[8*i+k] = falcon.NewDevice(spare, k)
	}
	return out
}

func encoded(t testing.TB, p falcon.Placement, hosts map[falcon.Node]string) []byte {
	t.Helper()
	b, err := ranktable.Encode(p, hosts)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// delta encodes what changes from base to result, and checks that it leads there.
func delta(t testing.TB, base, result []byte) (ranktable.Delta, []byte) {
	t.Helper()
	d := ranktable.Diff(base, 6, result, 7)
	b, err := d.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ranktabletest.Apply(base, b); err != nil || !bytes.Equal(got, result) {
		t.Fatalf("%q to %q: %+v gives %q, %v", base, result, d, got, err)
	}
	return d, b
}

// A spare in the place of a node is one edit of one line, wherever it is.
func TestReplacedServerIsOneEdit(t *testing.T) {
	p, hosts := cluster(300)
	base := encoded(t, p, hosts)
	for _, i := range []int{0, 150, 299} {
		d, _ := delta(t, base, encoded(t, replaced(p, i, "spare"), hosts))
		if len(d.Edits) != 1 ||
			len(d.Edits[0].Put) > 1000 ||
			d.Base.Generation != 6 ||
			d.Result.Generation != 7 {
			t.Errorf("server %d: %d edits of %d bytes", i, len(d.Edits), len(d.Edits[0].Put))
		}
	}
	two, b := delta(
		t,
		base,
		encoded(t, replaced(replaced(p, 3, "spare"), 200, "other"), hosts),
	)
	if len(two.Edits) != 2 || len(b) > 3000 {
		t.Errorf("two servers: %d edits, %d bytes", len(two.Edits), len(b))
	}
	if same, _ := delta(t, base, encoded(t, p, hosts)); len(same.Edits) != 0 {
		t.Errorf("%+v", same.Edits)
	}
}

// applied is the second implementation: from the last edit to the first, each
// by itself.
func applied(base []byte, edits []ranktable.Edit) []byte {
	out := string(base)
	for _, e := range slices.Backward(edits) {
		out = out[:e.At] + string(e.Put) + out[e.At+e.Cut:]
	}
	return []byte(out)
}

func TestDiffOfAnyBytes(t *testing.T) {
	for seed := range uint64(5000) {
		rng := rand.New(rand.NewPCG(seed, 3))
		text := func() []byte {
			b := make([]byte, rng.IntN(30))
			for i := range b {
				b[i] = "ab\n"[rng.IntN(3)]
			}
			return b
		}
		base := text()
		result := text()
		d, b := delta(t, base, result)
		if got := applied(base, d.Edits); !bytes.Equal(got, result) {
			t.Fatalf("seed %d: %q to %q: %+v gives %q", seed, base, result, d, got)
		}
		if other := text(); !bytes.Equal(other, base) {
			if _, err := ranktabletest.Apply(other, b); err == nil {
				t.Fatalf("seed %d: applied to %q", seed, other)
			}
		}
	}
}

// A delta of too many edits is one edit.
func TestManyEditsBecomeOne(t *testing.T) {
	base := bytes.Repeat([]byte("a\nb\n"), ranktable.EditsMost+1)
	result := bytes.Repeat([]byte("a\nc\n"), ranktable.EditsMost+1)
	if d, _ := delta(t, base, result); len(d.Edits) != 1 {
		t.Errorf("%d edits", len(d.Edits))
	}
}

const servers18k = 2250 // of eight devices

func BenchmarkEncode18000(b *testing.B) {
	p, hosts := cluster(servers18k)
	b.ReportAllocs()
	for b.Loop() {
		encoded(b, p, hosts)
	}
}

func BenchmarkDecode18000(b *testing.B) {
	p, hosts := cluster(servers18k)
	text := encoded(b, p, hosts)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, _, err := ranktabletest.Decode(text); err != nil {
			b.Fatal(err)
		}
	}
}

// A replaced server as a delta, and its bytes on the wire.
func BenchmarkDiff18000(b *testing.B) {
	p, hosts := cluster(servers18k)
	base := encoded(b, p, hosts)
	result := encoded(b, replaced(p, 1000, "spare"), hosts)
	_, wire := delta(b, base, result)
	for b.Loop() {
		ranktable.Diff(base, 1, result, 2)
	}
	b.ReportMetric(float64(len(wire)), "delta-bytes")
}

// The alternative to deltas: the whole table, as gRPC compresses it for each node.
func BenchmarkGzip18000(b *testing.B) {
	p, hosts := cluster(servers18k)
	text := encoded(b, p, hosts)
	var out bytes.Buffer
	for b.Loop() {
		out.Reset()
		z := gzip.NewWriter(&out)
		if _, err := z.Write(text); err != nil {
			b.Fatal(err)
		}
		if err := z.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(text)), "bytes")
	b.ReportMetric(float64(out.Len()), "gzip-bytes")
}
