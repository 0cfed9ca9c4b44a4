package evaltest

import (
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"gonum.org/v1/gonum/stat"

	"github.com/failslow/falcon/detect/bocd"
)

var freshDir = flag.String("fresh", filepath.Join("testdata", "fresh"),
	"folder of CSV files with a column ms: undisturbed records that nothing was fitted on")

// TestFresh judges records that the detector was never tuned on, once it is frozen. It
// prints, and fails for false onsets and for missed slowdowns of 20 %: what is smaller may
// be lost in the noise.
func TestFresh(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(*freshDir, "*.csv"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no CSV files in %s: %v", *freshDir, err)
	}
	var out strings.Builder
	for _, s := range settings() {
		fmt.Fprintf(&out,
			"\n%s\n\n| record | iterations | CoV | false onsets | +2 %% | +3 %% | +5.6 %% | +20 %% put in: found at of 10 places, slow iterations, median / 95 %% |\n|---|---|---|---|---|---|---|---|\n",
			s.name)
		for _, file := range files {
			freshLine(t, &out, s, file)
		}
	}
	t.Log(out.String())
}

func freshLine(t *testing.T, out *strings.Builder, s setting, file string) {
	ms := durations(t, file, "ms")
	onsets := 0
	for _, c := range Changes(s.cfg, ms) {
		if c.Kind == bocd.KindOnset {
			onsets++
			t.Errorf("%s: %s: %+v", s.name, filepath.Base(file), c)
		}
	}
	mean, deviation := stat.MeanStdDev(ms, nil)
	fmt.Fprintf(out, "| %s | %d | %.2f %% | %d |",
		filepath.Base(file), len(ms), 100*deviation/mean, onsets)
	for _, size := range []float64{0.02, 0.03, 0.056, 0.2} {
		took := putInAnyway(s.cfg, ms, size)
		fmt.Fprintf(out, " %d: %s |", len(took), DelayText(took))
		if size == 0.2 && len(took) < 10 {
			t.Errorf("%s: %s: +20 %% is found at %d of 10 places", s.name, filepath.Base(file), len(took))
		}
	}
	out.WriteByte('\n')
}
