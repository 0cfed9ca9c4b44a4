package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/ring"
)

// hookLibrary is the real hook.
func hookLibrary(t *testing.T) string {
	t.Helper()
	need(t)
	dir, err := libraries()
	if err != nil {
		t.Fatal(err)
	}
	hook := filepath.Join(dir, "libfalcon_hook.so")
	if _, err := os.Stat(hook); err != nil {
		t.Skip("the hook is not built; run `make native`")
	}
	return hook
}

// member is one process of a crew.
type member struct {
	rank  int
	cmd   *exec.Cmd
	log   string
	ring  *ring.Process
	ended chan struct{} // closed when the process has been waited for
}

// crew is a job under the real hook, whose agents the test plays: it sees the
// processes end, suspends the others, starts new ones and has all rejoin. It
// knows nothing of how Falcon decides: see plan.
type crew struct {
	t          *testing.T
	layout     falcon.Layout
	slices     int // different shards of a stage
	args       []string
	dir        string
	hook       string
	generation uint64
	members    []*member // by rank
	gone       []*member
	resumed    []int64          // iterations, one for each recovery that came to its end
	first      map[int][]string // more arguments of a rank's first process
	// iteration to which all go back where the next recovery is not from replicas, -1 = it is
	storage int64
	split   []int32 // micro-batches per replica from the next recovery on, nil = as they were
	last    int64   // and where no replica is left, -1 = that must not be
}

// muster starts all ranks.
func muster(t *testing.T, l falcon.Layout, slices int, args ...string) *crew {
	t.Helper()
	return musterWith(t, l, slices, nil, args...)
}

// musterWith is muster with more arguments for some ranks' first processes.
func musterWith(t *testing.T, l falcon.Layout, slices int, first map[int][]string, args ...string) *crew {
	t.Helper()
	c := &crew{
		t:       t,
		layout:  l,
		slices:  slices,
		dir:     t.TempDir(),
		hook:    hookLibrary(t),
		first:   first,
		storage: falcon.NoIteration,
		last:    falcon.NoIteration,
	}
	c.args = append(args, "--park", "--rendezvous="+filepath.Join(c.dir, "meet"))
	for r := range l.World() {
		c.members = append(c.members, c.start(r))
	}
	return c
}

func (c *crew) start(rank int) *member {
	c.t.Helper()
	m := &member{
		rank:  rank,
		log:   filepath.Join(c.dir, fmt.Sprintf("log.%d.%d", rank, c.generation)),
		ended: make(chan struct{}),
	}
	args := append(slices.Clone(c.args), "--log="+m.log)
	if c.generation == 0 {
		args = append(args, c.first[rank]...)
	}
	m.cmd = exec.CommandContext(c.t.Context(), trainer, args...)
	m.cmd.Env = append(clean(os.Environ()),
		"RANK="+strconv.Itoa(rank),
		"WORLD_SIZE="+strconv.Itoa(c.layout.World()),
		"LOCAL_RANK="+strconv.Itoa(rank%8),
		"LD_PRELOAD="+c.hook,
		"FALCON_SHM_DIR="+c.dir,
		"FALCON_JOB=e2e",
	)
	if c.generation > 0 {
		m.cmd.Env = append(m.cmd.Env,
			"FALCON_JOIN=1",
			"FALCON_GENERATION="+strconv.FormatUint(c.generation, 10),
		)
	}
	m.cmd.Stderr = new(bytes.Buffer)
	if err := m.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = m.cmd.Process.Kill()
		<-m.ended
	})
	go func() { // until the process ends
		_ = m.cmd.Wait()
		close(m.ended)
	}()
	return m
}

// dead reports whether a process has ended, or stands still for good.
func (m *member) dead() bool {
	select {
	case <-m.ended:
		return true
	default:
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.cmd.Process.Pid))
	_, state, found := strings.Cut(string(stat), ") ")
	return err == nil && found && strings.HasPrefix(state, "T")
}

