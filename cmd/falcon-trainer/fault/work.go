package fault

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/failslow/falcon"
)

// workFile is in the lab's folder where a scenario has the job itself be slower. A line is
// "data RANK MS FROM UNTIL": the rank's data come so late in these iterations; or
// "lengths SPREAD FROM UNTIL": the emulated work of their micro-batches differs, by up to SPREAD
// more. UNTIL 0 is the end.
const workFile = "work"

// Bounds of a work file, whatever it asks for.
const (
	lateMost   = 10 * time.Second
	spreadMost = 10.0
)

// OwnWork is how late a rank's data come in an iteration, and by how much more work than usual its
// micro-batches may be. Outside of a lab it is none.
func OwnWork(labDir string, iteration int64, rank falcon.Rank) (late time.Duration, spread float64) {
	if labDir == "" {
		return 0, 0
	}
	text, err := os.ReadFile(filepath.Join(labDir, workFile))
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(text)) {
		var ms, by float64
		var who falcon.Rank
		var from, until int64
		isData, _ := fmt.Sscanf(line, "data %d %g %d %d", &who, &ms, &from, &until)
		if isData < 4 {
			if n, _ := fmt.Sscanf(line, "lengths %g %d %d", &by, &from, &until); n < 3 {
				continue
			}
		}
		if iteration < from || until > 0 && iteration >= until || isData == 4 && who != rank {
			continue
		}
		late = max(late, time.Duration(ms*float64(time.Millisecond)))
		spread = max(spread, by)
	}
	return min(late, lateMost), min(spread, spreadMost)
}

// Length is how much longer than usual micro-batch number n of the job's life is, from 0 to
// spread: the same on all ranks that work on it.
func Length(n int64, spread float64) float64 {
	return spread * rand.New(rand.NewPCG(uint64(max(n, 0)), 1)).Float64() //#nosec G404 -- emulated work
}
