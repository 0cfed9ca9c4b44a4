package fault

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// stallFile is in the lab's folder while the emulated storage gives no data: it
// holds the time until then, in Unix nanoseconds, and the iteration from which on
// that holds, so that all ranks stop before the same one.
const stallFile = "stall"

// stallMost bounds a stall, whatever the file asks for.
const stallMost = 10 * time.Minute

// Stalled is how long the samples of an iteration take to come. Outside of a lab
// they are there at once.
func Stalled(labDir string, iteration int64, now time.Time) time.Duration {
	if labDir == "" {
		return 0
	}
	var ns, from int64
	text, err := os.ReadFile(filepath.Join(labDir, stallFile))
	if _, err2 := fmt.Sscan(string(text), &ns, &from); err != nil || err2 != nil || iteration < from {
		return 0
	}
	return min(max(time.Unix(0, ns).Sub(now), 0), stallMost)
}
