package lab

import "testing"

// A fault that is held outlasts its scenario's end, and clears after its length once released.
func TestHeldFaultsWaitForRelease(t *testing.T) {
	sc, err := Load("gpu-throttle")
	if err != nil {
		t.Fatal(err)
	}
	f := newFaults(sc, testSilicon(t, sc))
	inForce := func(i int64) bool {
		f.applyBefore(i)
		return len(f.namesInForce()) > 0
	}
	f.holdAll()
	for i, want := range map[int64]bool{39: false, 40: true, 160: true, 5000: true} {
		if o := f.events[0]; o.holdsAt(i) != want {
			t.Errorf("iteration %d: held %v, want %v", i, !want, want)
		}
	}
	if !inForce(5000) {
		t.Fatal("the fault is not in force")
	}
	f.release(5000)
	for _, c := range []struct {
		at   int64
		want bool
	}{{5001, true}, {5119, true}, {5120, false}, {9000, false}} {
		if got := inForce(c.at); got != c.want {
			t.Errorf("iteration %d after the release: in force %v, want %v", c.at, got, c.want)
		}
	}
}

// A fault that has not begun when the others are released keeps its own begin and length.
func TestReleaseBeforeAFaultBegins(t *testing.T) {
	sc, err := Load("gpu-throttle")
	if err != nil {
		t.Fatal(err)
	}
	f := newFaults(sc, testSilicon(t, sc))
	f.holdAll()
	f.release(3)
	for i, want := range map[int64]bool{39: false, 40: true, 159: true, 160: false} {
		if got := f.events[0].holdsAt(i); got != want {
			t.Errorf("iteration %d: %v, want %v", i, got, want)
		}
	}
}
