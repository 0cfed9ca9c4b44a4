package outage

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/tcpstore"
	"github.com/failslow/falcon/backend/tcpstore/storetest"
)

// The fit goes through two points of table II and not through the third.
func TestVanillaFit(t *testing.T) {
	v := FitVanilla()
	for _, p := range paperRestart[:2] {
		if got := v.Restart(int(p.devices)); math.Abs(got-p.seconds) > 1e-6 {
			t.Errorf("%v devices: %v s, wants %v", p.devices, got, p.seconds)
		}
	}
	if s, wrong := v.Prediction(); wrong == 0 || math.Abs(wrong-(s-1115)/1115) > 1e-12 {
		t.Errorf("third point: %v s, error %v", s, wrong)
	}
	for _, p := range paperStore {
		if got := between(paperStore, p.devices); got != p.seconds {
			t.Errorf("fig. 10 at %v: %v, wants %v", p.devices, got, p.seconds)
		}
	}
}

// The formula of the tail's median, against the slowest of n draws.
func TestTailIsTheSlowestOfMany(t *testing.T) {
	v := Vanilla{Scale: 2, Alpha: 3}
	r := rand.New(rand.NewPCG(1, 2))
	const n, tries = 100, 4001
	all := make([]float64, tries)
	for i := range all {
		for range n {
			all[i] = max(all[i], v.Scale*math.Pow(1-r.Float64(), -1/v.Alpha))
		}
	}
	slices.Sort(all)
	want := v.Restart(n) - overheads(n)
	if got := all[tries/2]; math.Abs(got/want-1) > 0.03 {
		t.Errorf("the median of %d tries is %v s, by the formula %v", tries, got, want)
	}
}

func TestModel(t *testing.T) {
	m := Model{
		Container:   LogNormal{10, 0},
		Import:      LogNormal{5, 0},
		StateBytes:  100,
		LinkBytesS:  50,
		LinkLatency: 1,
	}
	if got := m.Replace(1, 8); got != 15 {
		t.Errorf("replacement without variance: %v s, wants 15", got)
	}
	m.Import.Sigma = 0.5
	if one, many := m.Replace(1, 1), m.Replace(1, 64); many <= one {
		t.Errorf("the slowest of 64 starts takes %v s, one %v", many, one)
	}
	moves := []*falconv1.ShardMove{{Rank: 0, From: 4}, {Rank: 1, From: 5}, {
		Rank: 2,
		From: 4,
	}}
	if got := m.Restore(moves); got != 6 {
		t.Errorf("two shards leave by one port: %v s, wants 6", got)
	}
}

func TestBaselines(t *testing.T) {
	s, err := tcpstore.Listen("127.0.0.1:0", tcpstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	const n = 50
	if _, err := SerialStore(s.Addr(), n, time.Minute); err != nil {
		t.Fatal(err)
	}
	c, err := storetest.Dial(s.Addr(), storetest.Current, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if got, err := c.Add("/serial", 0); err != nil || got != n {
		t.Errorf("%d clients came (%v), wants %d", got, err, n)
	}
	_, one, err := CollectAndBroadcast(n)
	if err != nil {
		t.Fatal(err)
	}
	_, two, err := CollectAndBroadcast(2 * n)
	if err != nil {
		t.Fatal(err)
	}
	if ratio := float64(two) / float64(one); ratio < 3.9 || ratio > 4.2 {
		t.Errorf("twice the devices: %v times the bytes, wants about 4", ratio)
	}
}
