package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

var (
	torchPauses = flag.Int("torch-pauses", 0,
		"pauses at random moments of a PyTorch job of 8 ranks, on each backend, without and with overlap")
	torchScreen = flag.Bool("torch-screen", false, "mitigations of a PyTorch job approved on a real terminal")
)

// torchAlarm is what PyTorch prints when a watchdog or its monitor acts.
var torchAlarm = regexp.MustCompile(
	`(?i)watchdog (caught|got stuck|thread terminated)|heartbeat|timed out|caught collective operation timeout`,
)

// trainTorch is the command of a test's script on PyTorch, for --train.
func trainTorch(t *testing.T, script string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", "torch", script))
	if err != nil {
		t.Fatal(err)
	}
	return interpreterWithTorch(t) + " " + path
}

// A PyTorch job is held at random moments and goes on each time, on both backends,
// without and with overlap: no rank is lost,
// no watchdog acts, and every micro-batch counts once, as the job's own ledger shows.
func TestTorchPauses(t *testing.T) {
	if *torchPauses == 0 {
		t.Skip("give -torch-pauses")
	}
	var table strings.Builder
	for _, job := range torchJobs {
		t.Run(job.name, func(t *testing.T) {
			t.Setenv("BACKEND", job.backend)
			t.Setenv("BUCKET_MB", job.bucketMB)
			held, quiet := holdTorch(t)
			fmt.Fprintf(&table, "| %s | %d | %.0f, %.0f | %.0f, %.0f |\n",
				job.name, len(held), middle(held), slices.Max(held), middle(quiet),
				slices.Max(quiet))
		})
	}
	text := fmt.Sprintf(
		"## Pauses\n\nBy `make torch-pauses TORCH_PAUSES=%d`. %s\n\nA DDP job of %d ranks with `falcon_torch` is held at random moments for a matrix test of one GPU, and let go. No rank was replaced, PyTorch's watchdogs said nothing, and each micro-batch counted once. In ms, median and most: held, and from the order until all ranks were quiet.\n\n| Job | Pauses | Held | Quiet after |\n|---|---|---|---|\n%s",
		*torchPauses, machine(), torchRanks, table.String(),
	)
	t.Log(text)
	if !t.Failed() {
		writePage(t, "torch-pauses", text)
	}
}

func holdTorch(t *testing.T) (held, quiet []float64) {
	iterations := 60 + 8**torchPauses // 3.5 a pause
	logs := t.TempDir()
	t.Setenv("RANK_LOGS", logs)
	t.Setenv("ITERATIONS", fmt.Sprint(iterations))
	c := newCluster(
		t,
		falcon.Layout{TP: 1, DP: torchRanks, PP: 1},
		2,
		iterations,
		"--train", trainTorch(t, "ddp_kills.py"),
		"--gpu-gflops", "8",
	)
	pids := c.status().RankPids
	r := rand.New(rand.NewPCG(*pauseSeed, 0x746f726368))
	refused := map[string]int{}
	for k := 0; len(held) < *torchPauses; k++ {
		time.Sleep(time.Duration(r.Int64N(int64(time.Second))))
		v := c.follow(
			c.insist(
				&falconv1.ValidateRequest{
					Ranks:  []int32{r.Int32N(torchRanks)},
					Gemm:   true,
					GemmN:  16,
					Reason: "a pause at a random moment",
				},
				refused,
			),
			over,
		)
		switch state := falcon.ValidationState(v.GetState()); {
		case state == falcon.ValidationDone:
			held = append(held, v.GetPausedMs())
			quiet = append(quiet, v.GetQuietMs())
		case state != falcon.ValidationRefused || v.GetReason() == "":
			t.Errorf("pause %d: %s: %s", k, state, v.GetReason())
		case k-len(held) >= *torchPauses/10: // on a busy machine some are refused, with a reason
			t.Fatalf("pause %d: %d refused before; %s", k, k-len(held), v.GetReason())
		default:
			refused[v.GetReason()]++
		}
	}
	if after := c.status().RankPids; fmt.Sprint(after) != fmt.Sprint(pids) {
		t.Errorf("ranks were replaced: %v, before %v", after, pids)
	}
	report := c.finish() // a rank whose ledger is wrong fails it
	if len(report.Recoveries) > 0 {
		t.Errorf("%d recoveries\n%s", len(report.Recoveries), c.out.String())
	}
	judgeAlarms(t, logs)
	t.Logf("%d pauses done; refused: %v", len(held), refused)
	return held, quiet
}

// judgeAlarms: no rank's PyTorch has said that a watchdog acted.
func judgeAlarms(t *testing.T, logs string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(logs, "*"))
	if err != nil || len(files) < torchRanks {
		t.Fatalf("%d logs of %d ranks: %v", len(files), torchRanks, err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if alarm := torchAlarm.Find(b); err != nil || alarm != nil {
			t.Errorf("%s: %v, PyTorch raised an alarm: %q\n%s", file, err, alarm, b)
		}
	}
}

// torchSlow is a PyTorch job of eight replicas, one of which falls to half clock.
const torchSlow = `about: A GPU of a PyTorch job falls to half clock and stays there.
layout: {tp: 1, dp: 8, pp: 1}
nodes: 2
micro_batches: 4
iterations: 400
events:
  - {at_iteration: 30, gpu: n1.g0, clock: 0.5}
`

// torchLink is a PyTorch job of eight replicas in a ring over four nodes, one of whose links
// becomes slow: nodes in another order do not need it.
const torchLink = `about: A link of a PyTorch job falls to a tenth and stays there.
layout: {tp: 1, dp: 8, pp: 1}
nodes: 4
micro_batches: 4
iterations: 400
link_mb_s: 100
events:
  - {at_iteration: 30, link: n1-n2, bandwidth: 0.1}
`

// The operator of a PyTorch job approves S2 and S3 with the keyboard, and sees the gain.
func TestTorchScreen(t *testing.T) {
	if !*torchScreen {
		t.Skip("give -torch-screen")
	}
	for _, backend := range torchBackends {
		t.Run(backend+"/S2", func(t *testing.T) {
			approveTorch(t, backend, torchSlow, "n1.g0", "S2 PROPOSED")
		})
		t.Run(backend+"/S3", func(t *testing.T) {
			approveTorch(t, backend, torchLink, "n1-n2", "S3 PROPOSED")
		})
	}
}

// approveTorch plays a scenario on a PyTorch job, waits for what is proposed against the
// culprit, and approves it.
func approveTorch(t *testing.T, backend, scenario, culprit, proposed string) {
	logs := t.TempDir()
	t.Setenv("BACKEND", backend)
	t.Setenv("RANK_LOGS", logs)
	t.Setenv("ITERATIONS", "400")
	file := filepath.Join(t.TempDir(), "slow.yaml")
	writeFile(t, file, scenario)
	s := newScreen(
		t,
		120,
		40,
		"lab",
		"run",
		"--scenario", file,
		"--train", trainTorch(t, "ddp_kills.py"),
		"--gpu-gflops", "8",
	)
	s.wait(3*time.Minute, "INC-0001", culprit, proposed)
	s.keys("a")
	s.wait(5*time.Second, "Cancel", "Approve")
	time.Sleep(dialogGuard)
	s.keys("Tab", "Enter")
	s.wait(2*time.Minute, "kept", "measured")
	t.Log(s.falcon("incident", "show", "INC-0001"))
	s.keys("q")
	judgeAlarms(t, logs)
}
