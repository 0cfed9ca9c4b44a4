package engine

import (
	"testing"
	"testing/synctest"

	"github.com/failslow/falcon/detect"
)

// What the detector hands out to be compared comes back into its steps, once, in a later turn;
// the loop does not wait for it.
func TestComparedBesideTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		b.until(6)
		b.inLoop(func() {
			b.det.ready.Compare = &detect.Comparison{Window: 9}
		})
		b.turn()
		synctest.Wait()
		b.turn()
		var got []uint64
		for _, in := range b.det.log {
			if c, ok := in.(detect.Compared); ok {
				got = append(got, c.Window)
			}
		}
		if len(got) != 1 || got[0] != 9 {
			t.Fatalf("compared: %v", got)
		}
	})
}
