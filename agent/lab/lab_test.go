package lab

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func TestShippedScenarios(t *testing.T) {
	for _, n := range Names() {
		s, err := Load(n)
		if err != nil || s.About == "" {
			t.Errorf("%s: %v, about %q", n, err, s.About)
		}
	}
}

// A user's mistake gets one sentence that names the mistake.
func TestBadScenarios(t *testing.T) {
	const ok = "layout: {tp: 1, dp: 4, pp: 2}\nnodes: 4\niterations: 50\n"
	for name, c := range map[string]struct{ text, want string }{
		"unknown key": {ok + "speed: 3\n", "speed"},
		"layout":      {"layout: {tp: 1, dp: 0, pp: 2}\nnodes: 1\n", "dp 0"},
		"nodes":       {"layout: {tp: 1, dp: 3, pp: 1}\nnodes: 2\n", "can't be spread"},
		"no fault":    {ok + "events: [{at_iteration: 3}]\n", "exactly one"},
		"two faults": {
			ok + "events: [{at_iteration: 3, gpu: n0.g0, clock: 0.5, cpu: n1, share: 0.5}]\n",
			"exactly one",
		},
		"no such gpu": {ok + "events: [{at_iteration: 3, gpu: n9.g0, clock: 0.5}]\n", "no GPU n9.g0"},
		"clock":       {ok + "events: [{at_iteration: 3, gpu: n0.g0, clock: 1.5}]\n", "between 0 and 1"},
		"until": {
			ok + "events: [{at_iteration: 9, until_iteration: 3, gpu: n0.g0, clock: 0.5}]\n",
			"until_iteration",
		},
		"no such link":  {ok + "events: [{at_iteration: 3, link: n0-n7, bandwidth: 0.5}]\n", "n7"},
		"malformed":     {"layout: [", "line"},
		"too many":      {"layout: {tp: 8, dp: 64, pp: 64}\nnodes: 1\n", "more than"},
		"no such stage": {ok + "events: [{at_iteration: 3, stage: 2, load: 2}]\n", "no stage 2"},
		"no load":       {ok + "events: [{at_iteration: 3, stage: 0}]\n", "load is 0"},
		"narrow links":  {ok + "link_mb_s: 0.5\n", "link_mb_s"},
		"no nics":       {ok + "nics: 0\n", "nics is 0"},
		"no such rung":  {ok + "events: [{on_action: S4, gpu: n0.g0, clock: 0.5}]\n", "on_action"},
		"no such step":  {ok + "events: [{kill: console, on_step: nap}]\n", "on_step"},
		"step of fault": {ok + "events: [{gpu: n0.g0, clock: 0.5, on_step: dump}]\n", "goes with kill"},
		"no such rank":  {ok + "events: [{kill: rank 8}]\n", "ranks are 0 to 7"},
		"kill what":     {ok + "events: [{kill: everyone}]\n", "kill is"},
		"freeze what":   {ok + "events: [{freeze: console}]\n", "only ranks and nodes"},
		"no such node":  {ok + "events: [{freeze: n4}]\n", `no node "n4"`},
		"no such point": {ok + "events: [{kill: 5, point: lunch}]\n", "point is"},
		"spare's point": {ok + "spares: 1\nevents: [{kill: n4, point: forward}]\n", "a spare has no rank"},
		"point of all":  {ok + "events: [{all: 2, point: forward}]\n", "go with kill and freeze"},
		"generation": {
			ok + "events: [{kill: 5, point: forward, generation: 2}]\n",
			"generation goes with",
		},
		"dead for good": {ok + "events: [{kill: 5, until_iteration: 9}]\n", "the dead stay dead"},
		"two moments":   {ok + "events: [{kill: 5, point: forward, after_ms: 3}]\n", "neither on_step nor"},
		"late":          {ok + "events: [{kill: 5, after_ms: -3}]\n", "after_ms"},
		"checkpoints":   {ok + "checkpoint_every: -1\n", "checkpoint_every is -1"},
		"zero":          {"layout: {tp: 1, dp: 4, pp: 2, zero: 3}\nnodes: 4\n", "zero is 3"},
		"instances": {
			"layout: {tp: 1, dp: 4, pp: 2, zero: 1, instances: 3}\nnodes: 4\n",
			"must divide dp 4",
		},
		"plain":         {"layout: {tp: 1, dp: 4, pp: 2, instances: 2}\nnodes: 4\n", "goes with zero"},
		"spares":        {ok + "spares: -1\n", "spares"},
		"state":         {ok + "state_mb: -3\n", "state_mb"},
		"overheads":     {ok + "overheads_ms: {S1: 4}\n", "overheads_ms"},
		"link nowhere":  {ok + "events: [{at_iteration: 3, link: n7-n8, bandwidth: 0.5}]\n", `no node "n8"`},
		"cpu elsewhere": {ok + "events: [{at_iteration: 3, cpu: x, share: 0.5}]\n", `no node "x"`},
	} {
		_, err := parseScenario([]byte(c.text), "t")
		if !errors.Is(err, ErrScenario) ||
			!strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want one line with %q", name, err, c.want)
		}
	}
	if _, err := Load("no-such"); !errors.Is(err, ErrScenario) ||
		!strings.Contains(err.Error(), "gpu-throttle") {
		t.Errorf("unknown name: %v", err)
	}
	if _, err := Load("./absent.yaml"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent file: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, n := range Names() {
		b, err := shipped.ReadFile("scenarios/" + n + ".yaml")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := parseScenario(b, "fuzz"); err == nil {
			s.Placement() // must hold for whatever was accepted
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("error of several lines: %q", err)
		}
	})
}

