package autopsy

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon/backend/sim/tabletest"
)

var (
	powerPlays = flag.Int("power-plays", 0, "series of each cell of the table of power")
	powerOut   = flag.String("power-out", "", "page whose part autopsy-power is written")
)

// ideal is how often a change is found by a test that knows its place and the noise, at one false alarm in a
// thousand series.
func ideal(before, after int, share, noise float64) float64 {
	const quantile = 3.09 // of the Gaussian, at 1/1000
	d := math.Log1p(share) / (noise * math.Sqrt(1/float64(before)+1/float64(after)))
	return 0.5 * math.Erfc((quantile-d)/math.Sqrt2)
}

// cell is how often a change is found in made series, and how often something is found where there is none.
func cell(before, after int, share, noise float64, plays int) (found, wrong float64) {
	r := rand.New(rand.NewPCG(uint64(before*1000+after), uint64(1e6*(share+noise))))
	for range plays {
		l := levels(made(r, before+after, before, share, noise))
		if len(l.Shifts) > 0 && math.Abs(float64(l.Shifts[0].At-before)) <= 2 {
			found++
		}
		if l := levels(made(r, before+after, before+after, 0, noise)); len(l.Shifts) > 0 {
			wrong++
		}
	}
	return found / float64(plays), wrong / float64(plays)
}

// The table of the page: what is found of changes of each size, and what an ideal test would find.
func TestPowerTable(t *testing.T) {
	plays := *powerPlays
	if plays == 0 {
		plays = 20
	}
	began := time.Now()
	var b strings.Builder
	b.WriteString(
		"| Before | After | Noise | +4 % | +8 % | +12 % | +20 % | False |\n|---:|---:|---:|---:|---:|---:|---:|---:|\n",
	)
	worst := 0.0
	for _, noise := range []float64{0.003, 0.01, 0.03} {
		for _, before := range []int{12, 40, 200} {
			for _, after := range []int{3, 10, 40} {
				fmt.Fprintf(&b, "| %d | %d | %g %% |", before, after, 100*noise)
				wrong := 0.0
				for _, share := range []float64{0.04, 0.08, 0.12, 0.20} {
					found, none := cell(before, after, share, noise, plays)
					wrong = max(wrong, none)
					fmt.Fprintf(&b, " %.0f (%.0f) |",
						100*found, 100*ideal(before, after, share, noise))
				}
				worst = max(worst, wrong)
				fmt.Fprintf(&b, " %.1f |\n", 100*wrong)
			}
		}
	}
	if worst > 0.05 {
		t.Errorf("something is found in %.1f %% of series without a change\n%s", 100*worst, b.String())
	}
	if *powerOut == "" {
		return
	}
	stamp, err := tabletest.Stamp("../..", "autopsy.md", "autopsy-power")
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("Found in %d series of each cell, in percent; in brackets what a test would find that knows the place and the noise, at one false alarm in a "+
		"thousand. False is the share of series without a change in which one is found, the largest of the row. Independent Gaussian noise; 4 %% is the least change that counts, so that half of such changes are measured below it. "+
		"%.0f s on %d cores of %s, %s, commit %s, %s. %s\n\n%s",
		plays, time.Since(began).Seconds(), runtime.GOMAXPROCS(0), tabletest.Processor(),
		runtime.Version(),
		tabletest.Commit(), time.Now().UTC().Format(time.DateOnly), stamp, b.String())
	if err := tabletest.WritePart(*powerOut, "autopsy-power", "make autopsy-power", text); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(*powerOut); err != nil {
		t.Fatal(err)
	}
}
