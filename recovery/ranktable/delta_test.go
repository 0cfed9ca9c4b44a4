package ranktable

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/failslow/falcon"
)

// cluster is a placement of servers of eight devices, and its addresses.
func cluster(servers int) (falcon.Placement, map[falcon.Node]Address) {
	var p falcon.Placement
	addresses := map[falcon.Node]Address{}
	for i := range servers {
		n := falcon.Node(fmt.Sprintf("node-%04d", i))
		a := Address{HostIP: fmt.Sprintf("10.0.%d.%d", i>>8, i&255)}
		for k := range 8 {
			p = append(p, falcon.NewDevice(n, k))
			a.DeviceIPs = append(a.DeviceIPs, fmt.Sprintf("10.%d.%d.%d", k+1, i>>8, i&255))
		}
		addresses[n] = a
	}
	return p, addresses
}

// replaced puts the spare in the place of server i.
func replaced(p falcon.Placement, i int, spare falcon.Node) falcon.Placement {
	out := slices.Clone(p)
	for k := range 8 {
		out[8*i+k] = falcon.NewDevice(spare, k)
	}
	return out
}

func encoded(t testing.TB, p falcon.Placement, addresses map[falcon.Node]Address) []byte {
	t.Helper()
	table, err := Build(p, addresses)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Encode(table)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A spare in the place of a node is one edit of one line, wherever it is.
func TestReplacedServerIsOneEdit(t *testing.T) {
	p, addresses := cluster(300)
	addresses["spare"] = Address{HostIP: "10.9.9.9"}
	base := encoded(t, p, addresses)
	for _, i := range []int{0, 150, 299} {
		result := encoded(t, replaced(p, i, "spare"), addresses)
		d := Diff(base, 6, result, 7)
		if len(d.Edits) != 1 || len(d.Edits[0].Put) > 1000 || d.Base.Generation != 6 || d.Result.Generation != 7 {
			t.Errorf("server %d: %d edits of %d bytes", i, len(d.Edits), len(d.Edits[0].Put))
		}
		if got, err := d.Apply(base); err != nil || !bytes.Equal(got, result) {
			t.Errorf("server %d: %v", i, err)
		}
	}
	two := Diff(base, 6, encoded(t, replaced(replaced(p, 3, "spare"), 200, "other"), addresses), 7)
	if len(two.Edits) != 2 {
		t.Errorf("two servers: %d edits", len(two.Edits))
	}
	b, err := two.Encode()
	if err != nil || len(b) > 3000 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if other := Diff(base, 6, encoded(t, p, addresses), 7); len(other.Edits) != 0 {
		t.Errorf("%+v", other.Edits)
	}
}

// applied is the second implementation: from the last edit to the first, each
// by itself.
func applied(base []byte, edits []Edit) []byte {
	out := string(base)
	for _, e := range slices.Backward(edits) {
		out = out[:e.At] + string(e.Put) + out[e.At+e.Cut:]
	}
	return []byte(out)
}

func TestDiffOfAnyBytes(t *testing.T) {
	for seed := uint64(0); seed < 5000; seed++ {
		rng := rand.New(rand.NewPCG(seed, 3))
		text := func() []byte {
			b := make([]byte, rng.IntN(30))
			for i := range b {
				b[i] = "ab\n"[rng.IntN(3)]
			}
			return b
		}
		base, result := text(), text()
		d := Diff(base, 1, result, 2)
		got, err := d.Apply(base)
		if err != nil || !bytes.Equal(got, result) || !bytes.Equal(applied(base, d.Edits), result) {
			t.Fatalf("seed %d: %q to %q: %+v gives %q, %v", seed, base, result, d, got, err)
		}
		b, err := d.Encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeDelta(b)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := back.Apply(base); err != nil || !bytes.Equal(got, result) {
			t.Fatalf("seed %d: decoded: %q, %v", seed, got, err)
		}
		if other := text(); !bytes.Equal(other, base) {
			if _, err := d.Apply(other); !errors.Is(err, ErrBase) {
				t.Fatalf("seed %d: applied to %q: %v", seed, other, err)
			}
		}
	}
}

func TestBadDeltas(t *testing.T) {
	base := []byte("abc")
	side := SidecarOf(base, 1)
	for name, d := range map[string]Delta{
		"backwards":   {Base: side, Result: side, Edits: []Edit{{At: 2, Cut: 1}, {At: 0}}},
		"overlapping": {Base: side, Result: side, Edits: []Edit{{At: 0, Cut: 2}, {At: 1}}},
		"before":      {Base: side, Result: side, Edits: []Edit{{At: -1}}},
		"beyond":      {Base: side, Result: side, Edits: []Edit{{At: 4}}},
		"cut beyond":  {Base: side, Result: side, Edits: []Edit{{At: 1, Cut: 1 << 62}}},
		"cut back":    {Base: side, Result: side, Edits: []Edit{{At: 1, Cut: -1}}},
		"longer":      {Base: side, Result: side, Edits: []Edit{{At: 3, Put: []byte("d")}}},
		"other":       {Base: side, Result: side, Edits: []Edit{{At: 0, Cut: 1, Put: []byte("d")}}},
		"huge":        {Base: side, Result: Sidecar{Bytes: BytesMost + 1}},
		"negative":    {Base: side, Result: Sidecar{Bytes: -1}},
	} {
		if _, err := d.Apply(base); !errors.Is(err, ErrTable) || errors.Is(err, ErrBase) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, text := range []string{``, `{`, `{"edit":[]}`, `{} {}`, `{"edits":[{"put":"*"}]}`} {
		if _, err := DecodeDelta([]byte(text)); !errors.Is(err, ErrTable) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzDelta(f *testing.F) {
	base := []byte(good)
	b, err := Diff(base, 1, append([]byte("x"), base...), 2).Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b, base)
	f.Fuzz(func(t *testing.T, b, base []byte) {
		d, err := DecodeDelta(b)
		if err != nil {
			return
		}
		if got, err := d.Apply(base); err == nil && !d.Result.Of(got) {
			t.Error("it is not what was promised")
		}
	})
}

const servers18k = 2250 // of eight devices

// From the file to the checked table, the file in the page cache.
func BenchmarkReadAndParse18000(b *testing.B) {
	p, addresses := cluster(servers18k)
	text := encoded(b, p, addresses)
	path := filepath.Join(b.TempDir(), "hccl.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		read, err := os.ReadFile(path)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := Decode(read); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParse18000ByEncodingJSON(b *testing.B) {
	p, addresses := cluster(servers18k)
	text := encoded(b, p, addresses)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := byJSON(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBuildAndEncode18000(b *testing.B) {
	p, addresses := cluster(servers18k)
	for b.Loop() {
		encoded(b, p, addresses)
	}
}

func BenchmarkDiff18000(b *testing.B) {
	p, addresses := cluster(servers18k)
	base, result := encoded(b, p, addresses), encoded(b, replaced(p, 1000, "spare"), addresses)
	for b.Loop() {
		Diff(base, 1, result, 2)
	}
}

// From the delta's bytes on the wire to the new table's bytes.
func BenchmarkApplyDelta18000(b *testing.B) {
	p, addresses := cluster(servers18k)
	base, result := encoded(b, p, addresses), encoded(b, replaced(p, 1000, "spare"), addresses)
	wire, err := Diff(base, 1, result, 2).Encode()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		d, err := DecodeDelta(wire)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := d.Apply(base); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(wire)), "delta-bytes")
}