// finished reports whether a process ended by itself, with success.
func (m *member) finished() bool {
	select {
	case <-m.ended:
		return m.cmd.ProcessState.Success()
	default:
		return false
	}
}

// memory opens the shared memory of a process once its hook has made it.
func (c *crew) memory(m *member) *ring.Process {
	c.t.Helper()
	until(c.t, "the shared memory of rank "+strconv.Itoa(m.rank), func() bool {
		if m.ring == nil {
			m.ring, _ = ring.Open(filepath.Join(c.dir, fmt.Sprintf("falcon.e2e.%d",
				m.cmd.Process.Pid)))
		}
		return m.ring != nil || m.dead()
	})
	return m.ring
}

// lost lists the ranks whose processes are dead.
func (c *crew) lost() []int {
	var out []int
	for r, m := range c.members {
		if m.dead() && !m.finished() {
			out = append(out, r)
		}
	}
	return out
}

// run sees the job to its end, and recovers it as often as it loses somebody;
// losses is how often it must.
func (c *crew) run(losses int) {
	c.t.Helper()
	for range losses {
		c.recoverNext()
	}
	c.end()
}

// runLosing sees the job to its end, and recovers it until it has lost so many
// processes. Two that die at the same point may be lost in one recovery or in
// two: the second may park before it comes to its point, and die after it rejoined,
// or pass its point by a restore and live.
func (c *crew) runLosing(processes int) {
	c.t.Helper()
	for len(c.gone) < processes && !c.done() {
		c.recoverNext()
	}
	c.end()
}

// recoverNext waits for the next loss, and recovers the job from it.
func (c *crew) recoverNext() {
	c.t.Helper()
	until(c.t, "a loss", func() bool {
		return len(c.lost()) > 0 || c.done()
	})
	for !c.done() && !c.recover() {
	}
}

// end waits for the end of the job, and makes sure that it is a good one.
func (c *crew) end() {
	c.t.Helper()
	until(c.t, "the end", func() bool {
		return c.done() || len(c.lost()) > 0
	})
	for r, m := range c.members {
		if !m.finished() {
			c.t.Errorf("rank %d did not end well: %v: %s", r, m.cmd.ProcessState, m.cmd.Stderr)
		}
	}
}

func (c *crew) done() bool {
	return !slices.ContainsFunc(c.members, func(m *member) bool {
		return !m.finished()
	})
}

// recover brings the job back once; false when it lost somebody else meanwhile.
func (c *crew) recover() bool {
	c.t.Helper()
	const generationsMax = 10
	if c.generation++; c.generation > generationsMax {
		c.t.Fatalf("%d generations, and the job is not back", c.generation)
	}
	lost := c.lost()
	for r, m := range c.members {
		if slices.Contains(lost, r) {
			continue
		}
		if p := c.memory(m); p != nil {
			if err := p.Suspend(c.generation, ring.MonoNs()+2e9); err != nil {
				c.t.Fatal(err)
			}
		}
	}
	for _, r := range lost {
		c.gone = append(c.gone, c.members[r])
	}
	c.members = slices.DeleteFunc(c.members, func(m *member) bool {
		return slices.Contains(c.gone, m)
	})
	well := c.all(func(m *member) bool { return c.parks(m) })
	c.rank()
	if !well || !c.all(func(m *member) bool { return c.parks(m) }) {
		return false
	}
	order := c.plan()
	for _, m := range c.members {
		if err := m.ring.PutRejoin(order); err != nil && !m.dead() {
			c.t.Fatal(err)
		}
	}
	if !c.all(func(m *member) bool { return c.rejoined(m) }) {
		return false
	}
	c.resumed = append(c.resumed, order.Resume)
	return true
}

