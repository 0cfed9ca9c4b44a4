package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/ring"
	"github.com/failslow/falcon/cmd/falcon-trainer/snapshot"
)

type recoverJob struct {
	name   string
	layout falcon.Layout
	slices int
	more   []string
}

// recoverJobs hold their shards in different ways: everybody all of a stage's
// slice, or in two instances a half each.
var recoverJobs = []recoverJob{
	{"plain", falcon.Layout{TP: 2, DP: 2, PP: 2}, 1, nil},
	{"zero", falcon.Layout{TP: 1, DP: 4, PP: 2}, 2, []string{"--zero=1", "--zero-instances=2"}},
}

const recoverIterations = 10

func recoverArgs(l falcon.Layout, more ...string) []string {
	return job(l.TP, l.DP, l.PP, 4, recoverIterations, more...)
}

// layoutsToRecover are the jobs that recover: one of them in a short run.
func layoutsToRecover() []recoverJob {
	if testing.Short() {
		return recoverJobs[:1]
	}
	return recoverJobs
}

// One rank dies at each point of an iteration: its process alone is replaced,
// and the weights and samples are those of a run without a fault.
func TestARankDiesAtEachPoint(t *testing.T) {
	need(t)
	for _, j := range layoutsToRecover() {
		args := recoverArgs(j.layout, j.more...)
		want := unharmed(t, j.layout, args)
		for i, point := range []string{
			"forward", "backward", "before-barrier", "mid-update", "after-update", "gather",
		} {
			rank := (3*i + 1) % j.layout.World()
			t.Run(fmt.Sprintf("%s/%s-%d", j.name, point, rank), func(t *testing.T) {
				c := muster(
					t,
					j.layout,
					j.slices,
					append(args, fmt.Sprintf("--fault=%s@%d:%d", point, 3+i%3, rank))...,
				)
				c.run(1)
				c.same(want)
				if len(c.gone) == 0 {
					t.Fatal("nobody died")
				}
				struck := c.history(c.gone[0]).struck
				if !slices.Equal(struck, []string{point}) {
					t.Errorf("it was struck at %v", struck)
				}
				if len(c.gone) != 1 ||
					len(c.resumed) != 1 ||
					c.gone[0].rank != rank {
					t.Errorf("%d processes went, resumed at %v", len(c.gone), c.resumed)
				}
			})
		}
	}
}

// A second rank dies while the job comes back from the first death: in the
// parking, while the groups are made, as the one that takes a shard, aside of
// it; and as its only source, so that all must go back to storage.
func TestASecondFaultDuringRecovery(t *testing.T) {
	need(t)
	for _, j := range layoutsToRecover() {
		args := recoverArgs(j.layout, j.more...)
		want := unharmed(t, j.layout, args)
		for _, second := range []string{
			"park@4:2", "groups@4:2/1", "restore@4:1/1", "restore@4:0/1", "restore@4:3/1",
		} {
			t.Run(j.name+"/"+second, func(t *testing.T) {
				c := muster(t, j.layout, j.slices, append(args, "--fault=backward@4:1", "--fault="+second,
					"--checkpoint-every=2", "--checkpoint-dir="+filepath.Join(t.TempDir(), "saved"))...)
				if second == "restore@4:3/1" {
					c.last = 4
				}
				c.run(1)
				c.same(want)
				atOnce := c.generation == 1 && strings.HasPrefix(second, "park")
				if len(c.gone) != 2 ||
					len(c.resumed) != 1 ||
					c.generation < 2 && !atOnce ||
					c.resumed[0] != 4 {
					t.Errorf("%d processes went, generation %d, resumed at %v",
						len(c.gone), c.generation, c.resumed)
				}
			})
		}
	}
}

