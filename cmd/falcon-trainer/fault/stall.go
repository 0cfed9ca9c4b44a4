package fault

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// stallFile is in the lab's folder while the emulated storage gives no data: it
// holds the time until then, in Unix nanoseconds.
const stallFile = "stall"

// stallMost bounds a stall, whatever the file says.
const stallMost = 10 * time.Minute

// Stalled is how long the samples of an iteration take to come. Outside of a lab
// they are there at once.
func Stalled(labDir string, now time.Time) time.Duration {
	if labDir == "" {
		return 0
	}
	text, err := os.ReadFile(filepath.Join(labDir, stallFile))
	ns, err2 := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || err2 != nil {
		return 0
	}
	return min(max(time.Unix(0, ns).Sub(now), 0), stallMost)
}