// rank puts the members in the order of their ranks, which a placement may have
// changed, and starts new processes for those that nobody holds.
func (c *crew) rank() {
	c.t.Helper()
	byRank := make([]*member, c.layout.World())
	for _, m := range c.members {
		if p := c.memory(m); p != nil {
			if place, ok := p.Place(); ok && place.Order > 0 {
				m.rank = place.Rank
			}
		}
		if byRank[m.rank] != nil {
			c.t.Fatalf("two processes hold rank %d", m.rank)
		}
		byRank[m.rank] = m
	}
	for r, m := range byRank {
		if m == nil {
			byRank[r] = c.start(r)
		}
	}
	c.members = byRank
}

// all waits for something of all members; false when one dies first.
func (c *crew) all(ready func(*member) bool) bool {
	c.t.Helper()
	well := true
	until(c.t, "all ranks come", func() bool {
		if len(c.lost()) > 0 {
			well = false
			return true
		}
		return !slices.ContainsFunc(c.members, func(m *member) bool { return !ready(m) })
	})
	return well
}

func (c *crew) parks(m *member) bool {
	p := c.memory(m)
	if p == nil {
		return false
	}
	p.Beat(false)
	park, ok := p.Park()
	return ok && park.On && park.Generation >= c.generation
}

// rejoined reports whether a rank trains again; one whose rejoin failed has lost
// somebody, who is seen to be dead before long.
func (c *crew) rejoined(m *member) bool {
	r, ok := m.ring.Rejoined()
	return ok && r.Generation == c.generation && r.Status == 0
}

// shard names what rank holds: its replicas have the same name.
func (c *crew) shard(rank int) [3]int {
	at := c.layout.Coord(falcon.Rank(rank))
	return [3]int{at.TP, at.PP, at.DP % c.slices}
}

// plan chooses, in the plainest way, the newest step of which every shard is
// held by somebody, and the first who holds it as its source.
func (c *crew) plan() ring.Rejoin {
	c.t.Helper()
	if c.storage >= 0 {
		at := c.storage
		c.storage = falcon.NoIteration
		return ring.Rejoin{
			Generation: c.generation,
			Resume:     at,
			Checkpoint: true,
		}
	}
	holders := map[int64]map[[3]int][]int{}
	sums := map[string]uint64{}
	for r, m := range c.members {
		park, ok := m.ring.Park()
		if !ok || park.Tag == -1 && park.Status == 0 {
			c.t.Fatalf("rank %d parks with %+v", r, park)
		}
		for i, s := range park.Hold.Steps {
			if s < 0 {
				continue
			}
			if holders[s] == nil {
				holders[s] = map[[3]int][]int{}
			}
			shard := c.shard(r)
			holders[s][shard] = append(holders[s][shard], r)
			key := fmt.Sprint(s, shard)
			if had, known := sums[key]; known && had != park.Hold.Sums[i] {
				c.t.Errorf("rank %d and others hold different states of step %d", r, s)
			}
			sums[key] = park.Hold.Sums[i]
		}
	}
	best := int64(-1)
	for s, held := range holders {
		if len(held) == c.layout.TP*c.layout.PP*c.slices {
			best = max(best, s)
		}
	}
	if best < 0 && c.last >= 0 {
		return ring.Rejoin{
			Generation: c.generation,
			Resume:     c.last,
			Checkpoint: true,
		}
	}
	if best < 0 {
		c.t.Fatalf("no step of which all shards are held: %v", holders)
	}
	order := ring.Rejoin{
		Generation:   c.generation,
		Resume:       best,
		MicroBatches: c.split,
	}
	for r := range c.members {
		held := holders[best][c.shard(r)]
		if !slices.Contains(held, r) {
			order.Moves = append(order.Moves, falcon.ShardMove{
				Rank: falcon.Rank(r),
				From: falcon.Rank(held[0]),
			})
		}
	}
	return order
}

// history is what one process wrote.
func (c *crew) history(m *member) history {
	c.t.Helper()
	b, err := os.ReadFile(m.log)
	if err != nil {
		c.t.Fatal(err)
	}
	if last := bytes.LastIndexByte(b, '\n'); last >= 0 {
		b = b[:last+1] // who was killed may have been writing
	}
	return parse(c.t, b)
}

