package fault

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/failslow/falcon"
)

// stallFile is in the lab's folder while the emulated storage gives no data: it
// holds the time until then, in Unix nanoseconds, the iteration from which on that
// holds, so that all ranks stop before the same one, and the rank, where it is one alone.
const stallFile = "stall"

// stallMost bounds a stall, whatever the file asks for.
const stallMost = 10 * time.Minute

// Stalled is how long the samples of an iteration take to come to a rank. Outside of a
// lab they are there at once.
func Stalled(labDir string, iteration int64, rank falcon.Rank, now time.Time) time.Duration {
	if labDir == "" {
		return 0
	}
	text, err := os.ReadFile(filepath.Join(labDir, stallFile))
	if err != nil {
		return 0
	}
	var ns, from int64
	only := rank
	n, _ := fmt.Sscan(string(text), &ns, &from, &only)
	if n < 2 || iteration < from || only != rank {
		return 0
	}
	return min(max(time.Unix(0, ns).Sub(now), 0), stallMost)
}
