package detect

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/sentencetest"
)

// Each testdata/*.txt is a script: commands, and below each, after "----", what
// the machine says. Run with -rewrite to replace the answers, and read them.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			var s script
			datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
				return s.do(t, fields(d))
			})
		})
	}
}

func fields(d *datadriven.TestData) []string {
	out := []string{d.Cmd}
	for _, a := range d.CmdArgs {
		out = append(out, a.String())
	}
	return out
}

// Each script says the same where windows are compared aside.
func TestScriptsComparedAside(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.txt")
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			plain := script{}
			aside := script{aside: true}
			datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
				want := plain.do(t, fields(d))
				if got := aside.do(t, fields(d)); got != want {
					t.Fatalf("%s:\n%s\nwant:\n%s", d.Pos, got, want)
				}
				return d.Expected
			})
		})
	}
}

// script interprets commands against one world.
type script struct {
	w     *world
	aside bool // its machine hands comparisons out

	given func(Input) Input // see world
	did   []string          // what the machine wanted, without sentences
}

// What people read decides nothing: with each sentence that the detector is given replaced, be it by
// an agent, a test or the journal, it opens and closes the same incidents, and asks for the same.
func TestSentencesDecideNothing(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	least := 20 // sentences that are replaced
	if testing.Short() {
		files = files[:min(len(files), 8)]
		least = 1
	}
	sentencetest.Check(t, files, least, func(file string, given func(Input) Input) []string {
		s := script{given: given}
		s.replay(t, file)
		return s.did
	}, withoutSentences)
}

// withoutSentences is an input of which names alone are left. Samples and profiles have no others.
func withoutSentences(in Input) Input {
	switch in := in.(type) {
	case Samples:
		return in
	case Profiled:
		if in.Refused != "" {
			in.Refused = "x"
		}
		return in
	}
	return sentencetest.Blank(in, scriptNames...)
}

// scriptNames are the fields that name a thing or a person.
var scriptNames = []string{"ID", "Incident", "Job", "By"}

// replay plays a script whatever it answers.
func (s *script) replay(t *testing.T, file string) {
	datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
		s.do(t, fields(d))
		return d.Expected
	})
}

// note keeps what the machine wants.
func (s *script) note(r Ready) {
	for _, v := range r.Incidents {
		s.did = append(s.did, fmt.Sprintf("%+v", sentencetest.Blank(v, scriptNames...)))
	}
	for _, q := range r.Requests {
		s.did = append(s.did, fmt.Sprintf("%+v", sentencetest.Blank(q, scriptNames...)))
	}
	for _, a := range r.Asks {
		s.did = append(s.did, fmt.Sprintf("%+v", sentencetest.Blank(a, scriptNames...)))
	}
}

