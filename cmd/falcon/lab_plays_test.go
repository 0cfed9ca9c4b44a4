package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/lab"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
)

// A play disturbs a small lab job while it runs, and must find it at its last iteration with the
// weights of an undisturbed run and no healthy node fenced.

// Size and pace of a play's job: one rank on each node, iterations of about 50 ms.
const (
	playNodes      = 4
	playGoesOn     = 12               // iterations that show that the job goes on
	playEndsWithin = 60 * time.Second // after the last disturbance, with all iterations left
	playAsks       = 5 * time.Second  // one question to the engine
)

// playScenario4 is a job of four replicas on four nodes, which recovers as often as it must.
func playScenario4(name string, spares, iterations int) lab.Scenario {
	sc := recoverScenario(name, lab.Shape{TP: 1, DP: playNodes, PP: 1}, spares)
	sc.Iterations = iterations
	sc.Policy = map[string]any{"recovery": map[string]any{
		"in_place": 100,
		"per_hour": 1000,
	}}
	return sc
}

// livePlay is a lab job under way, its engine's client, and what is wrong so far.
type livePlay struct {
	*liveLab
	sc      lab.Scenario
	journal string
	client  falconv1.ConsoleClient
}

// startPlay starts the job and returns once it trains. The caller must call its close.
func startPlay(t *testing.T, sc lab.Scenario) *livePlay {
	t.Helper()
	journal := filepath.Join(t.TempDir(), "journal.db")
	p := &livePlay{
		liveLab: startLab(t, sc, "", "--journal", journal),
		sc:      sc,
		journal: journal,
	}
	conn, err := feed.Dial(p.status().Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	p.client = falconv1.NewConsoleClient(conn)
	return p
}

// ask sends the lab a request.
func (p *livePlay) ask(op, target string, span time.Duration) error {
	_, err := lab.Ask(p.dir, lab.Request{Op: op, Target: target, For: span})
	return err
}

var errPlayEnded = errors.New("the lab ended early")

// reach waits until an iteration is done, or the lab has ended: that is finish's to judge.
func (p *livePlay) reach(iteration int64, most time.Duration) error {
	for end := time.Now().Add(most); ; time.Sleep(20 * time.Millisecond) {
		s := p.status()
		switch {
		case s.Iteration >= iteration:
			return nil
		case len(p.ended) > 0:
			return errPlayEnded
		case time.Now().After(end):
			return fmt.Errorf("iteration %d did not come within %s: the job stands at %d",
				iteration, most, s.Iteration)
		}
	}
}

// goesOn waits until the job has trained on for a while.
func (p *livePlay) goesOn() error {
	return p.reach(p.status().Iteration+playGoesOn, playEndsWithin)
}

// newest is the newest recovery; empty where there is none, or the engine does not answer.
func (p *livePlay) newest() *falconv1.Recovery {
	ctx, cancel := context.WithTimeout(context.Background(), playAsks)
	defer cancel()
	r, err := p.client.Recoveries(ctx, &falconv1.RecoveriesRequest{})
	if err != nil || len(r.GetRecoveries()) == 0 {
		return nil
	}
	return r.GetRecoveries()[0]
}

// engineAnswers waits until the engine answers a question.
func (p *livePlay) engineAnswers(most time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	return awaitEngine(ctx, p.client)
}

// finish waits for the job's end and says what is wrong with it. dead are nodes that were killed.
func (p *livePlay) finish(ref lab.Reference, most time.Duration, dead ...falcon.Node) []string {
	select {
	case err := <-p.ended:
		if err != nil {
			return []string{fmt.Sprintf("the lab ended with %v: %s",
				err, lastLines(p.out.String(), 30))}
		}
	case <-time.After(most):
		bad := fmt.Sprintf("the job stood at iteration %d of %d %s after the last disturbance; %s",
			p.status().Iteration, p.sc.Iterations, most, p.standing())
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		<-p.ended
		return []string{bad}
	}
	r, err := readReport(p.report)
	if err != nil {
		return []string{err.Error()}
	}
	return append(judgePlay(r, p.sc, ref), p.leftFenced(dead)...)
}

// standing is what the newest recovery waits for.
func (p *livePlay) standing() string {
	v := p.newest()
	if v == nil {
		return "no recovery"
	}
	return fmt.Sprintf("%s is %s: %s", v.GetId(), v.GetState(), v.GetReason())
}

// judgePlay lists what a report lacks: the last iteration and the reference's weights.
func judgePlay(r lab.Report, sc lab.Scenario, ref lab.Reference) []string {
	var bad []string
	if n := len(r.Iterations); n != sc.Iterations {
		bad = append(bad, fmt.Sprintf("it ended after %d of %d iterations", n, sc.Iterations))
	}
	if r.WeightsSha == "" || r.WeightsSha != ref.Sha {
		bad = append(bad, fmt.Sprintf("weights %.12q, reference %.12q", r.WeightsSha, ref.Sha))
	}
	return bad
}

// leftFenced names nodes that the job's end found fenced although nobody killed them.
func (p *livePlay) leftFenced(dead []falcon.Node) []string {
	out, err := exec.Command(
		binFalcon(p.t),
		"journal",
		"show",
		"--json",
		"--kind", "fence",
		p.journal,
	).Output()
	if err != nil {
		return []string{fmt.Sprintf("journal show: %v", err)}
	}
	left, err := fencedAtEnd(out)
	if err != nil {
		return []string{err.Error()}
	}
	var bad []string
	for _, n := range left {
		if !slices.Contains(dead, n) {
			bad = append(bad, fmt.Sprintf("%s is left fenced", n))
		}
	}
	return bad
}

// fencedAtEnd folds a journal's fences, one JSON record a line.
func fencedAtEnd(records []byte) ([]falcon.Node, error) {
	fenced := map[falcon.Node]bool{}
	for line := range bytes.Lines(records) {
		var r struct {
			Body struct {
				Nodes  []falcon.Node `json:"nodes"`
				Lifted falcon.Node   `json:"lifted"`
			} `json:"body"`
		}
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("journal show wrote %q: %w", line, err)
		}
		for _, n := range r.Body.Nodes {
			fenced[n] = true
		}
		delete(fenced, r.Body.Lifted)
	}
	return sortedNodes(fenced), nil
}

