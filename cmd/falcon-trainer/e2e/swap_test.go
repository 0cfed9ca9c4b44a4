package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/cmd/falcon-trainer/model"
)

// player is a job whose ranks get the same orders, each at another time.
type player struct {
	world  int
	orders string
	args   []string
	more   map[int][]string // of one rank, as launched
	env    []string
	apart  bool // each on a node of its own
}

// played is how one rank went.
type played struct {
	history
	code  int
	said  string
	trace string
}

// play runs the job to its end, however that comes, and returns each process's
// part, in the order of the ranks at the start.
func (p player) play(t *testing.T) []played {
	t.Helper()
	need(t)
	dir := t.TempDir()
	so := fakeJob(t)
	cmds := ranks(
		t,
		p.world,
		append(p.args, "--log="+filepath.Join(dir, "log.{rank}"))...,
	)
	for r, c := range cmds {
		c.Args = append(c.Args, p.more[r]...)
		c.Env = append(
			append(c.Env,
				"LD_PRELOAD="+so,
				"FAKE_ORDERS="+p.orders,
				"FAKE_TRACE="+filepath.Join(dir, "trace"),
			),
			p.env...,
		)
		if p.apart {
			c.Env = append(c.Env, "FALCON_LAB_NODE="+strconv.Itoa(r))
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Process.Kill() })
	}
	var out []played
	for r, c := range cmds {
		end(c)
		log, err1 := os.ReadFile(filepath.Join(dir, "log."+strconv.Itoa(r)))
		trace, err2 := os.ReadFile(filepath.Join(dir, "trace."+strconv.Itoa(r)))
		if err1 != nil || err2 != nil {
			t.Fatalf("rank %d left no files, %v: %s", r, c.ProcessState, c.Stderr)
		}
		out = append(out, played{
			parse(t, log),
			c.ProcessState.ExitCode(),
			c.Stderr.(*bytes.Buffer).String(),
			string(trace),
		})
	}
	return out
}

// end waits for a process, but not for ever.
func end(c *exec.Cmd) {
	hung := time.AfterFunc(limit, func() { _ = c.Process.Kill() })
	_ = c.Wait()
	hung.Stop()
}

