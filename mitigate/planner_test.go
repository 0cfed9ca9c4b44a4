package mitigate

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon"
)

var update = flag.Bool("update", false, "rewrite the expected output of testdata scripts")

// TestScripts runs testdata/*.txt: each paragraph is one command, a line of
// four dashes, and everything that the planner said to it.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) { runScript(t, f) })
	}
}

func runScript(t *testing.T, file string) {
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p := New(Config{})
	var out []string
	for _, para := range strings.Split(strings.TrimSpace(string(raw)), "\n\n") {
		cmd, _, _ := strings.Cut(para, "\n----")
		said := strings.TrimRight(strings.Join(play(t, p, cmd), "\n"), "\n")
		out = append(out, strings.TrimRight(cmd+"\n----\n"+said, "\n"))
	}
	got := strings.Join(out, "\n\n") + "\n"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != string(raw) {
		t.Errorf("%s differs; got:\n%s", file, got)
	}
}

// play steps the commands of one paragraph and drains the planner.
func play(t *testing.T, p *Planner, cmds string) []string {
	var out []string
	for _, line := range strings.Split(cmds, "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, rest, _ := strings.Cut(line, " ")
		args := pairs(rest)
		if name == "ladder" {
			out = append(out, showLadder(p, args["id"])...)
			continue
		}
		for _, in := range inputs(t, name, args) {
			if d, ok := in.(Decision); ok {
				if err := p.Check(d); err != nil {
					out = append(out, "refused: "+err.Error())
				}
			}
			p.Step(time.Time{}, in)
			out = append(out, drain(p)...)
		}
	}
	return out
}

func pairs(s string) map[string]string {
	out := map[string]string{}
	for _, f := range strings.Fields(s) {
		k, v, _ := strings.Cut(f, "=")
		out[k] = v
	}
	return out
}

func inputs(t *testing.T, name string, a map[string]string) []Input {
	num := func(k string) float64 {
		v, err := strconv.ParseFloat(a[k], 64)
		if err != nil {
			t.Fatalf("%s: %s=%q is no number", name, k, a[k])
		}
		return v
	}
	list := func(k string) []float64 {
		var out []float64
		for _, f := range strings.Split(a[k], ",") {
			v, err := strconv.ParseFloat(f, 64)
			if err != nil {
				t.Fatalf("%s: %s: %v", name, k, err)
			}
			out = append(out, v)
		}
		return out
	}
	switch name {
	case "job":
		l := falcon.Layout{TP: int(num("tp")), DP: int(num("dp")), PP: int(num("pp"))}
		var m []int32
		for _, v := range list("m") {
			m = append(m, int32(v))
		}
		return []Input{Job{Epoch: uint64(num("epoch")), Layout: l, MicroBatches: m, GPUs: l.World()}}
	case "policy":
		return []Input{SetPolicy{falcon.Policy{Mode: falcon.Mode(a["mode"]), Cap: falcon.Rung(a["cap"]), Frozen: a["frozen"] == "true"}}}
	case "iterations":
		var out []Input
		for i := int64(num("from")); i <= int64(num("to")); i++ {
			out = append(out, Iteration{Index: i, Ms: num("ms")})
		}
		return out
	case "incident":
		return []Input{Incident{falcon.Incident{
			ID: a["id"], State: falcon.IncidentState(a["state"]), OnsetIteration: int64(num("onset")),
			RelievedIteration: int64(num("relieved")), HealthyMs: num("healthy"), SlowMs: num("slow"),
			Verdict: falcon.Verdict{Cause: falcon.Cause(a["cause"])},
		}}}
	case "speeds":
		return []Input{Speeds{Incident: a["id"], SelfMs: list("ms")}}
	case "decide":
		return []Input{Decision{Action: a["action"], PlanHash: a["hash"], Approve: a["approve"] == "true", By: a["by"], Reason: a["reason"], Incident: a["incident"], Rung: falcon.Rung(a["rung"])}}
	case "commit":
		return []Input{Committed{Order: uint64(num("order")), Iteration: int64(num("at")), Status: int32(num("status"))}}
	case "undeliverable":
		return []Input{Undeliverable{Order: uint64(num("order")), Reason: a["reason"]}}
	}
	t.Fatalf("unknown command %q", name)
	return nil
}

func drain(p *Planner) []string {
	var out []string
	r := p.Ready()
	for _, n := range r.Notes {
		out = append(out, fmt.Sprintf("note %s: %s", n.Kind, n.Text))
	}
	for _, a := range r.Actions {
		out = append(out, fmt.Sprintf("action %s %s plan=%s m=%v before=%.1f predicted=%.1f measured=%.1f overhead=%.1f by=%s", a.ID, a.State, a.PlanHash, a.MicroBatches, a.BeforeMs, a.PredictedMs, a.MeasuredMs, a.OverheadMs, a.DecidedBy))
	}
	for _, o := range r.Orders {
		out = append(out, fmt.Sprintf("order %d epoch %d %s %v", o.ID, o.Epoch, o.Kind, o.MicroBatches))
	}
	for _, a := range r.Acted {
		out = append(out, fmt.Sprintf("acted %s %s from %d reverted=%v", a.Incident, a.Rung, a.Iteration, a.Reverted))
	}
	p.Advance()
	return out
}

func showLadder(p *Planner, id string) []string {
	l, ok := p.Ladder(id)
	if !ok {
		return []string{"no ladder"}
	}
	out := []string{fmt.Sprintf("impact %.1f ms, lost %.6f GPU-h, proposal %v", l.ImpactMs, l.LostGPUh, l.Proposal != nil)}
	for _, r := range l.Rungs {
		out = append(out, fmt.Sprintf("%s applicable=%v current=%v overhead=%.1f gain=%.1f break_even=%d predicted=%.1f: %s", r.Rung, r.Applicable, r.Current, r.OverheadMs, r.GainMs, r.BreakEven, r.PredictMs, r.Reason))
	}
	return out
}
