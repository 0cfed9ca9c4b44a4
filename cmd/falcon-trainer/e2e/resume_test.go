package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon/cmd/falcon-trainer/model"
	"github.com/failslow/falcon/cmd/falcon-trainer/snapshot"
)

// checkpointed is what a run that was ordered to leave left behind.
func checkpointed(t *testing.T, all []played) {
	t.Helper()
	for r, p := range all {
		o := p.orders
		if p.code != 0 ||
			p.end.End != "checkpointed" ||
			p.weights != "" ||
			len(o) != 1 ||
			o[0].Status != 0 ||
			p.end.Next != o[0].From {
			t.Errorf("process %d: code %d, %+v, orders %+v: %s", r, p.code, p.end, o, p.said)
		}
	}
}

// A job that leaves by a checkpoint and goes on from it, by other processes,
// ends with the weights of one that never left.
func TestResumedRunsEndAlike(t *testing.T) {
	for _, j := range swapJobs {
		name := fmt.Sprintf("tp%d dp%d pp%d %v", j.tp, j.dp, j.pp, j.more)
		world := j.tp * j.dp * j.pp
		args := job(j.tp, j.dp, j.pp, 4, 14, j.more...)
		want := undisturbed(t, args)
		args = append(args, "--checkpoint-dir="+filepath.Join(t.TempDir(), "saved"))
		checkpointed(t, player{world: world, args: args, orders: "1 3 1 4 1 1"}.play(t))
		got := player{
			world: world,
			args:  append(args, "--resume"),
			env:   []string{"FALCON_GENERATION=1"},
		}.play(
			t,
		)
		if w := weights(t, got); w != want {
			t.Errorf("%s: weights %q, want %q", name, w, want)
		}
		for r, p := range got {
			from := p.trained[0].Iteration
			if len(p.resumed) != 1 ||
				*p.resumed[0].Resume != *from ||
				*from < 5 ||
				len(p.losses) != 14-int(*from) ||
				p.start.Generation != 1 {
				t.Errorf("%s, rank %d: %+v, %d iterations from %d", name, r, p.resumed, len(p.losses), *from)
			}
		}
	}
}

// An ordered checkpoint without leaving changes nothing, also after ranks have
// changed places, and one that is half written is not gone on from.
func TestOnlyWholeCheckpointsAreResumed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "saved")
	args := job(1, 2, 2, 3, 14, "--zero=1")
	want := undisturbed(t, args)
	args = append(args, "--checkpoint-dir="+dir)
	orders := "1 3 1 1 1 0 ; " + placement(2, 4, []int32{1, 2, 3, 0}) + " ; 3 3 1 8 1 0"
	if w := weights(t, player{world: 4, args: args, orders: orders}.play(t)); w != want {
		t.Fatalf("weights %q, want %q", w, want)
	}
	sets, err := os.ReadDir(dir)
	if err != nil || len(sets) != 2 {
		t.Fatalf("%v, %v", sets, err)
	}
	newest := filepath.Join(dir, sets[1].Name())
	resume := func(from int64) {
		t.Helper()
		got := player{world: 4, args: append(args, "--resume")}.play(t)
		if w := weights(t, got); w != want || *got[0].resumed[0].Resume != from {
			t.Errorf("from %+v, want %d; weights %q, want %q", got[0].resumed, from, w, want)
		}
	}
	resume(11) // ordered at 8, by the latest rank at 10
	if err := os.Remove(filepath.Join(newest, "complete.json")); err != nil {
		t.Fatal(err)
	}
	resume(4)
	file := filepath.Join(dir, sets[0].Name(), "rank-00002.ckpt")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	got := player{world: 4, args: append(args, "--resume")}.play(t)
	if got[2].code != 1 ||
		!strings.Contains(got[2].said, "checksum") ||
		got[0].code == 0 {
		t.Errorf("rank 2 ended with %d, saying %q, rank 0 with %d",
			got[2].code, got[2].said, got[0].code)
	}
}

// A replica can be given up: the others go on with the next samples, in a
// smaller batch, as the plain reference does.
func TestAReplicaIsDropped(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "saved")
	args := job(1, 3, 2, 2, 12, "--checkpoint-dir="+dir)
	before := player{world: 6, args: args, orders: "1 3 1 2 1 1"}.play(t)
	checkpointed(t, before)
	after := player{world: 4, args: append(args, "--resume"), env: []string{"FALCON_GENERATION=1"}}.play(t)
	weights(t, after)
	ref := newReference(
		model.Shape{
			Hidden: 32,
			FFN:    48,
			Layers: 4,
			Batch:  4,
		},
		7,
		0.002,
		3*2*4,
	)
	var want []float64
	for range before[0].losses {
		want = append(want, ref.iterate())
	}
	ref.samples = 2 * 2 * 4
	for range after[0].losses {
		want = append(want, ref.iterate())
	}
	agree(
		t,
		"dp 3, then 2",
		append(before[0].losses, after[0].losses...),
		want,
		1e-5,
	)
	if len(want) != 12 {
		t.Errorf("%d iterations", len(want))
	}
}