// weights is the hash that the holder of logical rank 0 wrote, and no other.
func weights(t *testing.T, all []played) string {
	t.Helper()
	var found []string
	for r, p := range all {
		if p.code != 0 {
			t.Errorf("rank %d ended with %d: %s", r, p.code, p.said)
		}
		if p.weights != "" {
			found = append(found, p.weights)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d ranks wrote the weights", len(found))
	}
	return found[0]
}

// undisturbed is the hash of a job that runs through by itself, run once for
// all tests that ask.
func undisturbed(t *testing.T, args []string) string {
	t.Helper()
	key := strings.Join(args, " ")
	if hashes[key] == "" {
		hashes[key] = local(t, nil, args...).weights
	}
	return hashes[key]
}

var hashes = map[string]string{}

// overs are the last lines of a rank's placements.
func (p played) overs() []line {
	var out []line
	for _, l := range p.swaps {
		if l.State == "over" {
			out = append(out, l)
		}
	}
	return out
}

// placement writes an order for the fake hook.
func placement(id, at int, blocks []int32) string {
	return fmt.Sprintf("%d 2 1 %d %d %s",
		id, at, len(blocks), strings.Trim(fmt.Sprint(blocks), "[]"))
}

// shuffled is a permutation of n blocks that moves something.
func shuffled(rng *rand.Rand, n int) []int32 {
	for {
		var out []int32
		for _, i := range rng.Perm(n) {
			out = append(out, int32(i))
		}
		if !slices.IsSorted(out) {
			return out
		}
	}
}

// swapJobs are layouts whose ranks differ in different ways: in stage, in
// replica, in slice of the optimizer, in slice of the weights.
var swapJobs = []struct {
	tp, dp, pp int
	more       []string
}{
	{1, 4, 1, nil},
	{1, 2, 2, []string{"--zero=1"}},
	{1, 1, 4, nil},
	{2, 2, 1, []string{"--zero=1"}},
	{2, 1, 2, []string{"--virtual-stages=2"}},
	{1, 3, 2, []string{"--zero=1"}}, // slices with padding
	{1, 4, 1, []string{"--zero=1", "--zero-instances=2"}},
}

// Two placements at random iterations leave the weights as they would have been
// without, bit by bit, and the processes where the placements say.
func TestPlacementsKeepTheWeights(t *testing.T) {
	for _, j := range swapJobs {
		name := fmt.Sprintf("tp%d dp%d pp%d %v", j.tp, j.dp, j.pp, j.more)
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 0))
		l := falcon.Layout{TP: j.tp, DP: j.dp, PP: j.pp}
		world, n := l.World(), l.World()/j.tp
		a := shuffled(rng, n)
		b := shuffled(rng, n)
		first := rng.IntN(4)
		args := job(j.tp, j.dp, j.pp, 4, 14, j.more...)
		want := undisturbed(t, args)
		got := player{
			world:  world,
			args:   args,
			orders: placement(1, first, a) + " ; " + placement(2, first+4, b),
		}.play(
			t,
		)
		if w := weights(t, got); w != want {
			t.Errorf("%s, seed %d: %v at %d, then %v: weights %q, want %q", name, seed, a, first, b, w, want)
		}
		for r, p := range got {
			mid := model.Blocks(a).Rank(falcon.Rank(r), world)
			at := model.Blocks(b).Rank(mid, world)
			o := p.overs()
			if len(o) != 2 ||
				!o[0].Committed ||
				!o[1].Committed ||
				o[0].NewRank != int(mid) ||
				o[1].NewRank != int(at) {
				t.Errorf("%s, seed %d, process %d: %+v", name, seed, r, o)
			}
			if last := p.trained[len(p.trained)-1]; last.Rank != int(at) {
				t.Errorf("%s, seed %d, process %d ended as rank %d, want %d", name, seed, r, last.Rank, at)
			}
		}
	}
}

// What the hook receives: the place before the ack, once, and with the rank that
// holds from the next iteration on.
func TestPlacementsAreTold(t *testing.T) {
	got := player{world: 4, args: job(1, 2, 2, 3, 8), orders: placement(9, 1, []int32{2, 1, 0, 3})}.play(t)
	for r, want := range []string{"place 9 4 2\n", "", "place 9 4 0\n", ""} {
		announced := strings.Contains(got[r].trace, want+"describe 122 3 0\nack 9 4 0\nbegin_iteration 4 0 0\n")
		if !announced ||
			strings.Count(got[r].trace, "place 9") != strings.Count(want, "place 9") && want != "" {
			t.Errorf("process %d called:\n%s", r, got[r].trace)
		}
		if want == "" &&
			!strings.Contains(got[r].trace, fmt.Sprintf("place without state 9 4 %d\n", r)) {
			t.Errorf("process %d stays, and got no message of it:\n%s", r, got[r].trace)
		}
		if o := got[r].orders; len(o) != 1 || o[0].Status != 0 || o[0].From != 4 {
			t.Errorf("process %d: orders %+v", r, o)
		}
	}
}

// Uneven micro-batches and placements go together: the shares belong to the
// replicas, not to the processes, and there and back is as never away.
func TestPlacementsUnderUnevenSplits(t *testing.T) {
	args := job(1, 4, 1, 4, 18)
	there := []int32{1, 2, 3, 0}
	back := []int32{3, 0, 1, 2}
	split := "1 1 1 1 4 7 4 4 1"
	want := weights(t, player{world: 4, args: args, orders: split}.play(t))
	got := player{
		world:  4,
		args:   args,
		orders: split + " ; " + placement(2, 5, there) + " ; " + placement(3, 10, back),
	}.play(
		t,
	)
	if w := weights(t, got); w != want {
		t.Errorf("weights %q, want %q", w, want)
	}
	shares := []int32{7, 4, 4, 1}
	for r, p := range got {
		for _, l := range p.trained[5:] {
			if l.MicroBatches != shares[l.Rank] {
				t.Errorf("process %d as rank %d ran %d micro-batches in iteration %d, want %d",
					r, l.Rank, l.MicroBatches, *l.Iteration, shares[l.Rank])
			}
		}
	}
}

