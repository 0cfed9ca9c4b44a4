package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/lab"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
)

var (
	pauseCount = flag.Int("lab-pauses", 10, "pauses at random moments of one 16-rank job")
	pauseSeed  = flag.Uint64("lab-pause-seed", 1, "seed of the moments")
	ringCount  = flag.Int("lab-rings", 0,
		"validations of each ring of 4, 8 and 16 ranks; 0 = skip, it measures and judges only the passes")
)

// pauseScenario has no faults; %d are the layout, nodes, bandwidth and iterations.
const pauseScenario = `about: No faults; the job is held by hand. A rank that dies ends it.
park: false
layout: {tp: %d, dp: %d, pp: %d}
nodes: %d
micro_batches: 4
link_mb_s: %d
iterations: %d
`

// linkMBs makes a message of 1 MiB take 52 ms: a test's time is the network's,
// as on a cluster, and not that of two cores which play all nodes.
const linkMBs = 20

// cluster is a headless lab in a process of its own, driven through its
// engine's socket as an operator's console would.
type cluster struct {
	t      *testing.T
	tmp    string // TMPDIR of the lab: its status is its own
	report string
	out    bytes.Buffer
	ended  chan error
	client falconv1.ConsoleClient
}

func newCluster(t *testing.T, l falcon.Layout, nodes, iterations int, args ...string) *cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("a whole lab run takes a minute")
	}
	bin := binFalcon(t)
	tmp, err := os.MkdirTemp("", "fp") // short: unix sockets live below it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(tmp) })
	c := &cluster{
		t:      t,
		tmp:    tmp,
		report: filepath.Join(tmp, "report.json"),
		ended:  make(chan error, 1),
	}
	scenario := filepath.Join(tmp, "calm.yaml")
	writeFile(
		t,
		scenario,
		fmt.Sprintf(pauseScenario, l.TP, l.DP, l.PP, nodes, linkMBs, iterations),
	)
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(
		ctx,
		bin,
		append(
			[]string{
				"lab", "run", "--headless", "--approve", "never", "--scenario", scenario,
				"--report", c.report,
			},
			args...,
		)...,
	)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	cmd.Stdout, cmd.Stderr = &c.out, &c.out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		c.ended <- cmd.Wait()
	}()
	t.Cleanup(func() {
		cancel()
		<-gone
	})
	c.awaitIteration(25) // past the engine's warm-up and the profile behind it
	conn, err := feed.Dial(c.status().Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c.client = falconv1.NewConsoleClient(conn)
	return c
}

func (c *cluster) tryStatus() (lab.Status, error) {
	cmd := exec.Command(binFalcon(c.t), "lab", "status")
	cmd.Env = append(os.Environ(), "TMPDIR="+c.tmp)
	out, err := cmd.Output()
	var st lab.Status
	if err == nil {
		err = json.Unmarshal(out, &st)
	}
	return st, err
}

func (c *cluster) status() lab.Status {
	c.t.Helper()
	st, err := c.tryStatus()
	if err != nil {
		c.t.Fatalf("lab status: %v", err)
	}
	return st
}

func (c *cluster) awaitIteration(n int64) {
	c.t.Helper()
	waitFor(c.t, 3*time.Minute, fmt.Sprintf("iteration %d", n), func() bool {
		st, err := c.tryStatus()
		return err == nil && st.Iteration >= n
	})
}

// endWait is for the rest of the longest job of these tests, and its reference.
const endWait = 12 * time.Minute

// finish waits for the job's end and returns its report.
func (c *cluster) finish() lab.Report {
	c.t.Helper()
	select {
	case err := <-c.ended:
		if err != nil {
			c.t.Fatalf("the lab: %v\n%s", err, c.out.String())
		}
	case <-time.After(endWait):
		c.t.Fatal("the job did not end within " + endWait.String())
	}
	r, err := readReport(c.report)
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

const validationWait = 70 * time.Second // more than any order's life

// begin asks for a validation; a refusal comes back as one.
func (c *cluster) begin(q *falconv1.ValidateRequest) *falconv1.Validation {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), validationWait)
	defer cancel()
	r, err := c.client.Validate(ctx, q)
	if status.Code(err) == codes.FailedPrecondition {
		return &falconv1.Validation{
			State:  string(falcon.ValidationRefused),
			Reason: status.Convert(err).Message(),
		}
	}
	if err != nil {
		c.t.Fatalf("Validate: %v", err)
	}
	return r.GetValidation()
}