func sortedNodes(set map[falcon.Node]bool) []falcon.Node {
	var out []falcon.Node
	for n := range set {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], " | ")
}

// references are undisturbed runs, which plays of one length share.
var references struct {
	mu   sync.Mutex // guards runs, and is held while one is made
	runs map[int]lab.Reference
}

// playReference is the undisturbed run of a play's job.
func playReference(t *testing.T, iterations int) lab.Reference {
	t.Helper()
	references.mu.Lock()
	defer references.mu.Unlock()
	if r, ok := references.runs[iterations]; ok {
		return r
	}
	opt := lab.Options{Bin: filepath.Dir(binFalcon(t)), Seed: 1}
	r, err := lab.RunReference(
		t.Context(),
		playScenario4("reference", 0, iterations),
		opt,
	)
	if err != nil {
		t.Fatal(err)
	}
	if references.runs == nil {
		references.runs = map[int]lab.Reference{}
	}
	references.runs[iterations] = r
	return r
}

// tally counts plays that came out right, by kind, and says why others did not.
type tally struct {
	kinds []string
	right map[string]int
	count map[string]int
}

func (c *tally) add(t *testing.T, kind, what string, bad []string, took time.Duration) {
	t.Helper()
	if c.count == nil {
		c.right = map[string]int{}
		c.count = map[string]int{}
	}
	if c.count[kind] == 0 {
		c.kinds = append(c.kinds, kind)
	}
	c.count[kind]++
	if len(bad) == 0 {
		c.right[kind]++
		t.Logf("%s: right, %.0f s", what, took.Seconds())
		return
	}
	t.Errorf("%s: %s", what, strings.Join(bad, "; "))
}

// report logs the table.
func (c *tally) report(t *testing.T) {
	t.Helper()
	var b strings.Builder
	right, count := 0, 0
	for _, k := range c.kinds {
		fmt.Fprintf(&b, "%-24s %3d of %3d right\n", k, c.right[k], c.count[k])
		right += c.right[k]
		count += c.count[k]
	}
	t.Logf("%d of %d plays right\n%s", right, count, b.String())
}

func TestFencedAtEnd(t *testing.T) {
	const records = `{"seq":1,"kind":"fence","body":{"generation":2,"nodes":["n1","n2"]}}
{"seq":2,"kind":"fence","body":{"generation":0,"lifted":"n2"}}
{"seq":3,"kind":"fence","body":{"generation":3,"processes":["n3/1/7"]}}
`
	if got, err := fencedAtEnd([]byte(records)); err != nil || !slices.Equal(got, []falcon.Node{"n1"}) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := fencedAtEnd([]byte("falcon: no\n")); err == nil {
		t.Error("a line that is no record is passed over")
	}
}

// The judge says what is wrong, one thing at a time.
func TestJudgePlay(t *testing.T) {
	sc := playScenario4("judged", 0, 2)
	ref := lab.Reference{Sha: "a"}
	good := lab.Report{
		Iterations: make([]lab.Iteration, 2),
		Training:   lab.Training{WeightsSha: "a"},
	}
	if bad := judgePlay(good, sc, ref); bad != nil {
		t.Errorf("a right report: %v", bad)
	}
	for want, spoil := range map[string]func(*lab.Report){
		"after 1 of 2": func(r *lab.Report) { r.Iterations = r.Iterations[:1] },
		`weights "b"`:  func(r *lab.Report) { r.WeightsSha = "b" },
		`weights ""`:   func(r *lab.Report) { r.WeightsSha = "" },
	} {
		r := good
		spoil(&r)
		if got := strings.Join(judgePlay(r, sc, ref), "; "); !strings.Contains(got, want) {
			t.Errorf("want %q, the judge says %q", want, got)
		}
	}
}
