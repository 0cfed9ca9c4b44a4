package agent

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/failslow/falcon/agent/launch"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

const (
	realPatience = 90 * time.Second
	realRanks    = 4 // DP 2 × PP 2
)

// realJob is a real training job: hooked processes, real shared memory, the
// CPU stand-ins for NCCL, CUDA and cuBLAS, and an agent that follows it.
type realJob struct {
	dir   string
	ship  *fakeShip
	agent *Agent
	ranks []*exec.Cmd
	again launch.Config // how the agent starts the same ranks
}

// startJob skips where the native parts are not built.
func startJob(t *testing.T, args ...string) *realJob {
	t.Helper()
	return startJobBy(
		t,
		func(_ int, argv []string) []string { return argv },
		args...,
	)
}

// startJobBy starts each rank by the command that how makes of its own.
func startJobBy(t *testing.T, how func(rank int, argv []string) []string, args ...string) *realJob {
	t.Helper()
	bin := os.Getenv("FALCON_TEST_BIN") // of another build
	if bin == "" {
		bin = "../bin"
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		t.Fatal(err)
	}
	trainer := filepath.Join(bin, "falcon-trainer")
	hook := filepath.Join(bin, "lib", "libfalcon_hook.so")
	for _, need := range []string{
		trainer,
		hook,
		filepath.Join(bin, "falcon-agent"),
		filepath.Join(bin, "lib", "libnccl.so.2"),
	} {
		if _, err := os.Stat(need); err != nil {
			t.Skipf("%s is not built: run make build first", need)
		}
	}
	j := &realJob{dir: sharedFolder(t), ship: &fakeShip{}}
	rendezvous := filepath.Join(j.dir, "rendezvous")
	if err := os.Mkdir(rendezvous, 0o700); err != nil {
		t.Fatal(err)
	}
	args = append(
		[]string{"--dp", "2", "--pp", "2", "--micro-batches", "4", "--rendezvous", rendezvous},
		args...,
	)
	j.again = launch.Config{
		NodeRanks: realRanks,
		LogDir:    j.dir,
		Command: slices.Concat(
			[]string{
				filepath.Join(bin, "falcon-agent"),
				"run",
				"--job", "real",
				"--hook", hook,
				"--", trainer,
			},
			args,
			j.meet(rendezvous, args),
			[]string{"{resume}"},
		),
	}
	j.follow(t)
	for r := range realRanks {
		argv := how(r, append([]string{trainer}, args...))
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(),
			"RANK="+strconv.Itoa(r),
			"WORLD_SIZE="+strconv.Itoa(realRanks),
			"LOCAL_RANK="+strconv.Itoa(r),
			"LD_PRELOAD="+hook,
			"FALCON_JOB=real",
			"FALCON_SHM_DIR="+j.dir,
			"FALCON_TEST_MB=64",
			fmt.Sprintf("FALCON_DEVICE=n1.g%d", r),
		)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		j.ranks = append(j.ranks, cmd)
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	return j
}

// meet is where a launch's ranks meet: in a folder of its own, but for those that
// join others.
func (j *realJob) meet(folder string, args []string) []string {
	if slices.Contains(args, "--park") {
		return []string{"--rendezvous", folder}
	}
	return []string{"--rendezvous", folder + "-{generation}"}
}

// follow starts the agent on the job's directory.
func (j *realJob) follow(t *testing.T) {
	t.Helper()
	cfg := Defaults()
	cfg.Node = "n1"
	cfg.ShmDir = j.dir
	cfg.Job = "real"
	cfg.Launch = j.again
	j.agent = New(cfg, Options{})
	j.agent.Bind(j.ship)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- j.agent.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func (j *realJob) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(realPatience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("gave up waiting for %s; states %v", what, j.ship.states())
		}
	}
}

// byRank splits the samples.
func (j *realJob) byRank() map[int32][]*falconv1.Sample {
	out := map[int32][]*falconv1.Sample{}
	for _, s := range j.ship.samples() {
		out[s.Rank] = append(out[s.Rank], s)
	}
	return out
}

func (j *realJob) iterations(n int) func() bool {
	return func() bool {
		got := j.byRank()
		for r := range int32(realRanks) {
			if len(got[r]) < n {
				return false
			}
		}
		return true
	}
}

// result waits for the command's last word.
func (j *realJob) result(t *testing.T, id uint64) *falconv1.CommandResult {
	t.Helper()
	var last *falconv1.CommandResult
	j.until(t, "the command's end", func() bool {
		for _, r := range j.ship.results() {
			if r.Id == id && r.Status != accepted {
				last = r
			}
		}
		return last != nil
	})
	return last
}

// The whole path on real processes: exact samples, a profile, an order that
// the ranks vote on, and their ends.
func TestFollowsARealJob(t *testing.T) {
	const iterations = 1200
	j := startJob(t, "--iterations", strconv.Itoa(iterations))
	j.until(t, "the first iterations", j.iterations(5))

	profile := uint64(1)
	// the ranks compute nothing: an agent that waits for a processor loses some of their calls
	for ; ; profile++ {
		j.agent.Command(profileCommand(profile, 3))
		if r := j.result(t, profile); r.Status != done {
			t.Fatalf("profile: %v", r)
		}
		all := j.ship.profiles()
		if newest := all[len(all)-1]; profile == profileTries || !lost(newest) {
			checkRealProfile(t, newest)
			break
		}
	}

	order := orderCommand(profile+1, 1, 30*time.Second)
	order.GetOrder().MicroBatches = []int32{3, 5}
	j.agent.Command(order)
	r := j.result(t, profile+1)
	if r.Status != done || len(r.Ranks) != realRanks {
		t.Fatalf("order: %v", r)
	}
	for _, a := range r.Ranks {
		if a.Order != 1 || a.Status != 0 || a.Iteration != r.Ranks[0].Iteration {
			t.Fatalf("the ranks disagree: %v", r.Ranks)
		}
	}
	checkRealEnd(t, j, iterations)
}