// follow polls the engine until the validation satisfies done.
func (c *cluster) follow(v *falconv1.Validation, done func(*falconv1.Validation) bool) *falconv1.Validation {
	c.t.Helper()
	for end := time.Now().Add(validationWait); !done(v); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("%s is still %s after %s", v.GetId(), v.GetState(), validationWait)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		r, err := c.client.Snapshot(ctx, &falconv1.SnapshotRequest{Rank: -1})
		cancel()
		if err != nil { // the engine may have been killed: the next one answers
			continue
		}
		if now := r.GetValidation(); now.GetId() == v.GetId() {
			v = now
		}
	}
	return v
}

// insist asks until it is not refused at once: a profile window that is under
// way is a reason to ask again a moment later. It counts refusals by reason.
func (c *cluster) insist(q *falconv1.ValidateRequest, refused map[string]int) *falconv1.Validation {
	c.t.Helper()
	var v *falconv1.Validation
	waitFor(c.t, 30*time.Second, "a validation that is not refused at once", func() bool {
		if v = c.begin(q); v.GetState() == string(falcon.ValidationRefused) {
			refused[v.GetReason()]++
		}
		return v.GetState() != string(falcon.ValidationRefused)
	})
	return v
}

func over(v *falconv1.Validation) bool {
	return falcon.ValidationState(v.GetState()).Over()
}

// validate runs one validation to its end.
func (c *cluster) validate(q *falconv1.ValidateRequest) *falconv1.Validation {
	c.t.Helper()
	return c.follow(c.begin(q), over)
}

// A 16-rank job is held at random moments and goes on each time: every request
// succeeds or is refused with a reason, no rank is lost, the weights are those
// of the undisturbed job, and the iterations' own time does not change.
func TestPausesAtRandomMoments(t *testing.T) {
	t.Parallel()
	const perPause = 10 // iterations: the moment, two more to the boundary, the order's way
	l := falcon.Layout{TP: 1, DP: 4, PP: 4}
	c := newCluster(t, l, 4, 40+perPause**pauseCount)
	pids := c.status().RankPids
	rng := rand.New(rand.NewPCG(*pauseSeed, 0x7061757365))
	var quiet, held []float64
	refused := map[string]int{}
	for k := range *pauseCount {
		// the random moment: two to three iterations
		time.Sleep(time.Duration(rng.Int64N(int64(300 * time.Millisecond))))
		q := &falconv1.ValidateRequest{
			Ranks:  []int32{rng.Int32N(16)},
			Gemm:   true,
			GemmN:  16,
			Reason: "a pause at a random moment",
		}
		v := c.follow(c.insist(q, refused), over)
		switch falcon.ValidationState(v.GetState()) {
		case falcon.ValidationDone:
			quiet = append(quiet, v.GetQuietMs())
			held = append(held, v.GetPausedMs())
		case falcon.ValidationRefused:
			refused[v.GetReason()]++
		default:
			t.Errorf("pause %d: %s: %s", k, v.GetState(), v.GetReason())
		}
	}
	after := c.status()
	if fmt.Sprint(after.RankPids) != fmt.Sprint(pids) {
		t.Errorf("ranks were replaced: %v, before %v", after.RankPids, pids)
	}
	r := c.finish()
	judgePauses(t, r, len(held))
	if len(held) == 0 {
		t.Fatalf("no pause succeeded; refused: %v", refused)
	}
	if refused[""] > 0 || len(held) < *pauseCount*9/10 {
		t.Errorf("%d of %d pauses succeeded; refused: %v", len(held), *pauseCount, refused)
	}
	t.Logf(
		"%d pauses: %d done, refused, by reason: %v; held for %.1f ms (%.1f to %.1f), quiet after %.1f ms (to %.1f)",
		*pauseCount, len(held), refused,
		middle(held), slices.Min(held), slices.Max(held), middle(quiet), slices.Max(quiet),
	)
}

