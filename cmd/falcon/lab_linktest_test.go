package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/lab"
)

var (
	linkTests    = flag.Int("lab-link-tests", 1, "random link tests of a lab whose links are slowed")
	linkTestSeed = flag.Uint64("lab-link-test-seed", 1, "seed of the faults and of what is tested")
)

// Bounds of one set of faults: it holds for as long, and so many tests are made in it.
const (
	linkFaultFor = 45 * time.Second
	linkPerFault = 3
)

// Random links of a lab are slowed, none to three of six, and random links and ranks
// are tested by falcon validate: nothing that is slow is called fine, nothing healthy
// slow, and the exit code says which. The processes are real, the links emulated.
func TestLabLinkTests(t *testing.T) {
	t.Parallel()
	c := newCluster(t, falcon.Layout{TP: 1, DP: 4, PP: 2}, 4, 100_000)
	rng := rand.New(rand.NewPCG(*linkTestSeed, 0x6c696e6b))
	var sum linkTally
	for done := 0; done < *linkTests; {
		slow := c.slowLinks(rng)
		for k := 0; k < linkPerFault && done < *linkTests; k++ {
			args := linkTestArgs(rng)
			v, code := c.testLinks(args)
			if !slices.Equal(c.status().Faults, faultNames(slow)) {
				break // they were over before the test was
			}
			done++
			sum.check(t, v, code, slow)
			t.Logf("%3d slow %v, %v: %s, exit code %d, held %.0f ms",
				done, slow, args[1:], v.Outcome(), code, v.PausedMs)
		}
		if done == *linkTests {
			break
		}
		waitFor(t, 2*linkFaultFor, "the end of the faults", func() bool {
			st, err := c.tryStatus()
			return err == nil && len(st.Faults) == 0
		})
	}
	t.Logf(
		"%d tests: %d healthy directions, %d called slow; %d slow ones, %d found, %d not judged, %d called fine",
		*linkTests, sum.healthy, sum.called, sum.slow, sum.found, sum.left, sum.missed,
	)
}

// slowLinks has some links slow for a while; the value is the share of their bandwidth.
func (c *cluster) slowLinks(rng *rand.Rand) map[string]float64 {
	c.t.Helper()
	links := []string{"n0-n1", "n0-n2", "n0-n3", "n1-n2", "n1-n3", "n2-n3"}
	rng.Shuffle(len(links), func(i, j int) {
		links[i], links[j] = links[j], links[i]
	})
	slow := map[string]float64{}
	dir := c.status().Dir
	for _, l := range links[:rng.IntN(4)] {
		slow[l] = float64(10+rng.IntN(50)) / 100
		if _, err := lab.Ask(dir, lab.Request{
			Op:    "inject",
			Event: &lab.Event{Link: l, Bandwidth: slow[l]},
			For:   linkFaultFor,
		}); err != nil {
			c.t.Fatal(err)
		}
	}
	waitFor(c.t, linkFaultFor/2, "the faults", func() bool {
		st, err := c.tryStatus()
		return err == nil && len(st.Faults) == len(slow)
	})
	return slow
}

// faultNames are the faults as the lab's status names them, sorted.
func faultNames(slow map[string]float64) []string {
	out := []string{}
	for l, share := range slow {
		out = append(out, fmt.Sprintf("link %s bandwidth %g", l, share))
	}
	slices.Sort(out)
	return out
}

// linkTestArgs draws what is tested: one link, some ranks, or all.
func linkTestArgs(rng *rand.Rand) []string {
	args := []string{"validate", "--links"}
	switch rng.IntN(3) {
	case 0:
		a := rng.IntN(4)
		b := (a + 1 + rng.IntN(3)) % 4
		args = append(args, "--pairs", fmt.Sprintf("n%d-n%d", a, b))
	case 1:
		var ranks []string
		for _, r := range rng.Perm(8)[:2+rng.IntN(5)] {
			ranks = append(ranks, fmt.Sprint(r))
		}
		args = append(args, "--ranks", strings.Join(ranks, ","))
	}
	if rng.IntN(2) == 0 {
		args = append(args, "--gemm")
	}
	return args
}

// testLinks runs falcon validate as an operator's script does, again where the job was
// busy with something else.
func (c *cluster) testLinks(args []string) (falcon.Validation, int) {
	c.t.Helper()
	var v falcon.Validation
	code, said := 0, ""
	waitFor(c.t, time.Minute, "a test that is not refused", func() bool {
		var out, errs bytes.Buffer
		cmd := exec.Command(
			binFalcon(c.t),
			append(args, "--json", "--yes", "--connect", c.status().Socket)...,
		)
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		var exit *exec.ExitError
		if code = 0; errors.As(err, &exit) {
			code = exit.ExitCode()
		}
		said = errs.String()
		v = falcon.Validation{}
		return json.Unmarshal(out.Bytes(), &v) == nil && v.State == falcon.ValidationDone
	})
	if v.State != falcon.ValidationDone {
		c.t.Fatalf("exit code %d: %s", code, said)
	}
	return v, code
}

// linkTally counts what tests said of directions whose truth is known.
type linkTally struct{ healthy, called, slow, found, missed, left int }

func (x *linkTally) check(t *testing.T, v falcon.Validation, code int, slow map[string]float64) {
	t.Helper()
	asked, wrong := false, false
	for _, l := range v.Links {
		_, isSlow := slow[l.Path()]
		asked = asked || isSlow && !l.Reference
		switch {
		case isSlow && l.Slow:
			x.slow++
			x.found++
		case isSlow && l.Unjudged+l.Err != "":
			x.slow++
			x.left++
		case isSlow:
			x.slow++
			x.missed++
			wrong = true
		default:
			x.healthy++
			if l.Slow {
				x.called++
				wrong = true
			}
		}
	}
	for _, g := range v.GEMM {
		wrong = wrong || g.Slow
	}
	want := map[falcon.TestOutcome]int{
		falcon.TestsFine:      0,
		falcon.TestsSlow:      exitSlow,
		falcon.TestsNotJudged: exitNotJudged,
	}[v.Outcome()]
	if wrong || code != want || asked && code == 0 {
		var text bytes.Buffer
		_ = writeValidation(&text, v)
		t.Errorf("slow are %v; exit code %d, want %d:\n%s", slow, code, want, text.String())
	}
}