func (s *script) do(t *testing.T, f []string) string {
	t.Helper()
	arg := func(i int) string {
		if i >= len(f) {
			t.Fatalf("%v: argument %d is missing", f, i)
		}
		return f[i]
	}
	switch f[0] {
	case "job": // tp dp pp nodes micro
		n := numbers(t, f[1:])
		s.w = newWorld(falcon.Layout{TP: n[0], DP: n[1], PP: n[2]}, n[3], n[4], 7)
		s.w.given = s.given
		s.w.did = s.note
		if s.aside {
			s.w.m = New(Config{CompareAside: 1})
			s.w.describe()
		}
	case "run":
		s.w.run(numbers(t, f[1:])[0])
	case "gpu":
		s.w.job.Clock[falcon.Device(arg(1))] = ratio(t, arg(2))
	case "clocks":
		for _, d := range s.w.job.Placement {
			s.w.job.Clock[d] = ratio(t, arg(1))
		}
	case "cpu":
		s.w.job.Share[falcon.Node(arg(1))] = ratio(t, arg(2))
	case "link":
		l, err := falcon.ParseLink(arg(1))
		if err != nil {
			t.Fatal(err)
		}
		s.w.job.Link[l] = ratio(t, arg(2))
	case "load": // factor per stage
		s.w.job.Load = nil
		for _, x := range f[1:] {
			s.w.job.Load = append(s.w.job.Load, ratio(t, x))
		}
	case "micro": // per replica, as the job reports them
		s.w.job.MicroBatches = numbers(t, f[1:])
		s.w.describe()
	case "every": // n factor times: a long iteration every n
		n, times := numbers(t, f[1:2])[0], numbers(t, f[3:])[0]
		for range times {
			s.w.run(n - 1)
			s.w.spike = ratio(t, arg(2))
			s.w.run(1)
		}
	case "clear":
		s.w.clearFaults()
	case "spike":
		s.w.spike = ratio(t, arg(1))
	case "counters":
		s.w.counters = arg(1) == "on"
	case "nics":
		s.w.nics = arg(1) == "on"
	case "tests":
		s.w.tests = arg(1)
	case "lengths":
		s.w.job.Lengths = ratio(t, arg(1))
	case "validated": // by an operator: ranks that multiply
		var ranks []falcon.Rank
		for _, n := range numbers(t, f[1:]) {
			ranks = append(ranks, falcon.Rank(n))
		}
		v := s.w.job.Validate(falcon.ValidationAsk{By: "alice", GEMM: ranks})
		v.ID = "VAL-0100"
		s.w.step(Validated{Validation: v})
	case "named": // job incident device
		s.w.step(Culprits{Past: []Named{{
			Job:      arg(1),
			Incident: arg(2),
			At:       s.w.now.Add(-90 * time.Minute),
			Device:   falcon.Device(arg(3)),
			Cause:    falcon.CauseGPU,
		}}})
	case "refuse":
		s.w.refuse = numbers(t, f[1:])[0]
	case "missing":
		s.w.missing = falcon.Node(strings.TrimPrefix(arg(1), "none"))
	case "idle":
		s.w.idle = arg(1) == "on"
	case "silent": // node, or none
		s.w.silent = falcon.Node(strings.TrimPrefix(arg(1), "none"))
	case "acted":
		s.w.act(arg(1), false, numbers(t, f[2:]))
	case "reverted":
		s.w.act(arg(1), true, numbers(t, f[2:]))
	case "swap", "back": // incident node node
		a := s.w.block(falcon.Node(arg(2)))
		b := s.w.block(falcon.Node(arg(3)))
		s.w.place(
			arg(1),
			f[0] == "back",
			swap(len(s.w.m.job.desc.Placement.Nodes()), a, b),
		)
	case "told": // incident: its S3 again, after a restart
		s.w.step(Acted{
			Incident:  arg(1),
			Rung:      falcon.RungS3,
			Iteration: s.w.job.Next() - 10,
			Placement: s.w.job.Placement,
		})
	case "relaunch": // iterations back, then a node and the one in its place, …
		for i := 2; i < len(f); i += 2 {
			s.w.exchange(falcon.Node(arg(i)), falcon.Node(arg(i+1)))
		}
		s.w.relaunch(int64(numbers(t, f[1:2])[0]))
	case "restart":
		s.w.restart()
	case "epoch":
		s.w.epoch++
		s.w.describe()
	case "tick":
		d, err := time.ParseDuration(arg(1))
		if err != nil {
			t.Fatal(err)
		}
		s.w.now = s.w.now.Add(d)
		s.w.m.Tick(s.w.now)
		s.w.drain()
	case "status":
		s.status()
	default:
		t.Fatalf("unknown command %q", f[0])
	}
	out := s.w.out.String()
	s.w.out.Reset()
	if out == "" {
		return "ok\n"
	}
	return out
}

func (s *script) status() {
	st := s.w.m.Steady()
	fmt.Fprintf(&s.w.out, "learning %v, baseline %.0f ms, now %.0f ms, iteration %d, open %d\n",
		st.Learning, st.BaselineMs, st.CurrentMs, st.Iteration, len(s.w.m.Open()))
	for r := range s.w.job.Layout.World() {
		q, _ := s.w.m.Rank(falcon.Rank(r))
		fmt.Fprintf(&s.w.out, "rank %d: slowdown %.2f, self ratio %.2f, suspect %v\n",
			r, q.Slowdown, q.SelfRatio, q.Suspect)
	}
}

func numbers(t *testing.T, f []string) []int {
	t.Helper()
	var out []int
	for _, x := range f {
		n, err := strconv.Atoi(x)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, n)
	}
	return out
}

func ratio(t *testing.T, s string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
