package main

import (
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/lab"
)

// A PyTorch job that falcon_torch does not recover (fully_shard outside run) has declared so: when a rank
// is killed nothing is recovered in place, no process is started in its stead, and none trains or saves
// alone. Without a checkpoint a person is asked.
func TestTorchOutsideRun(t *testing.T) {
	if testing.Short() {
		t.Skip("a lab runs")
	}
	command := trainTorch(t, "fsdp_outside_run.py")
	saved := t.TempDir()
	t.Setenv("SAVED", saved)
	t.Setenv("ITERATIONS", "100000")
	sc := recoverScenario("outside-run", lab.Shape{TP: 1, DP: torchRanks, PP: 1}, 0)
	sc.Iterations = 100_000 // it is stopped
	l := startLab(t, sc, "", "--train", command)
	began := slices.Collect(maps.Values(l.status().RankPids))
	if _, err := lab.Ask(l.dir, lab.Request{Op: "kill", Target: "rank 3"}); err != nil {
		t.Fatal(err)
	}
	l.awaitRecoveries(func(list []falcon.Recovery) bool {
		return len(list) > 0 &&
			list[0].Whole &&
			list[0].State == falcon.RecoveryProposed
	})
	time.Sleep(10 * time.Second) // in which replacements would come to train
	list := l.awaitRecoveries(func([]falcon.Recovery) bool { return true })
	if len(list) != 1 ||
		list[0].State != falcon.RecoveryProposed ||
		len(list[0].Launched) > 0 {
		t.Errorf("%+v", list)
	}
	files, _ := filepath.Glob(filepath.Join(saved, "*.pt"))
	for _, file := range files {
		pid, _ := strconv.Atoi(strings.TrimSuffix(filepath.Base(file), ".pt"))
		if !slices.Contains(began, pid) {
			t.Errorf("%s was saved by a process that was started later", file)
		}
	}
	if len(files) != torchRanks {
		t.Errorf("%d processes have saved, want %d", len(files), torchRanks)
	}
	_, _ = lab.Ask(l.dir, lab.Request{Op: "stop"}) // its end is that of a job that was stopped
	<-l.ended
}

// All ranks of a PyTorch job raise the same exception after some iterations: the program is at fault.
// Nothing is started again, and a person is asked once, with the exception and its line.
func TestTorchSameError(t *testing.T) {
	if testing.Short() {
		t.Skip("a lab runs")
	}
	command := trainTorch(t, "fsdp_outside_run.py")
	t.Setenv("SAVED", t.TempDir())
	t.Setenv("ITERATIONS", "100000")
	t.Setenv("FAILS_AT", "60")
	sc := recoverScenario("same-error", lab.Shape{TP: 1, DP: torchRanks, PP: 1}, 0)
	sc.Iterations = 100_000
	l := startLab(t, sc, "", "--train", command)
	began := l.status().RankPids
	l.await(55, 3*time.Minute) // iterations of a second each, on two cores
	l.awaitRecoveries(func(list []falcon.Recovery) bool {
		return len(list) > 0 && list[0].Together == falcon.EndsAlike
	})
	time.Sleep(5 * time.Second) // in which policy would start it again
	list := l.awaitRecoveries(func([]falcon.Recovery) bool { return true })
	if len(list) != 1 ||
		list[0].State != falcon.RecoveryProposed ||
		len(list[0].Launched) > 0 {
		t.Fatalf("%+v", list)
	}
	if want := "ValueError at fsdp_outside_run.py:"; !strings.Contains(list[0].Reason, want) {
		t.Errorf("the person who is asked does not read %q: %s", want, list[0].Reason)
	}
	for rank, pid := range l.status().RankPids {
		if pid != began[rank] && pid > 0 {
			t.Errorf("rank %s was started again as process %d", rank, pid)
		}
	}
	_, _ = lab.Ask(l.dir, lab.Request{Op: "stop"}) // its end is that of a job that has failed
	<-l.ended
}
