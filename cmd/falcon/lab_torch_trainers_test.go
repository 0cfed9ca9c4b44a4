package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/lab"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/report"
)

var torchTrainers = flag.String("torch-trainers", "",
	"folder of the packages transformers, accelerate, lightning and deepspeed: play a job of each")

// trainerNames are the frameworks, by their packages.
var trainerNames = []string{"transformers", "accelerate", "lightning", "deepspeed"}

const (
	trainerSteps = 60
	trainerSlows = 25 // step after which a GPU falls to trainerClock of its clock
	trainerClock = 0.45
	trainerGPU   = "n1.g0"
)

// trainerPlay is what one job showed. Steps are those that the script itself counts.
type trainerPlay struct {
	name, version  string
	stepMs         float64 // before the fault, the median
	named, offered int     // steps that ended between the fault and its verdict, or the proposal of S4
	restart        lab.Restart
	stays          string // why micro-batches stay where they are; empty where they move
}

// A script of each of four frameworks, as users have them, with one line for Falcon: the GPU that
// becomes slow is named within five steps; S4 is proposed and approved; the job writes its
// checkpoint, ends in order, and goes on with a spare node in place of the slow one. No step is
// lost, and none runs again.
func TestTorchTrainers(t *testing.T) {
	if *torchTrainers == "" {
		t.Skip("give -torch-trainers: run make torch-trainers")
	}
	needHeaders(t, hollowEnvironment(t)[1])
	t.Setenv("PYTHONPATH", strings.TrimSuffix(*torchTrainers+":"+os.Getenv("PYTHONPATH"), ":"))
	t.Setenv("ITERATIONS", fmt.Sprint(trainerSteps))
	var table strings.Builder
	for _, name := range trainerNames {
		t.Run(name, func(t *testing.T) {
			p := trainerPlay{name: name, version: versionOf(t, name)}
			p.play(t)
			table.WriteString(p.line())
		})
	}
	text := fmt.Sprintf(
		"## Trainers: a slow GPU, and S4\n\nBy `make torch-trainers`. %s\n\nA script of each framework (`cmd/falcon/testdata/torch/trainers`) of 4 ranks on two nodes with DDP, DeepSpeed with ZeRO 1, and a spare node. After step %d one GPU falls to %.0f %% of its clock. Steps are counted by the script: those that ended between the fault and the verdict that names the GPU, and until S4 (`replace`) was proposed. It is approved at once; the job then writes its checkpoint, ends in order, and is started again with the spare in place of the slow node. Each step was informed of once, in order. A death ends such a job, and it is started again whole from its newest checkpoint; S3 and the fence are not offered.\n\n| Framework | Step, ms | Named after | Proposed after | Goes on with step | Steps again | Stood, s | S2 |\n|---|---|---|---|---|---|---|---|\n%s",
		machine(), trainerSlows, 100*trainerClock, table.String(),
	)
	t.Log(text)
	if !t.Failed() {
		writePage(t, "torch-trainers", text)
	}
}

// versionOf is the version of a package; the test is skipped where it is not installed.
func versionOf(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command(
		interpreterWithTorch(t),
		"-c", "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))",
		name,
	).Output()
	if err != nil {
		t.Skipf("%s is not installed: run make python-test", name)
	}
	return strings.TrimSpace(string(out))
}

// trainerScenario is a small job with a spare, whose only mitigation is S4, when a person approves it.
func trainerScenario(name string) lab.Scenario {
	sc := recoverScenario("trainer-"+name, lab.Shape{TP: 1, DP: 4, PP: 1}, 1)
	sc.Nodes, sc.Iterations = 2, trainerSteps
	never := map[string]any{"approval": "never"}
	sc.Policy = map[string]any{
		"mode":     "approve",
		"variants": []string{"replace"},
		"rungs":    map[string]any{"S2": never, "S3": never},
	}
	sc.Overheads = map[falcon.Rung]float64{falcon.RungS4: 2000}
	return sc
}

func (p *trainerPlay) play(t *testing.T) {
	folder := t.TempDir()
	l := openLab(
		t,
		trainerScenario(p.name),
		"",
		"--gpu-gflops", "4",
		"--train", trainTorch(t, "trainers/of_"+p.name+".py")+" "+folder,
	)
	l.await(trainerSlows, 10*time.Minute)
	conn, err := feed.Dial(l.status().Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := falconv1.NewConsoleClient(conn)
	p.stays = whyBatchesStay(t, l)
	ends, _ := stepsOf(t, folder)
	p.stepMs = medianStep(ends)
	began := time.Now()
	setClock(t, l.dir, trainerGPU, trainerClock)
	named := l.awaitIncident(client, "a verdict on "+trainerGPU, func(report.Incident) bool { return true })
	p.named = stepsSince(t, folder, began)
	l.awaitIncident(client, "a proposal of S4", func(in report.Incident) bool {
		return slices.ContainsFunc(in.Actions, func(a report.Action) bool {
			return a.Rung == falcon.RungS4 && a.State == falcon.ActionProposed
		})
	})
	p.offered = stepsSince(t, folder, began)
	approve := exec.Command(
		binFalcon(t),
		"decide",
		named.ID,
		"--approve",
		"--reason", "the GPU is worn out",
		"--connect", l.status().Socket,
	)
	if out, err := approve.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s\n%s", err, out, l.out.String())
	}
	if err := <-l.ended; err != nil {
		t.Fatalf("%v\n%s", err, l.out.String())
	}
	r, err := readReport(l.report)
	if err != nil {
		t.Fatalf("%v\n%s", err, l.out.String())
	}
	p.judge(t, r, folder)
	if t.Failed() {
		t.Log(l.out.String())
	}
}

