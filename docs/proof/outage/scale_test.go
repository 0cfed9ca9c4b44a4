package outage

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon/backend/sim/tabletest"
)

var (
	outPath = flag.String("outage-out", "", "TestScale: the Markdown file to write")
	plays   = flag.Int("outage-plays", 3, "TestScale: how often a size is played; large ones less often")
	sizes   = flag.String("outage-sizes", "32,960,4800,10000,18000", "TestScale: numbers of devices")
)

// playsBelow bounds how often a size is played: those near it once.
const playsBelow = 18000

// middleOf is the run whose T is the median: where in the beat a node is lost
// makes two seconds, more than everything that runs here.
func middleOf(runs []Outcome) Outcome {
	slices.SortFunc(runs, func(a, b Outcome) int {
		return cmp.Compare(a.Controlled(), b.Controlled())
	})
	o := runs[len(runs)/2]
	o.Runs = len(runs)
	return o
}

// scalePatience is for one size.
const scalePatience = 10 * time.Minute

// The whole table of docs/results/flashrecovery.md; minutes, so only when asked for.
func TestScale(t *testing.T) {
	if *outPath == "" {
		t.Skip("plays up to 18,000 devices: make outage")
	}
	var all []Outcome
	var base []Baseline
	for _, text := range strings.Split(*sizes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		var runs []Outcome
		var v Baseline
		for range max(1, min(*plays, playsBelow/n)) {
			t.Run(text, func(t *testing.T) {
				var o Outcome
				o, v = playOne(t, n)
				runs = append(runs, o)
			})
			if t.Failed() {
				return
			}
			fmt.Printf("%+v\n%+v\n", runs[len(runs)-1], v)
		}
		all, base = append(all, middleOf(runs)), append(base, v)
	}
	f, err := os.Create(*outPath)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(Report(f, head(), all, base, DefaultModel()), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func playOne(t *testing.T, devices int) (Outcome, Baseline) {
	m := newApart(t)
	ctx, stop := context.WithTimeout(t.Context(), scalePatience)
	defer stop()
	begin := time.Now()
	c, err := New(ctx, Config{
		Devices: devices,
		StepMs:  1000,
		Model:   DefaultModel(),
		Meeting: m,
		Log:     logOf(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d devices attached and described in %s", devices, time.Since(begin).Round(time.Millisecond))
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	time.Sleep(settle) // several heartbeats, and the machine's grace after a start
	o, err := c.Lose(ctx)
	if err != nil {
		t.Fatal(err)
	}
	v := Baseline{Devices: devices}
	took, err := SerialStore(m.address, devices, scalePatience)
	if err != nil {
		t.Fatal(err)
	}
	v.Store = took.Seconds()
	took, v.Sent, err = CollectAndBroadcast(devices)
	if err != nil {
		t.Fatal(err)
	}
	v.Table = took.Seconds()
	return o, v
}

// settle is how long a job is let train before its node is lost.
const settle = 12 * time.Second

func logOf() io.Writer {
	if os.Getenv("OUTAGE_LOG") == "" {
		return nil
	}
	return os.Stderr
}

func head() string {
	stamp, err := tabletest.Stamp("../../..", "results/flashrecovery.md", "-")
	if err != nil {
		stamp = err.Error()
	}
	return fmt.Sprintf(`# FlashRecovery's figures, beside ours

Written by %s; nothing here is typed by hand. %d cores, %s, %s, commit %s. %s

What is measured: the engine with its journal, gRPC over loopback TCP with mutual TLS, the recovery machine, the rank table and the store, on one machine that also carries every emulated agent. What is emulated: agents and ranks are goroutines, eight ranks on a node; a lost node falls silent and nobody resets its connection. What is simulated: container and process starts, and the transfer of state. The paper's figures are of real clusters: shapes compare, absolute seconds do not.
`,
		"`make outage`", runtime.NumCPU(), runtime.Version(),
		time.Now().UTC().Format(time.DateOnly),
		tabletest.Commit(), stamp)
}
