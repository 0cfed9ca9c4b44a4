package lab

import (
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestProcessesBelow(t *testing.T) {
	parents := map[int]int{
		10: 1,
		11: 10,
		12: 10,
		13: 12,
		20: 1,
		21: 20,
	}
	if got := processesBelow(10, parents); !slices.Equal(got, []int{11, 12, 13}) {
		t.Error(got)
	}
	if got := processesBelow(21, parents); len(got) != 0 {
		t.Error(got)
	}
	if got := processesBelow(5, map[int]int{5: 6, 6: 5}); !slices.Equal(got, []int{6}) {
		t.Error("a cycle, which a reader of a changing list may see:", got)
	}
}

// A command line that a shell runs is killed with what the shell has started.
func TestSignalTreeReachesWhatAShellStarted(t *testing.T) {
	c := exec.Command("/bin/sh", "-c", "sleep 600 | sleep 600; true")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var below []int
	for end := time.Now().Add(20 * time.Second); len(below) < 2 &&
		time.Now().Before(end); time.Sleep(time.Millisecond) {
		below = processesBelow(c.Process.Pid, parentsOfAll())
	}
	if len(below) < 2 {
		t.Fatal("the shell has started nothing")
	}
	if err := signalTree(c.Process.Pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err == nil { // its end comes once all that hold it are gone
		t.Error("something was written")
	}
	if err := c.Wait(); err == nil {
		t.Error("the shell ended well")
	}
}