const profileTries = 4

// lost reports whether the agent has lost calls of a rank.
func lost(p *falconv1.Profile) bool {
	return slices.ContainsFunc(p.Ranks, func(r *falconv1.RankProfile) bool { return r.Dropped != 0 })
}

func checkRealProfile(t *testing.T, p *falconv1.Profile) {
	t.Helper()
	if len(p.Ranks) != realRanks {
		t.Fatalf("profile of %d ranks: %s", len(p.Ranks), p.Refused)
	}
	members := map[[2]uint64]int{}
	for _, r := range p.Ranks {
		if r.Iterations < 3 ||
			r.SelfMs <= 0 ||
			r.MicroBatches != 4 ||
			len(r.Calls) == 0 ||
			r.Dropped != 0 {
			t.Fatalf("rank %d: %d iterations, self %v ms, %d micro-batches, %d calls, %d dropped",
				r.Rank, r.Iterations, r.SelfMs, r.MicroBatches, len(r.Calls), r.Dropped)
		}
		for _, c := range r.Calls {
			members[[2]uint64{c.Comm, c.Ordinal}]++
		}
	}
	world := 0
	for _, n := range members {
		if n == realRanks {
			world++
		}
	}
	if world < 2 {
		t.Fatalf("only %d calls were seen by all ranks: they can't be joined", world)
	}
}

func checkRealEnd(t *testing.T, j *realJob, iterations int) {
	t.Helper()
	ends := map[int32]*falconv1.RankState{}
	j.until(t, "the ends", func() bool {
		for _, st := range j.ship.states() {
			if !st.Alive {
				ends[st.Rank] = st
			}
		}
		left, _ := filepath.Glob(filepath.Join(j.dir, "falcon-*", "falcon.real.*"))
		top, _ := filepath.Glob(filepath.Join(j.dir, "falcon.real.*"))
		left = append(left, top...)
		return len(ends) == realRanks && len(left) == 0
	})
	for r, got := range j.byRank() {
		checkSeries(t, r, got, iterations)
	}
	for r, st := range ends {
		if st.Dp != 2 ||
			st.Pp != 2 ||
			st.Tp != 1 ||
			st.World != realRanks ||
			st.Device != fmt.Sprintf("n1.g%d", r) {
			t.Errorf("rank %d: %v", r, st)
		}
	}
}

// checkSeries wants every iteration once, in order, to the end. The hook keeps
// 64 marks: on a busy machine an unpaced job may overwrite some before the
// agent's look, above all before its first.
func checkSeries(t *testing.T, rank int32, got []*falconv1.Sample, iterations int) {
	t.Helper()
	if len(got) < iterations/2 || got[len(got)-1].Iteration != int64(iterations-2) {
		t.Fatalf("rank %d: %d samples of %d iterations", rank, len(got), iterations)
	}
	for i, s := range got {
		if !s.Exact || s.Ms <= 0 || (i > 0 && s.Iteration <= got[i-1].Iteration) {
			t.Fatalf("rank %d, sample %d: %v", rank, i, s)
		}
	}
}

// Without step marks the iterations are inferred from the calls, and all ranks
// number them alike.
func TestInfersARealJobsIterations(t *testing.T) {
	j := startJob(t, "--iterations", "400", "--marks", "off")
	j.until(t, "inferred iterations", j.iterations(100))
	ends := map[int64]map[int32]int64{} // when each rank ended an iteration
	for r, got := range j.byRank() {
		for i, s := range got {
			if s.Exact || (i > 0 && s.Iteration <= got[i-1].Iteration) {
				t.Fatalf("rank %d, sample %d: %v", r, i, s)
			}
		}
		for _, s := range got {
			if ends[s.Iteration] == nil {
				ends[s.Iteration] = map[int32]int64{}
			}
			ends[s.Iteration][r] = s.EndUnixNs
		}
	}
	checkAligned(t, ends)
}

// checkAligned wants the ranks to number iterations alike: the ends of one
// iteration are nearer to each other than to those of the next but one.
func checkAligned(t *testing.T, ends map[int64]map[int32]int64) {
	t.Helper()
	joined := 0
	for i, at := range ends {
		next := ends[i+2]
		if len(at) < realRanks || len(next) < realRanks {
			continue
		}
		joined++
		for r, ns := range at {
			for q := range at {
				if ns > next[q] {
					t.Fatalf("rank %d ends iteration %d after rank %d ends iteration %d", r, i, q, i+2)
				}
			}
		}
	}
	if joined < 20 {
		t.Fatalf("only %d iterations are known of all ranks", joined)
	}
}

// A killed rank is known as such at once; the others are followed on.
func TestSeesARealKill(t *testing.T) {
	j := startJob(t, "--iterations", "100000")
	j.until(t, "the first iterations", j.iterations(3))
	if err := j.ranks[2].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = j.ranks[2].Wait()
	j.until(t, "the end of rank 2", func() bool {
		for _, st := range j.ship.states() {
			if st.Rank == 2 &&
				!st.Alive &&
				(st.Exit == "killed by signal 9 (SIGKILL)" || st.Exit == "") {
				return true
			}
		}
		return false
	})
}
