package e2e

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/ring"
)

// until polls for a state of other processes that sends no message.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for give := time.Now().Add(limit); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(give) {
			t.Fatalf("never saw %s", what)
		}
	}
}

// hooked starts a job under the real hook and opens every rank's shared
// memory, in the order of the ranks.
func hooked(t *testing.T, world int, args ...string) (wait func(), rings []*ring.Process) {
	t.Helper()
	hook := hookLibrary(t)
	shm := t.TempDir()
	cmds := ranks(t, world, args...)
	for _, c := range cmds {
		c.Env = append(c.Env, "LD_PRELOAD="+hook, "FALCON_SHM_DIR="+shm, "FALCON_JOB=e2e")
	}
	start(t, cmds)
	var live []ring.Entry
	var err error
	until(t, "all ranks' shared memory", func() bool {
		live, _, err = ring.Discover(shm, "e2e")
		return err != nil || len(live) == world
	})
	rings = make([]*ring.Process, world)
	for _, e := range live {
		p, openErr := ring.Open(e.Path)
		if err = errors.Join(err, openErr); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		rings[p.Header().Rank] = p
	}
	return func() {
		for r, c := range cmds {
			hung := time.AfterFunc(limit, func() { _ = c.Process.Kill() })
			if err := c.Wait(); err != nil {
				t.Errorf("rank %d: %v: %s", r, err, c.Stderr.(*bytes.Buffer))
			}
			hung.Stop()
		}
	}, rings
}

// An order put into the ranks' mailboxes one after the other, as agents of
// different nodes would, is committed for the same iteration by all.
func TestOrdersThroughTheRealHook(t *testing.T) {
	need(t)
	const world = 8
	wait, rings := hooked(t, world, job(1, 4, 2, 4, 1_000_000)...)
	order := func(o falcon.Order) {
		for _, p := range rings {
			seen := p.Control().Iteration
			if err := p.PutOrder(o); err != nil {
				t.Fatal(err)
			}
			until(t, "the next iteration", func() bool {
				return p.Control().Iteration > seen || o.Kind == falcon.OrderStop
			})
		}
	}
	split := []int32{6, 5, 4, 1}
	order(falcon.Order{
		Epoch:        1,
		ID:           1,
		Kind:         falcon.OrderMicroBatches,
		MicroBatches: split,
	})
	for r, p := range rings {
		var c ring.Control
		until(t, "the commit", func() bool {
			c = p.Control()
			return c.CommittedOrder == 1 && c.MicroBatches == int(split[r%4])
		})
		if c.CommittedStatus != 0 || c.CommittedIteration != rings[0].Control().CommittedIteration {
			t.Errorf("rank %d committed %+v", r, c)
		}
		if c.TP != 1 || c.DP != 4 || c.PP != 2 {
			t.Errorf("rank %d described %d × %d × %d", r, c.TP, c.DP, c.PP)
		}
	}
	order(falcon.Order{Epoch: 1, ID: 2, Kind: falcon.OrderStop})
	wait()
	last := rings[0].Control()
	for r, p := range rings {
		c := p.Control()
		if c.CommittedOrder != 2 ||
			c.Iteration != last.Iteration ||
			c.StepTag != c.Iteration+1 {
			t.Errorf("rank %d ended with %+v, rank 0 with %+v", r, c, last)
		}
	}
}

// The communicators carry the names by which the agent tells dimensions apart.
func TestCommunicatorsAreNamed(t *testing.T) {
	need(t)
	wait, rings := hooked(t, 8, job(2, 2, 2, 2, 1_000_000)...)
	for r, p := range rings {
		sizes := map[string]int{}
		for _, c := range p.Comms(nil) {
			sizes[c.Name] = c.Size
		}
		for name, want := range map[string]int{"world": 8, "tp": 2, "dp": 2, "pp": 2} {
			if sizes[name] != want {
				t.Errorf("rank %d has communicators %v, want %s of %d", r, sizes, name, want)
			}
		}
		if err := p.PutOrder(falcon.Order{Epoch: 1, ID: 1, Kind: falcon.OrderStop}); err != nil {
			t.Fatal(err)
		}
	}
	wait()
}

// A placement and a checkpoint through the real hook: the agent reads what
// became of them, and the communicators of the new ranks stand beside no old
// ones.
func TestPlacementThroughTheRealHook(t *testing.T) {
	need(t)
	const world = 4
	wait, rings := hooked(
		t,
		world,
		job(1, 2, 2, 2, 1_000_000, "--checkpoint-dir="+filepath.Join(t.TempDir(), "saved"))...,
	)
	order := func(o falcon.Order) {
		for _, p := range rings {
			if err := p.PutOrder(o); err != nil {
				t.Fatal(err)
			}
		}
	}
	order(falcon.Order{
		Epoch:  1,
		ID:     1,
		Kind:   falcon.OrderPlacement,
		Blocks: []int32{1, 2, 0, 3},
	})
	ranks := []int{1, 2, 0, 3}
	for r, p := range rings {
		until(t, "the commit", func() bool { return p.Control().CommittedOrder == 1 })
		c := p.Control()
		place, ok := p.Place()
		if !ok ||
			c.CommittedStatus != 0 ||
			place.Order != 1 ||
			place.Rank != ranks[r] ||
			place.Iteration != c.CommittedIteration {
			t.Errorf("process %d: %+v, %+v", r, c, place)
		}
		moved := ranks[r] != r
		if (place.Bytes > 0) != moved || place.StepNs[2] <= 0 {
			t.Errorf("process %d: %+v", r, place)
		}
		live := func() (out []ring.Comm) {
			for _, c := range p.Comms(nil) {
				if c.State == ring.CommLive {
					out = append(out, c)
				}
			}
			return out
		}
		until(t, "the old communicators' end", func() bool { return len(live()) == 3 })
		for _, comm := range live() {
			if comm.Name == "world" && (comm.Rank != ranks[r] || comm.Size != world) {
				t.Errorf("process %d: %+v", r, comm)
			}
		}
	}
	order(falcon.Order{
		Epoch: 1,
		ID:    2,
		Kind:  falcon.OrderCheckpoint,
		Leave: true,
	})
	wait()
	for r, p := range rings {
		c := p.Control()
		if c.CommittedOrder != 2 ||
			c.CommittedStatus != 0 ||
			c.ResumeIteration != c.CommittedIteration ||
			c.ResumeIteration != c.Iteration+1 {
			t.Errorf("process %d ended with %+v", r, c)
		}
	}
}
