package lab

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/failslow/falcon"
)

// rig is a network of a scenario with its silicon, for tests.
func rig(t *testing.T, text string) (Scenario, *silicon, *network, []NodeSetup) {
	t.Helper()
	sc, err := parseScenario([]byte(text), "t")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	hw, err := createSilicon(
		filepath.Join(dir, "state"),
		sc.Nodes,
		sc.gpusPerNode(),
		1e9,
		sc.LinkMBs*1e6,
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hw.unmapState() })
	w := newNetwork(sc, hw, 1)
	var nodes []NodeSetup
	for i := range sc.Nodes {
		n := NodeSetup{
			Node:   nodeNameOf(i),
			Index:  i,
			ShmDir: filepath.Join(dir, string(nodeNameOf(i))),
		}
		for g := range sc.gpusPerNode() {
			n.Devices = append(n.Devices, falcon.NewDevice(n.Node, g))
		}
		if err := w.createTree(&n); err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, n)
	}
	return sc, hw, w, nodes
}

func counter(t *testing.T, n NodeSetup, card int, file string) float64 {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(
		n.Sysfs,
		"class",
		"infiniband",
		"mlx5_"+strconv.Itoa(card),
		"ports",
		"1",
		file,
	))
	if err != nil {
		t.Fatal(err)
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(string(b)), 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Congestion shows at both ends of the link, on every port, and nowhere else.
func TestNetworkShowsCongestion(t *testing.T) {
	const text = "layout: {tp: 1, dp: 4, pp: 2}\nnodes: 4\nnics: 2\n"
	_, hw, w, nodes := rig(t, text)
	const cnp = "hw_counters/np_cnp_sent"
	before := map[int]float64{}
	for i, n := range nodes {
		before[i] = counter(t, n, 1, cnp)
	}
	hw.setBandwidth(1, 2, 0.2)
	if err := w.advanceCounters(10); err != nil {
		t.Fatal(err)
	}
	for i, n := range nodes {
		grown := counter(t, n, 1, cnp) - before[i]
		if congested := i == 1 || i == 2; congested != (grown > 10_000) || grown > 100_000 {
			t.Errorf("%s: %v notifications in 10 s, link n1-n2 is congested", n.Node, grown)
		}
	}
	if got := nodes[1].NICs["n1.g1"]; got != "n1.nic1" {
		t.Errorf("n1.g1 uses %q", got)
	}
	if _, err := os.Stat(filepath.Join(nodes[0].Sysfs, "emulated")); err != nil {
		t.Error("the tree does not say that it is emulated:", err)
	}
}

// A fault that takes over from another on the same part stays in force, also
// where it stands before the other in the list; both are in the truth.
func TestFaultsTakeOver(t *testing.T) {
	const text = `layout: {tp: 1, dp: 4, pp: 2}
nodes: 4
events:
  - {at_iteration: 20, until_iteration: 30, gpu: n1.g0, clock: 0.4}
  - {at_iteration: 10, until_iteration: 20, gpu: n1.g0, clock: 0.9}
  - {at_iteration: 5, until_iteration: 15, stage: 1, load: 2.0}
`
	sc, hw, _, _ := rig(t, text)
	f := newFaults(sc, hw)
	clock := func() uint64 { return hw.loadUint64(offsetOfGPU(1, 0) + gpuClock) }
	load := func(n, g int) uint64 {
		return hw.loadUint64(offsetOfGPU(n, g) + gpuLoad)
	}
	seen := map[uint64]int{}
	for i := range int64(40) {
		f.applyBefore(i)
		seen[clock()]++
		if got := strings.Join(f.namesInForce(), ", "); i == 12 &&
			got != "gpu n1.g0 clock 0.9, stage 1 load 2" {
			t.Errorf("in force: %s", got)
		}
		heavy := load(2, 0) != load(0, 0)
		if heavy != (i >= 5 && i < 15) || load(2, 0) != load(3, 1) {
			t.Errorf("iteration %d: stage 1 is heavy: %v", i, heavy)
		}
	}
	if len(seen) != 3 {
		t.Errorf("clocks seen %v, want healthy, 0.9 and 0.4", seen)
	}
	for _, n := range seen {
		if n != 20 && n != 10 {
			t.Errorf("a clock held for %d iterations", n)
		}
	}
	if len(f.injected) != 3 ||
		*f.injected[0].Stage != 1 ||
		f.injected[0].LastIteration != 14 {
		t.Errorf("truth %+v", f.injected)
	}
}