// judgePauses: all iterations ran, with the reference's weights, and those that
// were held took no longer than the others but for the hold.
func judgePauses(t *testing.T, r lab.Report, pauses int) {
	t.Helper()
	if r.WeightsSha == "" || r.WeightsSha != r.ReferenceSha {
		t.Errorf("weights %q, reference %q", r.WeightsSha, r.ReferenceSha)
	}
	var free, paused []float64
	for _, it := range r.Iterations {
		switch {
		case it.Index < 10:
		case it.PausedMs > 0:
			paused = append(paused, it.Ms)
		default:
			free = append(free, it.Ms)
		}
	}
	if len(paused) < pauses {
		t.Errorf("%d iterations were held, %d pauses succeeded", len(paused), pauses)
	}
	if len(paused) == 0 || len(free) == 0 {
		t.Fatalf("%d held iterations, %d others", len(paused), len(free))
	}
	const noise = 0.15 // of a shared machine; a hold is longer than an iteration
	ratio := middle(paused) / middle(free)
	if ratio > 1+noise || ratio < 1-noise {
		t.Errorf("held iterations take %.1f ms without the hold, others %.1f", middle(paused), middle(free))
	}
	t.Logf("own time of held iterations %.1f ms, of others %.1f ms: ratio %.3f",
		middle(paused), middle(free), ratio)
}

// longTest keeps the job held for seconds: the emulated GPU takes about half a
// second for a product of this side.
func longTest() *falconv1.ValidateRequest {
	return &falconv1.ValidateRequest{
		Gemm:   true,
		GemmN:  320,
		Reason: "a long test",
	}
}

// held starts the long test and returns once the ranks are held.
func (c *cluster) held() *falconv1.Validation {
	c.t.Helper()
	v := c.insist(longTest(), map[string]int{})
	return c.follow(v, func(v *falconv1.Validation) bool {
		if over(v) {
			c.t.Fatalf("%s was to be held: %s %s", v.GetId(), v.GetState(), v.GetReason())
		}
		return v.GetState() == string(falcon.ValidationTesting)
	})
}

// goesOn: within the order's life and a margin the job is some iterations further.
func (c *cluster) goesOn(what string, pids map[string]int) {
	c.t.Helper()
	const life, margin = 10 * time.Second, 5 * time.Second
	from := c.status().Iteration
	began := time.Now()
	waitFor(c.t, life+margin, "the job to go on after "+what, func() bool {
		return c.status().Iteration >= from+3
	})
	if now := c.status().RankPids; fmt.Sprint(now) != fmt.Sprint(pids) {
		c.t.Errorf("%s: ranks were replaced: %v, before %v", what, now, pids)
	}
	c.t.Logf("%s: three iterations further after %.1f s", what, time.Since(began).Seconds())
}

// killedWhileHeld kills a program while the job is held, and returns the validation once it is
// over. On a loaded machine the kill may come when the test is done: then once more.
func (c *cluster) killedWhileHeld(
	what string,
	pids map[string]int,
	pid func(lab.Status) int,
) *falconv1.Validation {
	c.t.Helper()
	const tries = 3
	for try := 1; ; try++ {
		v := c.held()
		if err := syscall.Kill(pid(c.status()), syscall.SIGKILL); err != nil {
			c.t.Fatal(err)
		}
		c.goesOn(what, pids)
		v = c.follow(v, over)
		c.recovered(what)
		if v.GetState() != string(falcon.ValidationDone) || try == tries {
			return v
		}
		c.t.Logf("%s came when the test was done: once more", what)
	}
}

// kill -9 of an agent and of the engine while the job is held: the ranks go on,
// the validation is reported as failed, the next one succeeds, and the weights are
// the reference's.
func TestKillsWhileHeld(t *testing.T) {
	t.Parallel()
	c := newCluster(t, falcon.Layout{TP: 1, DP: 4, PP: 4}, 4, 200)
	pids := c.status().RankPids
	for _, victim := range []struct {
		what string
		pid  func(lab.Status) int
	}{
		{"kill -9 of an agent", func(s lab.Status) int { return s.AgentPids["n2"] }},
		{"kill -9 of the engine", func(s lab.Status) int { return s.EnginePid }},
	} {
		v := c.killedWhileHeld(victim.what, pids, victim.pid)
		if v.GetState() != string(falcon.ValidationFailed) || v.GetReason() == "" {
			t.Errorf("%s: the validation is reported as %s: %q", victim.what, v.GetState(), v.GetReason())
		}
		t.Logf("%s: %s", victim.what, v.GetReason())
	}
	r := c.finish()
	if r.WeightsSha == "" || r.WeightsSha != r.ReferenceSha {
		t.Errorf("weights %q, reference %q", r.WeightsSha, r.ReferenceSha)
	}
}