// A node's ranks die at once, and later another one: shards come from replicas
// that were themselves restored.
func TestANodeDiesAndThenAnother(t *testing.T) {
	need(t)
	for _, j := range layoutsToRecover() {
		args := recoverArgs(j.layout, j.more...)
		want := unharmed(t, j.layout, args)
		t.Run(j.name, func(t *testing.T) {
			// replicas 0 and 1 of the first stage: (plain: tp 0 and 1), (zero: both slices)
			a := []int{0, 1}
			b := []int{2, 3}
			var faults []string
			for _, r := range a {
				faults = append(faults, fmt.Sprintf("--fault=forward@3:%d", r))
			}
			for _, r := range b {
				faults = append(faults, fmt.Sprintf("--fault=mid-update@6:%d", r))
			}
			c := muster(t, j.layout, j.slices, append(args, faults...)...)
			c.runLosing(len(faults))
			c.same(want)
			// The node's second rank may park before its point, and then be restored
			// to an iteration after it, because all others had finished that one.
			overtaken := len(c.gone) == 3 && c.resumed[len(c.resumed)-1] == 7
			if len(c.gone) != 4 && !overtaken || len(c.resumed) < 2 {
				t.Errorf("%d processes went, resumed at %v", len(c.gone), c.resumed)
			}
		})
	}
}

// A process that stands still is replaced. When it goes on, it is nobody.
func TestAFrozenRankIsReplaced(t *testing.T) {
	need(t)
	j := recoverJobs[1]
	args := recoverArgs(j.layout, j.more...)
	want := unharmed(t, j.layout, args)
	for _, point := range []string{"backward@4:5:freeze", "after-update@4:0:freeze"} {
		t.Run(point, func(t *testing.T) {
			c := muster(t, j.layout, j.slices, append(args, "--fault="+point)...)
			c.run(1)
			c.same(want)
			if len(c.gone) == 1 {
				c.thaw(c.gone[0])
			}
		})
	}
}

// Where no replica is left all go back to storage, in their processes; without
// a checkpoint, to the first weights.
func TestBackToStorageInPlace(t *testing.T) {
	need(t)
	for _, j := range layoutsToRecover() {
		args := recoverArgs(j.layout, j.more...)
		want := unharmed(t, j.layout, args)
		for _, every := range []int64{2, 0} {
			t.Run(fmt.Sprintf("%s/every-%d", j.name, every), func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "saved")
				c := muster(t, j.layout, j.slices, append(args, "--fault=backward@5:1",
					fmt.Sprintf("--checkpoint-every=%d", every), "--checkpoint-dir="+dir)...)
				c.storage = 2 * every
				c.run(1)
				c.same(want)
				for r, m := range c.members {
					h := c.history(m)
					if len(h.rejoins) != 1 ||
						h.rejoins[0].Source != -2 ||
						h.rejoins[0].Begins != 2*every ||
						h.start.Join != (r == 1) {
						t.Errorf("rank %d: %+v", r, h.rejoins)
					}
				}
				if owner, err := snapshot.Owner(dir); every > 0 && (owner != 1 || err != nil) {
					t.Errorf("the folder belongs to generation %d, %v", owner, err)
				}
			})
		}
	}
}

// What the agent reads of the job: how its state lies, and what storage holds.
func TestTheJobTellsItsState(t *testing.T) {
	need(t)
	l := falcon.Layout{TP: 1, DP: 4, PP: 2}
	c := muster(
		t,
		l,
		2,
		job(
			1,
			4,
			2,
			4,
			1_000_000,
			"--layers=8",
			"--zero=1",
			"--zero-instances=2",
			"--virtual-stages=2",
			"--state-mb=500",
			"--copy-gb-s=4",
			"--checkpoint-every=3",
			"--checkpoint-dir="+filepath.Join(t.TempDir(), "saved"),
		)...,
	)
	for r, m := range c.members {
		p := c.memory(m)
		until(t, "a checkpoint", func() bool { return p.JobState().Checkpoint >= 3 })
		s := p.JobState()
		s.Checkpoint = 0
		want := ring.JobState{
			ZeRO:          falcon.ZeRO{Stage: 1, Instances: 2},
			Bytes:         500e6,
			CopyBytesS:    4e9,
			MicroMin:      2,
			MicroMultiple: 2,
			Can: falcon.Can{
				Declared:   true,
				Park:       true,
				Split:      true,
				Place:      true,
				Checkpoint: true,
				Versions:   2,
			},
		}
		if s != want {
			t.Errorf("rank %d tells %+v, want %+v", r, s, want)
		}
		if err := p.PutOrder(falcon.Order{Epoch: 1, ID: 1, Kind: falcon.OrderStop}); err != nil {
			t.Fatal(err)
		}
	}
	c.run(0)
}

