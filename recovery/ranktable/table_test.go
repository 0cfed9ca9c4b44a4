package ranktable_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/recovery/ranktable"
	"github.com/failslow/falcon/recovery/ranktable/ranktabletest"
)

func TestEncode(t *testing.T) {
	p := falcon.Placement{"b.g1", "b.g0", "a.g0", "b.g2"}
	got, err := ranktable.Encode(p, map[falcon.Node]string{"b": "10.0.0.2"})
	want := `{"status":"completed","version":"1.0","server_count":"2","server_list":[
{"server_id":"b","host_ip":"10.0.0.2","device":[{"device_id":"1","device_ip":"10.0.0.2","rank_id":"0"},{"device_id":"0","device_ip":"10.0.0.2","rank_id":"1"},{"device_id":"2","device_ip":"10.0.0.2","rank_id":"3"}]},
{"server_id":"a","device":[{"device_id":"0","rank_id":"2"}]}
]}
`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
}

// Any placement is read again as it was written.
func TestAnyPlacementIsReadAgain(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var p falcon.Placement
		hosts := map[falcon.Node]string{}
		for i := range 1 + rng.IntN(6) {
			n := falcon.Node(fmt.Sprint("n", i, []string{"", "é\"\\\n", "a<b>&c", "\u2028"}[rng.IntN(4)]))
			hosts[n] = []string{"", "10.0.0.1", "fe80::1%eth0", "\u2028"}[rng.IntN(4)]
			for k := range 1 + rng.IntN(4) {
				p = append(p, falcon.NewDevice(n, k))
			}
		}
		rng.Shuffle(len(p), func(i, j int) { p[i], p[j] = p[j], p[i] })
		text, err := ranktable.Encode(p, hosts)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		got, at, err := ranktabletest.Decode(text)
		if err != nil || !slices.Equal(got, p) || !maps.Equal(at, hosts) {
			t.Fatalf("seed %d: %v\n%s\n%v\n%v", seed, err, text, got, at)
		}
		if again, err := ranktable.Encode(slices.Clone(p), maps.Clone(hosts)); err != nil ||
			!bytes.Equal(again, text) {
			t.Fatalf("seed %d: other bytes the second time", seed)
		}
	}
}

func TestBadPlacements(t *testing.T) {
	many := func(n int) (p falcon.Placement) {
		for k := range n {
			p = append(p, falcon.NewDevice("a", k))
		}
		return p
	}
	for want, p := range map[string]falcon.Placement{
		"0 devices":           {},
		"has another rank":    {"a.g0", "a.g0"},
		`"a", which is no`:    {"a"},
		`".g0", which is no`:  {".g0"},
		"longer than 63":      {falcon.NewDevice(falcon.Node(strings.Repeat("a", 64)), 0)},
		"more than 512":       many(ranktable.ServerDevicesMost + 1),
		"holds 1 to 131072":   many(ranktable.DevicesMost + 1),
		"a name is not UTF-8": {"\xff.g0"},
	} {
		_, err := ranktable.Encode(p, nil)
		if !errors.Is(err, ranktable.ErrTable) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	if _, err := ranktable.Encode(falcon.Placement{
		"a.g0",
	}, map[falcon.Node]string{"a": strings.Repeat("9", 256)}); !errors.Is(err, ranktable.ErrTable) {
		t.Errorf("a long address: %v", err)
	}
}
