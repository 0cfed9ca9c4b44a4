package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/failslow/falcon"
)

// iterationWord is the number in the path of a checkpoint.
const iterationWord = "{iteration}"

// checkpointBytesMax bounds the file that names the newest checkpoint.
const checkpointBytesMax = 64

// checkCheckpoint says in one sentence why a path can't be one of checkpoints.
func (c Config) checkCheckpoint() error {
	p := c.Checkpoint
	switch {
	case p == "":
		return nil
	case !filepath.IsAbs(p):
		return fmt.Errorf("launch.checkpoint: %q is no absolute path", p)
	case !utf8.ValidString(p):
		return fmt.Errorf("launch.checkpoint: %q is no UTF-8 text", p)
	case strings.Count(p, iterationWord) > 1:
		return fmt.Errorf("launch.checkpoint: %s is there more than once", iterationWord)
	}
	if _, err := filepath.Match(strings.ReplaceAll(p, iterationWord, "0"), ""); err != nil {
		return fmt.Errorf("launch.checkpoint: %q: %w", p, err)
	}
	return nil
}

// NewestCheckpoint is the iteration that a restart begins with by what storage holds:
// the largest number in place of {iteration} in the path of an existing file, or, in a
// path without it, the number that the file holds. falcon.NoIteration is none. It may
// block for as long as the file system does.
func NewestCheckpoint(path string) (int64, error) {
	if !strings.Contains(path, iterationWord) {
		return readIteration(path)
	}
	found, err := filepath.Glob(strings.ReplaceAll(path, iterationWord, "[0-9]*"))
	if err != nil {
		return falcon.NoIteration, fmt.Errorf("launch.checkpoint: %w", err)
	}
	number := iterationPattern(path)
	newest := falcon.NoIteration
	for _, f := range found {
		if m := number.FindStringSubmatch(f); m != nil {
			if n, err := strconv.ParseInt(m[1], 10, 64); err == nil {
				newest = max(newest, n)
			}
		}
	}
	return newest, nil
}

// iterationPattern finds the number in a path that a pattern of Glob has matched.
func iterationPattern(path string) *regexp.Regexp {
	before, after, _ := strings.Cut(path, iterationWord)
	return regexp.MustCompile("^" + globExpression(before) + `(\d+)` + globExpression(after) + "$")
}

// globExpression matches at least what a pattern of Glob does.
func globExpression(glob string) string {
	out := regexp.QuoteMeta(glob)
	if strings.ContainsAny(glob, `[\`) {
		return `.*`
	}
	return strings.NewReplacer(`\*`, `[^/]*`, `\?`, `[^/]`).Replace(out)
}

func readIteration(path string) (int64, error) {
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return falcon.NoIteration, nil
	}
	if err != nil {
		return falcon.NoIteration, fmt.Errorf("launch.checkpoint: %w", err)
	}
	defer f.Close()
	buf := make([]byte, checkpointBytesMax)
	k, _ := f.Read(buf) // what can't be read is no number
	n, err := strconv.ParseInt(strings.TrimSpace(string(buf[:k])), 10, 64)
	if err != nil || n < 0 {
		return falcon.NoIteration, fmt.Errorf("launch.checkpoint: %s holds no iteration", path)
	}
	return n, nil
}
