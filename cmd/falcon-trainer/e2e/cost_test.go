package e2e

import (
	"path/filepath"
	"strconv"
	"testing"

	"github.com/failslow/falcon"
)

// On emulated hardware moving a state takes the time of the emulated one, and a
// placement little more; a checkpoint and its return go through the storage.
func TestEmulatedStateTakesItsTime(t *testing.T) {
	const (
		stateMB, copyMs = 10, 10.0             // 1 GB/s
		linkMs          = stateMB * 1e9 / 50e6 // labInterBw
		diskMs          = stateMB * 1e3 / 40.0
		overheadMs      = 1000 // the most that the control of a placement may take
		slackMs         = 5    // of a clock that began a little later
	)
	dir := t.TempDir()
	args := job(
		1,
		2,
		2,
		2,
		14,
		"--fwd-ms=2",
		"--state-mb="+strconv.Itoa(stateMB),
		"--copy-gb-s=1",
		"--disk-mb-s=40",
		"--checkpoint-dir="+filepath.Join(dir, "saved"),
	)
	env := []string{"FALCON_LAB_STATE=" + paced(t, dir, args, 4)}
	p := player{
		world:  4,
		args:   args,
		env:    env,
		apart:  true,
		orders: placement(1, 1, []int32{1, 0, 3, 2}) + " ; 2 3 1 6 1 1",
	}
	for r, got := range p.play(t) {
		o := got.overs()
		if got.code != 0 ||
			len(o) != 1 ||
			!o[0].Committed ||
			got.end.End != "checkpointed" {
			t.Fatalf("process %d: code %d, %+v, %+v: %s", r, got.code, o, got.end, got.said)
		}
		over := got.overs()[0]
		total := 0.0
		for _, step := range falcon.SwapSteps {
			total += over.StepMs[step]
		}
		emulated := copyMs + linkMs + copyMs
		if over.EmulatedMs < emulated-slackMs || total < emulated-slackMs || total > emulated+overheadMs {
			t.Errorf("process %d: %.1f ms, of which %.1f emulated, want from %.1f on and %d more at most: %v",
				r, total, over.EmulatedMs, emulated, overheadMs, over.StepMs)
		}
		if save := got.saved[0]; save.DumpMs < copyMs || save.StoreMs < diskMs-slackMs {
			t.Errorf("process %d: %+v", r, save)
		}
		if r == 0 {
			t.Logf("placement %.1f ms: %.0f emulated, %.1f of control; checkpoint %.1f ms",
				total, over.EmulatedMs, total-over.EmulatedMs, got.saved[0].Ms)
		}
	}
	p.args = append(args, "--resume")
	p.orders = ""
	for r, got := range p.play(t) {
		if len(got.resumed) != 1 ||
			got.resumed[0].LoadMs < diskMs-slackMs ||
			got.resumed[0].RestoreMs < copyMs {
			t.Errorf("process %d: %+v: %s", r, got.resumed, got.said)
		}
	}
}