// A process killed at any moment of a placement: the others end it alike, for
// all or for none, park as the ranks that they are then, and go on.
func TestDeathInAPlacementIsRecovered(t *testing.T) {
	need(t)
	l := falcon.Layout{TP: 1, DP: 2, PP: 2}
	args := job(1, 2, 2, 4, 400)
	want := unharmed(t, l, args)
	for i, moment := range append(falcon.SwapSteps[:], "commit", "vote") {
		t.Run(moment, func(t *testing.T) {
			c := musterWith(
				t,
				l,
				1,
				map[int][]string{i % 4: {"--die-step=" + moment}},
				args...,
			)
			for _, m := range c.members {
				if p := c.memory(m); p != nil {
					if err := p.PutOrder(falcon.Order{
						Epoch:  1,
						ID:     1,
						Kind:   falcon.OrderPlacement,
						Blocks: []int32{3, 0, 1, 2},
					}); err != nil {
						t.Fatal(err)
					}
				}
			}
			c.run(1)
			c.same(want)
			if len(c.gone) != 1 || len(c.resumed) != 1 {
				t.Errorf("%d processes went, resumed at %v", len(c.gone), c.resumed)
			}
		})
	}
}

// Told to end, or by nobody how it goes on, a parked process ends.
func TestParkedProcessesEnd(t *testing.T) {
	need(t)
	l := falcon.Layout{TP: 1, DP: 2, PP: 1}
	c := muster(
		t,
		l,
		1,
		append(job(1, 2, 1, 4, 1_000_000), "--fault=forward@3:1")...,
	)
	p := c.memory(c.members[0])
	until(t, "the parking", func() bool {
		park, ok := p.Park()
		return ok && park.On
	})
	p.Stop(1)
	<-c.members[0].ended
	if h := c.history(c.members[0]); !c.members[0].finished() || h.end.End != "stopped" {
		t.Errorf("ordered to end, it ended with %v, %+v: %s",
			c.members[0].cmd.ProcessState, h.end, c.members[0].cmd.Stderr)
	}
	c = muster(
		t,
		l,
		1,
		append(job(1, 2, 1, 4, 1_000_000), "--fault=forward@3:1")...,
	)
	p = c.memory(c.members[0])
	until(t, "the parking", func() bool {
		park, ok := p.Park()
		return ok && park.On
	})
	if err := c.members[0].cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-c.members[0].ended
	if code := c.members[0].cmd.ProcessState.ExitCode(); code != 143 {
		t.Errorf("by SIGTERM it ended with %d", code)
	}
	t.Setenv("FALCON_PARK_AGENT_S", "1")
	c = muster(
		t,
		l,
		1,
		append(job(1, 2, 1, 4, 1_000_000), "--fault=forward@3:1")...,
	)
	<-c.members[0].ended
	if h := c.history(c.members[0]); c.members[0].cmd.ProcessState.ExitCode() != 3 || h.end.End != "peer" {
		t.Errorf("left alone, it ended with %v, %+v", c.members[0].cmd.ProcessState, h.end)
	}
}

// A suspension without a loss, whenever it comes, costs nobody anything but the
// iteration that it interrupts.
func TestSuspendedForNothing(t *testing.T) {
	need(t)
	const times = 4
	for _, j := range layoutsToRecover() {
		args := job(j.layout.TP, j.layout.DP, j.layout.PP, 4, 300, j.more...)
		want := unharmed(t, j.layout, args)
		t.Run(j.name, func(t *testing.T) {
			c := muster(t, j.layout, j.slices, args...)
			first := c.members[0]
			for k := range int64(times) {
				p := c.memory(first)
				until(t, "the next iterations", func() bool {
					return p.Control().Iteration > 20*k
				})
				if !c.recover() {
					t.Fatalf("a rank died of suspension %d: %v", k, c.lost())
				}
			}
			c.run(0)
			c.same(want)
			if len(c.gone) > 0 || len(c.history(first).rejoins) != times {
				t.Errorf("%d processes went, %d rejoins",
					len(c.gone), len(c.history(first).rejoins))
			}
		})
	}
}

