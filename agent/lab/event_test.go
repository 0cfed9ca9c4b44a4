package lab

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/failslow/falcon"
)

func testSilicon(t *testing.T, sc Scenario) *silicon {
	t.Helper()
	hw, err := createSilicon(
		filepath.Join(t.TempDir(), "state"),
		sc.nodeCount(),
		sc.gpusPerNode(),
		1e9,
		1e9,
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hw.unmapState() })
	return hw
}

func scenarioWith(t *testing.T, events string) Scenario {
	t.Helper()
	sc, err := parseScenario(
		[]byte("layout: {tp: 1, dp: 4, pp: 2}\nnodes: 8\nspares: 2\niterations: 200\nevents:\n"+events),
		"t",
	)
	if err != nil {
		t.Fatal(err)
	}
	return sc
}

// A fault that an action brings begins with it, ends with its revert, and does
// not come back with the next one.
func TestFaultOnAction(t *testing.T) {
	sc := scenarioWith(t, "  - {at_iteration: 20, on_action: S3, link: n3-n4, bandwidth: 0.5}\n")
	f := newFaults(sc, testSilicon(t, sc))
	narrow := func() bool { return f.hw.bandwidth(3, 4) == 0.5 }
	for _, step := range []struct {
		kind falcon.OrderKind
		from int64
		want bool
	}{
		{falcon.OrderPlacement, 10, false}, // before its time
		{falcon.OrderMicroBatches, 30, false},
		{falcon.OrderPlacement, 50, true},
		{falcon.OrderPlacement, 50, true}, // the other ranks say so too
		{falcon.OrderMicroBatches, 55, true},
		{falcon.OrderPlacement, 60, false},
		{falcon.OrderPlacement, 80, false},
	} {
		f.onActionApplied(step.kind, step.from)
		f.applyBefore(step.from)
		if narrow() != step.want {
			t.Fatalf("after %s from %d on: narrow is %v", step.kind, step.from, narrow())
		}
	}
	if len(f.injected) != 1 ||
		f.injected[0].FirstIteration != 50 ||
		f.injected[0].LastIteration != 59 ||
		f.injected[0].OnAction != "S3" {
		t.Errorf("truth %+v", f.injected)
	}
}

func TestEveryLinkIsSlow(t *testing.T) {
	sc := scenarioWith(t, "  - {at_iteration: 5, until_iteration: 9, link: all, bandwidth: 0.25}\n")
	f := newFaults(sc, testSilicon(t, sc))
	for _, at := range []struct {
		iteration int64
		want      float64
	}{{4, 1}, {5, 0.25}, {9, 1}} {
		i, want := at.iteration, at.want
		f.applyBefore(i)
		for a := range sc.nodeCount() {
			for b := range a {
				if got := f.hw.bandwidth(a, b); got != want {
					t.Fatalf("iteration %d, n%d-n%d: %v, want %v", i, b, a, got, want)
				}
			}
		}
	}
}

// The work of a stage goes with the ranks of the stage.
func TestStageWorkFollowsThePlacement(t *testing.T) {
	sc := scenarioWith(t, "  - {at_iteration: 0, stage: 1, load: 2}\n")
	f := newFaults(sc, testSilicon(t, sc))
	f.applyBefore(0)
	load := func() (slow []int) {
		one := f.hw.loadUint64(offsetOfGPU(9, 0) + gpuLoad) // a spare's
		for n := range sc.nodeCount() {
			if f.hw.loadUint64(offsetOfGPU(n, 0)+gpuLoad) != one {
				slow = append(slow, n)
			}
		}
		return slow
	}
	if got := load(); !slices.Equal(got, []int{4, 5, 6, 7}) {
		t.Fatalf("slow nodes %v", got)
	}
	p := sc.Placement()
	p[0], p[7] = p[7], p[0]
	f.setPlacement(p)
	if got := load(); !slices.Equal(got, []int{0, 4, 5, 6}) {
		t.Errorf("slow nodes %v after n0 and n7 changed places", got)
	}
}

// A death is dealt once, in the step of the rank that it names.
func TestDeaths(t *testing.T) {
	sc := scenarioWith(t, `  - {at_iteration: 3, kill: console}
  - {kill: rank 5, on_step: dump}
  - {kill: agent n2, on_step: swap}
`)
	f := newFaults(sc, testSilicon(t, sc))
	for _, step := range []struct {
		next int64
		step string
		rank falcon.Rank
		want []string
	}{
		{2, "", -1, nil},
		{3, "", -1, []string{"console"}},
		{4, "", -1, nil},
		{4, "dump", 4, nil},
		{4, "dump", 5, []string{"rank 5"}},
		{4, "dump", 5, nil},
		{4, "swap", 0, []string{"agent n2"}},
	} {
		var got []string
		for _, e := range f.deathsBefore(step.next, step.step, step.rank) {
			got = append(got, e.Kill)
		}
		if !slices.Equal(got, step.want) {
			t.Errorf("iteration %d step %q rank %d: %v, want %v",
				step.next, step.step, step.rank, got, step.want)
		}
	}
	if f.applyBefore(4); len(f.injected) != 0 {
		t.Errorf("deaths are no faults of hardware: %+v", f.injected)
	}
}