func TestFaultsFollowIterations(t *testing.T) {
	sc, err := Load("gpu-throttle")
	if err != nil {
		t.Fatal(err)
	}
	hw, err := createSilicon(
		filepath.Join(t.TempDir(), "state"),
		sc.Nodes,
		sc.gpusPerNode(),
		1e9,
		1e9,
	)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hw.unmapState() }()
	f := newFaults(sc, hw)
	at := offsetOfGPU(1, 0)
	clock := func() uint64 { return hw.loadUint64(at + gpuClock) }
	healthy := clock()
	for i := range int64(260) {
		f.applyBefore(i)
		if slow := clock() != healthy; slow != (i >= 40 && i < 160) {
			t.Fatalf("iteration %d: slow is %v", i, slow)
		}
	}
	if len(f.injected) != 1 ||
		f.injected[0].FirstIteration != 40 ||
		f.injected[0].LastIteration != 159 {
		t.Fatalf("truth %+v", f.injected)
	}
	if hw.loadUint64(at+gpuThermalNs) == 0 || hw.loadUint64(at+gpuThermalSinceNs) != 0 {
		t.Error("the throttle counter did not count, or still counts")
	}
}

func TestRecordsCompleteWhenAllRanksReported(t *testing.T) {
	r := newRecords(2)
	add := func(rank int, text string) bool {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatal(err)
		}
		l.Rank = rank
		return r.addLine(0, l)
	}
	if add(0, `{"iteration":0,"ms":10,"loss":2.5}`) {
		t.Error("complete with one of two ranks")
	}
	if !add(1, `{"iteration":0,"ms":14,"paused_ms":1}`) {
		t.Error("not complete with both")
	}
	if got := r.rows[0]; got.Ms != 13 || got.Loss != 2.5 || got.PausedMs != 1 {
		t.Errorf("row %+v", got)
	}
	if add(1, `{"iteration":-5,"ms":14}`) || add(1, `{"iteration":99999999999,"ms":14}`) {
		t.Error("took an impossible iteration")
	}
}