// Interleaved stages, and a split that the order changes: samples are those of
// the order's shares, and the loss is that of the whole batch as ever.
func TestRejoinWithAnotherSplit(t *testing.T) {
	need(t)
	l := falcon.Layout{TP: 1, DP: 3, PP: 2}
	args := recoverArgs(l, "--virtual-stages=2")
	want := unharmed(t, l, args)
	c := muster(t, l, 1, append(args, "--fault=backward@4:2")...)
	c.split = []int32{6, 4, 2}
	c.run(1)
	for r, m := range c.members {
		h := c.history(m)
		from := *h.trained[0].Iteration
		agree(t, fmt.Sprintf("rank %d", r), h.losses, want[r].losses[from:], 1e-4)
		for i, got := range h.micro {
			it := from + int64(i)
			if it >= 4 && got != c.split[l.Coord(falcon.Rank(r)).DP] || it < 4 && got != 4 {
				t.Errorf("rank %d ran %d micro-batches in iteration %d", r, got, it)
			}
		}
	}
}

var recoveries = flag.Int("recoveries", 2, "jobs with faults at random that TestRandomFaults recovers")

// Faults at random points, ranks and iterations, in layouts of all kinds.
func TestRandomFaults(t *testing.T) {
	need(t)
	jobs := append(slices.Clone(recoverJobs), recoverJobs[0], recoverJobs[1])
	jobs[2].layout, jobs[2].more = falcon.Layout{TP: 1, DP: 3, PP: 2}, []string{"--virtual-stages=2"}
	jobs[3].layout = falcon.Layout{TP: 2, DP: 4, PP: 1}
	jobs[3].more = []string{"--zero=1", "--zero-instances=2", "--eval-every=3"}
	points := []string{"forward", "backward", "before-barrier", "mid-update", "after-update", "gather"}
	for range *recoveries {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 0))
		j := jobs[rng.IntN(len(jobs))]
		fault := fmt.Sprintf("%s@%d:%d",
			points[rng.IntN(len(points))], rng.IntN(recoverIterations), rng.IntN(j.layout.World()))
		if rng.IntN(4) == 0 {
			fault += ":freeze"
		}
		t.Run(fmt.Sprintf("%v%v/%s/seed-%d", j.layout, j.more, fault, seed), func(t *testing.T) {
			args := recoverArgs(j.layout, j.more...)
			want := unharmed(t, j.layout, args)
			c := muster(t, j.layout, j.slices, append(args, "--fault="+fault)...)
			c.run(1)
			c.same(want)
			if len(c.gone) != 1 || len(c.resumed) != 1 {
				t.Errorf("%d processes went, resumed at %v", len(c.gone), c.resumed)
			}
		})
	}
}

// With a single instance of the optimizer nobody holds a slice twice: all go
// back to storage, and only the dead one's process is another.
func TestOneInstanceHasNoReplica(t *testing.T) {
	need(t)
	l := falcon.Layout{TP: 1, DP: 2, PP: 2}
	args := recoverArgs(l, "--zero=1")
	want := unharmed(t, l, args)
	c := muster(
		t,
		l,
		2,
		append(args,
			"--fault=mid-update@5:3",
			"--checkpoint-every=2",
			"--checkpoint-dir="+filepath.Join(t.TempDir(), "saved"),
		)...,
	)
	c.last = 4
	c.run(1)
	c.same(want)
	for r, m := range c.members {
		h := c.history(m)
		if len(h.rejoins) != 1 ||
			h.rejoins[0].Source != -2 ||
			h.rejoins[0].Begins != 4 ||
			h.start.Join != (r == 3) {
			t.Errorf("rank %d: %+v", r, h.rejoins)
		}
	}
}