// awaitIncident waits for the incident that names the slow GPU to be as wanted.
func (l *liveLab) awaitIncident(
	client falconv1.ConsoleClient,
	what string,
	ok func(report.Incident) bool,
) (found report.Incident) {
	l.t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), playAsks)
		reply, err := client.Incidents(ctx, &falconv1.IncidentsRequest{})
		cancel()
		if err == nil {
			for _, in := range report.Of(reply) {
				if slices.Equal(in.Verdict.Devices, []falcon.Device{trainerGPU}) && ok(in) {
					return in
				}
			}
		}
		if time.Now().After(end) || len(l.ended) > 0 {
			l.t.Fatalf("no incident with %s: %v\n%s", what, err, l.out.String())
		}
	}
}

// stepsOf are the ends of the steps that the script has told of, and their numbers.
func stepsOf(t *testing.T, folder string) (ends []time.Time, numbers []int) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(folder, "steps.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var ns int64
		var number int
		_, err := fmt.Sscanf(line, "%d %d\n", &ns, &number)
		if err == nil && strings.HasSuffix(line, "\n") {
			ends = append(ends, time.Unix(0, ns))
			numbers = append(numbers, number)
		}
	}
	return ends, numbers
}

func stepsSince(t *testing.T, folder string, began time.Time) int {
	t.Helper()
	ends, _ := stepsOf(t, folder)
	return between(ends, began, time.Now())
}

var batchesStay = regexp.MustCompile(`"micro_batches": "stay", "why": "([^"]*)"`)

// whyBatchesStay is what the first rank has said of it; empty where they can be moved.
func whyBatchesStay(t *testing.T, l *liveLab) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(l.dir, "logs", "rank-0.0.out"))
	if err != nil {
		t.Fatal(err)
	}
	if found := batchesStay.FindSubmatch(b); found != nil {
		return string(found[1])
	}
	return ""
}

func (p *trainerPlay) judge(t *testing.T, r lab.Report, folder string) {
	t.Helper()
	if p.named > namedWithin {
		t.Errorf("%s was named after %d steps", trainerGPU, p.named)
	}
	if len(r.Restarts) != 1 {
		t.Fatalf("%d restarts: %+v", len(r.Restarts), r.Restarts)
	}
	p.restart = r.Restarts[0]
	_, numbers := stepsOf(t, folder)
	for i, n := range numbers {
		if n != i+1 {
			t.Fatalf("steps were lost, or ran again: %v", numbers)
		}
	}
	if len(numbers) != trainerSteps ||
		len(r.Iterations) != trainerSteps ||
		p.restart.Redone != 0 {
		t.Errorf("%d steps announced, %d iterations, %d again; want %d, as many and none",
			len(numbers), len(r.Iterations), p.restart.Redone, trainerSteps)
	}
	i := slices.IndexFunc(r.Incidents, func(in lab.IncidentReport) bool {
		return slices.Equal(in.Verdict.Devices, []string{trainerGPU})
	})
	if i < 0 || len(r.Incidents[i].Actions) != 1 {
		t.Fatalf("incidents %+v", r.Incidents)
	}
	a := r.Incidents[i].Actions[0]
	if a.Rung != string(falcon.RungS4) ||
		a.Variant != string(falcon.VariantReplace) ||
		a.Outcome != "kept" {
		t.Errorf("action %+v", a)
	}
	if slices.ContainsFunc(a.Placement, func(d string) bool {
		return strings.HasPrefix(d, "n1.")
	}) {
		t.Errorf("the slow node still has a rank: %v", a.Placement)
	}
}

func (p *trainerPlay) line() string {
	split := "yes"
	if p.stays != "" {
		split = "refused: " + p.stays
	}
	return fmt.Sprintf("| %s %s | %.0f | %d | %d | %d | %d | %.1f | %s |\n",
		p.name, p.version, p.stepMs, p.named, p.offered,
		p.restart.FirstIteration+1, p.restart.Redone, p.restart.DownMs/1000, split)
}