// recovered: once all nodes are back, the job can be held again.
func (c *cluster) recovered(what string) {
	c.t.Helper()
	var last *falconv1.Validation
	waitFor(c.t, 30*time.Second, "a pause that succeeds after "+what, func() bool {
		last = c.validate(&falconv1.ValidateRequest{
			Ranks: []int32{0},
			Gemm:  true,
			GemmN: 16,
		})
		if last.GetState() == string(falcon.ValidationFailed) {
			c.t.Logf("after %s: %s", what, last.GetReason())
		}
		return last.GetState() == string(falcon.ValidationDone)
	})
}

// kill -9 of a rank while the job is held: the job ends as it does without a
// hold, in one sentence that names the rank; nothing hangs.
func TestKilledRankWhileHeld(t *testing.T) {
	t.Parallel()
	c := newCluster(
		t,
		falcon.Layout{TP: 1, DP: 4, PP: 4},
		4,
		10_000,
		"--no-reference",
	)
	c.held()
	if err := syscall.Kill(c.status().RankPids["5"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-c.ended:
		if err == nil || !strings.Contains(c.out.String(), "rank 5 ") {
			t.Errorf("the lab ended with %v and said:\n%s", err, c.out.String())
		}
	case <-time.After(time.Minute):
		t.Fatal("the lab did not end within a minute of its rank's death")
	}
}

// TestRingPauses measures what the validation of a ring costs the job, for
// rings of 4, 8 and 16 ranks on as many nodes: one pause, of two passes each. Four paths are
// too few to compare with: the two between opposite nodes are tested beside them, in a third pass.
func TestRingPauses(t *testing.T) {
	if *ringCount == 0 {
		t.Skip("a measurement: run with -lab-rings N")
	}
	var table strings.Builder
	fmt.Fprintf(&table, "\n%5s %6s %10s %28s %28s\n",
		"ring", "passes", "pauses", "paused ms, median (range)", "quiet ms, median (range)")
	for _, n := range []int{4, 8, 16} {
		passes := 2
		times := 2 * n
		if n == 4 {
			passes, times = 3, 12
		}
		c := newCluster(
			t,
			falcon.Layout{TP: 1, DP: n, PP: 1},
			n,
			60+25**ringCount,
			"--no-reference",
		)
		var paused, quiet []float64
		for range *ringCount {
			v := c.follow(
				c.insist(
					&falconv1.ValidateRequest{
						LinkTest:     true,
						MessageBytes: 1 << 20,
						Reason:       "what a ring costs",
					},
					map[string]int{},
				),
				over,
			)
			if v.GetState() != string(falcon.ValidationDone) {
				t.Errorf("ring of %d: %s: %s", n, v.GetState(), v.GetReason())
				continue
			}
			if int(v.GetPasses()) != passes ||
				v.GetExtraPasses() != 0 ||
				len(v.GetLinks()) != times {
				t.Errorf("ring of %d: %d passes, %d of them extra, %d times; want %d, 0, %d",
					n, v.GetPasses(), v.GetExtraPasses(), len(v.GetLinks()), passes, times)
			}
			paused = append(paused, v.GetPausedMs())
			quiet = append(quiet, v.GetQuietMs())
		}
		c.finish()
		if len(paused) > 0 {
			fmt.Fprintf(&table, "%5d %6d %10d %28s %28s\n",
				n, passes, len(paused), spread(paused), spread(quiet))
		}
	}
	t.Log(table.String())
}

func spread(v []float64) string {
	return fmt.Sprintf("%.1f (%.1f to %.1f)", middle(v), slices.Min(v), slices.Max(v))
}