// With the batch of all replicas given, it stays the same where a replica is
// given up: the others go on over the same samples, as if nothing had happened.
func TestFewerReplicasShareTheBatch(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "saved")
	args := job(1, 3, 2, 2, 12, "--global-batch=7", "--checkpoint-dir="+dir)
	before := player{world: 6, args: args, orders: "1 3 1 2 1 1"}.play(t)
	checkpointed(t, before)
	after := player{world: 4, args: append(args, "--resume"), env: []string{"FALCON_GENERATION=1"}}.play(t)
	weights(t, after)
	ref := newReference(
		model.Shape{
			Hidden: 32,
			FFN:    48,
			Layers: 4,
			Batch:  4,
		},
		7,
		0.002,
		7*4,
	)
	var want []float64
	for range 12 {
		want = append(want, ref.iterate())
	}
	agree(
		t,
		"7 micro-batches over 3 replicas, then 2",
		append(before[0].losses, after[0].losses...),
		want,
		1e-5,
	)
	first := after[1].trained[0]
	if first.MicroBatches != 3 || after[0].trained[0].MicroBatches != 4 {
		t.Errorf("replica 1 takes %d micro-batches, replica 0 %d",
			first.MicroBatches, after[0].trained[0].MicroBatches)
	}
	_, msg, code := execute(t, nil, job(1, 3, 1, 2, 3, "--global-batch=2")...)
	if code != 2 || !strings.Contains(string(msg), "2 micro-batches over 3 replicas") {
		t.Errorf("exit code %d, %q", code, msg)
	}
}

// Who is replaced in a job that has fewer replicas than its command names counts
// those that are there, too: it comes as far as asking for the hook.
func TestWhoJoinsFewerReplicas(t *testing.T) {
	env := []string{"RANK=1", "WORLD_SIZE=2", "FALCON_JOIN=1", "FALCON_GENERATION=2"}
	args := job(
		1,
		4,
		1,
		2,
		3,
		"--park", "--global-batch=8",
		"--rendezvous="+t.TempDir(),
	)
	if _, msg, code := execute(t, env, args...); code != 2 || !strings.Contains(string(msg), "no hook") {
		t.Errorf("exit code %d, %q", code, msg)
	}
	if _, msg, code := execute(t, env[:2], args...); code != 2 ||
		!strings.Contains(string(msg), "WORLD_SIZE is 2") {
		t.Errorf("exit code %d, %q", code, msg)
	}
}

func TestWhatCannotBeResumedIsSaid(t *testing.T) {
	dir := t.TempDir()
	_, msg, code := execute(
		t,
		nil,
		job(1, 1, 1, 2, 3, "--resume", "--checkpoint-dir="+dir)...,
	)
	if code != 1 || !strings.Contains(string(msg), "start without --resume") {
		t.Errorf("exit code %d, %q", code, msg)
	}
	local(
		t,
		nil,
		job(1, 4, 1, 2, 3, "--zero=1", "--checkpoint-every=2", "--checkpoint-dir="+dir)...,
	)
	_, msg, code = execute(
		t,
		nil,
		append([]string{"local"}, job(1, 2, 1, 2, 3, "--zero=1", "--resume", "--checkpoint-dir="+dir)...)...,
	)
	if code != 1 || !strings.Contains(string(msg), "only the replicas of plain data parallelism") {
		t.Errorf("exit code %d, %q", code, msg)
	}
}

// Whoever was left behind by a newer generation can't write beside it.
func TestAnOlderGenerationWritesNothing(t *testing.T) {
	dir := t.TempDir()
	args := job(1, 1, 1, 2, 3, "--checkpoint-every=1", "--checkpoint-dir="+dir)
	if _, msg, code := execute(t, []string{"FALCON_GENERATION=2"}, args...); code != 0 {
		t.Fatalf("exit code %d, %s", code, msg)
	}
	before := snapshot.Sets(dir)
	for _, generation := range []string{"0", "1"} {
		_, msg, code := execute(t, []string{"FALCON_GENERATION=" + generation}, args...)
		if code != 1 || !strings.Contains(string(msg), "belongs to a newer generation: 2") {
			t.Errorf("generation %s: exit code %d, %q", generation, code, msg)
		}
	}
	after := snapshot.Sets(dir)
	if len(before) == 0 || !slices.Equal(before, after) {
		t.Errorf("%v became %v", before, after)
	}
}

// A checkpoint that one rank can't write is refused on all, and the job goes on.
func TestACheckpointThatCannotBeWritten(t *testing.T) {
	blocked := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	args := job(1, 2, 1, 2, 8)
	good := "--checkpoint-dir=" + filepath.Join(t.TempDir(), "saved")
	got := player{
		world:  2,
		args:   args,
		orders: "1 3 1 1 1 1",
		more:   map[int][]string{0: {good}, 1: {"--checkpoint-dir=" + blocked}},
	}.play(t)
	if want := undisturbed(t, args); weights(t, got) != want {
		t.Error("the weights changed")
	}
	for r, p := range got {
		if len(p.orders) != 1 ||
			p.orders[0].Status != 6 ||
			p.orders[0].Reason == "" {
			t.Errorf("rank %d: orders %+v", r, p.orders)
		}
	}
}

// The log can go to a socket, which ends with the process.
func TestLogToASocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	lines := make(chan line, 64)
	go func() { // until the trainer ends
		defer close(lines)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		for sc := bufio.NewScanner(conn); sc.Scan(); {
			var one line
			if json.Unmarshal(sc.Bytes(), &one) == nil {
				lines <- one
			}
		}
	}()
	_, msg, code := execute(
		t,
		[]string{"FALCON_GENERATION=4"},
		job(1, 1, 1, 2, 3, "--log=unix:"+path)...,
	)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, msg)
	}
	var got []line
	for one := range lines {
		got = append(got, one)
	}
	if len(got) != 6 ||
		got[0].PID == 0 ||
		got[0].Generation != 4 ||
		got[4].Weights == "" ||
		got[5].End != "done" {
		t.Errorf("got %+v", got)
	}
	l.Close()
	if _, msg, code := execute(t, nil, job(1, 1, 1, 2, 3, "--log=unix:"+path)...); code != 1 ||
		!strings.Contains(string(msg), "nobody listens") {
		t.Errorf("exit code %d, %q", code, msg)
	}
}