func TestReportArithmetic(t *testing.T) {
	r := Report{Injected: []Injected{{
		Kind:           "gpu",
		FirstIteration: 40,
		LastIteration:  159,
	}}}
	for i := range int64(260) {
		ms := 100.0
		switch {
		case i >= 40 && i < 52:
			ms = 200
		case i >= 52 && i < 160:
			ms = 125
		case i >= 160 && i < 190:
			ms = 110
		}
		r.Iterations = append(r.Iterations, Iteration{Index: i, Ms: ms})
	}
	r.Incidents = incidentReports(&falconv1.IncidentsReply{
		Incidents: []*falconv1.Incident{{Id: "INC-0001", OnsetIteration: 40, RelievedIteration: 160}},
		Ladders: []*falconv1.Ladder{{Actions: []*falconv1.Action{{
			Rung:              "S2",
			State:             "reverted",
			AppliedIteration:  52,
			RevertedIteration: 190,
			BeforeMs:          200,
			PredictedMs:       120,
			MeasuredMs:        125,
		}}}},
	})
	r.summarise(Scenario{WarmUp: 10})
	if *r.HealthyMs != 100 ||
		*r.SlowMs != 200 ||
		*r.MitigatedMs != 125 ||
		*r.AfterMs != 100 ||
		*r.SlowdownRemoved != 0.75 ||
		*r.SlowdownBound != 0.8 {
		t.Errorf("healthy %v slow %v mitigated %v after %v removed %v bound %v",
			*r.HealthyMs, *r.SlowMs, *r.MitigatedMs, *r.AfterMs, *r.SlowdownRemoved,
			*r.SlowdownBound)
	}
	if got := r.Incidents[0].Actions[0].Outcome; got != "kept" {
		t.Errorf("outcome %q", got)
	}
}

// A lab that was killed leaves files and a stale lock; the next one clears them.
func TestClaimClearsTheDead(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dead, err := claimPlace()
	if err != nil {
		t.Fatal(err)
	}
	left := exec.Command("sleep", "60")
	left.Env = append(os.Environ(), envDir+"="+dead.dir)
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	if got := Running(); !slices.Equal(got, []string{dead.dir}) {
		t.Errorf("running %v", got)
	}
	dead.lock.Close() // as the kernel does for a killed process
	next, err := claimPlace()
	if err != nil {
		t.Fatal(err)
	}
	defer next.removePlace()
	if err := left.Wait(); err == nil {
		t.Error("the leftover process ended by itself")
	}
	for _, d := range []string{dead.dir, dead.shm} {
		if _, err := os.Stat(d); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", d, err)
		}
	}
}

// Labs that begin at once do not take each other for dead.
func TestClaimsAtOnce(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 25 {
				p, err := claimPlace()
				if err != nil {
					t.Error(err)
					return
				}
				if err := os.WriteFile(filepath.Join(p.dir, "state"), nil, 0o600); err != nil {
					t.Error(err)
				}
				p.removePlace()
			}
		})
	}
	wg.Wait()
}

// A folder of our name that others can enter is refused, not used.
func TestClaimRefusesAnOpenFolder(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	if err := os.Mkdir(labsDirectory(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(labsDirectory(), 0o755); err != nil {
		t.Fatal(err)
	}
	if p, err := claimPlace(); err == nil || !strings.Contains(err.Error(), "TMPDIR") {
		t.Errorf("claimed %v, %v", p, err)
	}
}

// The cost per iteration leaves out what starting up took.
func TestCPUPerIteration(t *testing.T) {
	r := newRecords(1)
	for i := range int64(21) {
		r.addLine(0, line{Iteration: &i, CPUMs: 500 + 3*float64(i)})
	}
	if got := r.cpuPerIteration(); got != 3 {
		t.Errorf("got %v ms, want 3", got)
	}
	if got := newRecords(1).cpuPerIteration(); got != 0 {
		t.Errorf("nothing recorded, got %v", got)
	}
}

// The batch stays with fewer replicas, unless policy lets S4 shrink it with them.
func TestShapeArgs(t *testing.T) {
	l := &Lab{sc: Scenario{Layout: Shape{TP: 1, DP: 4, PP: 2}, MicroBatches: 8}}
	if args := l.shapeArgs(); !strings.Contains(strings.Join(args, " "), "--global-batch 32") {
		t.Errorf("%v", args)
	}
	l.sc.Policy = map[string]any{"allow_drop": true}
	if args := l.shapeArgs(); slices.Contains(args, "--global-batch") {
		t.Errorf("%v", args)
	}
}

// A kill that is meant for one lab never reaches another one.
func TestAskNamesTheLab(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	if _, err := Ask("", Request{Op: "status"}); !errors.Is(err, ErrNoLab) {
		t.Errorf("without a lab: %v", err)
	}
	for range 2 {
		p, err := claimPlace()
		if err != nil {
			t.Fatal(err)
		}
		defer p.removePlace()
	}
	if _, err := Ask("", Request{Op: "kill", Target: "rank 0"}); !errors.Is(err, ErrManyLabs) {
		t.Errorf("with two labs: %v", err)
	}
}