// same compares all that was trained, and what came out, with an undisturbed run.
func (c *crew) same(want []history) {
	c.t.Helper()
	var weights string
	for r, m := range c.members {
		got := c.history(m)
		if r == 0 {
			weights = got.weights
		}
		for _, l := range got.trained {
			w := want[l.Rank].trained[*l.Iteration]
			if l.Loss != w.Loss ||
				l.FirstSample != w.FirstSample ||
				l.MicroBatches != w.MicroBatches {
				c.t.Errorf(
					"rank %d, iteration %d: loss %v on %d micro-batches from sample %d, want %v, %d, %d",
					r, *l.Iteration, l.Loss, l.MicroBatches, l.FirstSample, w.Loss, w.MicroBatches,
					w.FirstSample,
				)
			}
		}
		c.whole(r, got, int64(len(want[r].trained)))
		c.redone(r, got)
	}
	if weights == "" || weights != want[0].weights {
		c.t.Errorf("weights %q, want %q", weights, want[0].weights)
	}
}

// whole makes sure that a rank trained all iterations from the beginning, or
// from where it joined. Of those that it was in when it parked, one may be
// missing: what another rank held spared it that.
func (c *crew) whole(rank int, h history, iterations int64) {
	c.t.Helper()
	var seen int64
	from := int64(0)
	first := slices.IndexFunc(h.rejoins, func(l line) bool { return l.Status == 0 })
	if h.start.Join && first >= 0 {
		from = h.rejoins[first].Begins
	}
	for i, l := range h.trained {
		if i == 0 && *l.Iteration < from || i > 0 && *l.Iteration <= *h.trained[i-1].Iteration {
			c.t.Errorf("rank %d trained iteration %d out of order", rank, *l.Iteration)
		}
		seen++
	}
	if missing := iterations - from - seen; missing < 0 || missing > int64(len(h.rejoins)) {
		c.t.Errorf("rank %d trained %d iterations from %d of %d", rank, seen, from, iterations)
	}
}

// redone makes sure that a survivor ran at most one finished step again.
func (c *crew) redone(rank int, h history) {
	c.t.Helper()
	for i, r := range h.rejoins {
		if i >= len(h.parked) || r.Status != 0 || r.Source == -2 {
			continue
		}
		if done := h.parked[i].Next; done-r.Begins > 1 {
			c.t.Errorf("rank %d went from iteration %d back to %d", rank, done, r.Begins)
		}
	}
}

// unharmed is an undisturbed run without a hook, by rank.
func unharmed(t *testing.T, l falcon.Layout, args []string) []history {
	t.Helper()
	key := strings.Join(args, " ")
	if unharmedRuns[key] == nil {
		dir := t.TempDir()
		local(
			t,
			nil,
			append(slices.Clone(args), "--log="+filepath.Join(dir, "log.{rank}"))...,
		)
		for r := range l.World() {
			b, err := os.ReadFile(filepath.Join(dir, "log."+strconv.Itoa(r)))
			if err != nil {
				t.Fatal(err)
			}
			unharmedRuns[key] = append(unharmedRuns[key], parse(t, b))
		}
	}
	return unharmedRuns[key]
}

var unharmedRuns = map[string][]history{}

// thaw lets a frozen process go on, which was replaced meanwhile: it must find
// its job gone, and end when they are ordered to.
func (c *crew) thaw(m *member) {
	c.t.Helper()
	if err := m.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		c.t.Fatal(err)
	}
	p := c.memory(m)
	until(c.t, "the frozen one to park", func() bool {
		park, ok := p.Park()
		return ok && park.On || m.dead()
	})
	p.Stop(c.generation)
	<-m.ended
	if h := c.history(m); !m.finished() || h.end.End != "stopped" {
		c.t.Errorf("rank %d, frozen and replaced, ended with %v, %+v", m.rank, m.cmd.ProcessState, h.end)
	}
}