// A failure on one rank, in whatever step, undoes the placement on all; the job
// goes on as if nothing had been ordered, and takes the next order.
func TestFailedPlacementsAreUndone(t *testing.T) {
	args := job(1, 2, 2, 3, 14, "--zero=1")
	want := undisturbed(t, args)
	for i, step := range falcon.SwapSteps {
		got := player{
			world:  4,
			args:   args,
			more:   map[int][]string{i: {"--fail-step=" + step}},
			orders: placement(1, 2, []int32{3, 0, 1, 2}) + " ; " + placement(2, 7, []int32{1, 0, 3, 2}),
		}.play(t)
		if w := weights(t, got); w != want {
			t.Errorf("%s: weights %q, want %q", step, w, want)
		}
		for r, p := range got {
			o := p.orders
			over := p.overs()
			if len(o) != 2 ||
				o[0].Status != 5 ||
				o[0].Reason == "" ||
				o[1].Status != 0 {
				t.Errorf("%s: process %d: orders %+v", step, r, o)
			}
			if len(over) != 2 ||
				over[0].Committed ||
				over[0].Step != step ||
				over[0].NewRank != r ||
				!over[1].Committed {
				t.Errorf("%s: process %d: %+v", step, r, over)
			}
			if strings.Contains(p.trace, "place 1 ") {
				t.Errorf("%s: process %d reported to the hook a placement that was undone", step, r)
			}
		}
	}
}

// A process killed at any moment of a placement ends the others by themselves,
// soon, and all say the same of the placement.
func TestDeathInAPlacement(t *testing.T) {
	moments := append(falcon.SwapSteps[:], "commit", "vote", "vote", "vote", "vote")
	for i, moment := range moments {
		dies := i % len(falcon.SwapSteps)
		if moment == "vote" {
			dies = 0 // who adds for all, and may have answered some
		}
		began := time.Now()
		got := player{
			world:  4,
			args:   job(1, 2, 2, 3, 1_000_000),
			more:   map[int][]string{dies: {"--die-step=" + moment}},
			orders: placement(1, 2, []int32{3, 0, 1, 2}),
		}.play(t)
		var said []bool
		for r, p := range got {
			over := p.overs()
			if len(over) > 0 {
				said = append(said, over[0].Committed)
			}
			if r != dies &&
				(p.code != 3 || len(over) != 1 || p.end.End != "peer" || strings.Count(p.said, "\n") != 1) {
				t.Errorf("%s: process %d ended with %d, saying %q, %+v, %+v",
					moment, r, p.code, p.said, over, p.end)
			}
		}
		if len(slices.Compact(slices.Clone(said))) != 1 {
			t.Errorf("%s: %v", moment, said)
		}
		final := moment == "commit"
		if moment != "vote" && (len(said) != 3 || said[0] != final) { // the others know the vote, or can't
			t.Errorf("%s: %v, want three times %v", moment, said, final)
		}
		t.Logf("%s: all ended after %v, committed %v",
			moment, time.Since(began).Round(time.Millisecond), said)
	}
}

// What can't be placed is refused on all ranks alike.
func TestImpossiblePlacementsAreRefused(t *testing.T) {
	orders := []string{
		"1 2 1 0 2 0 1", "2 2 1 3 4 0 1 2 3", "3 2 1 6 2 1 1", "4 3 1 9 1 0", "5 9 1 12 0",
		"6 4 1 15 0",
	}
	got := player{world: 4, args: job(2, 2, 1, 2, 40), orders: strings.Join(orders, " ; ")}.play(t)
	for r, p := range got {
		var status []int32
		for _, o := range p.orders {
			status = append(status, o.Status)
		}
		if !slices.Equal(status, []int32{2, 2, 2, 2, 3, 0}) || p.end.End != "stopped" {
			t.Errorf("process %d: %+v, %+v", r, p.orders, p.end)
		}
	}
}
