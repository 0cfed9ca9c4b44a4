package main

import (
	"testing"

	"github.com/failslow/falcon/agent/lab"
)

// TestLabStrangers plays the loss of a node while another user of each machine has taken
// every name that an agent uses in shared memory, and takes it again: the job is recovered
// as without, and no healthy node is given up.
func TestLabStrangers(t *testing.T) {
	if testing.Short() {
		t.Skip("whole lab runs")
	}
	binFalcon(t)
	sc, err := lab.Load("node-loss")
	if err != nil {
		t.Fatal(err)
	}
	sc.Name = "strangers"
	sc.Strangers = true
	sc.Iterations = 45
	run := recoverRun{sc: sc, want: recoveryWants{[]int{4, 5}, 1}}
	run.play(t, t.TempDir())
}
