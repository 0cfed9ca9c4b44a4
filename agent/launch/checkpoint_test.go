package launch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/failslow/falcon"
)

func TestNewestCheckpoint(t *testing.T) {
	dir := t.TempDir()
	for _, f := range []string{
		"iter_0000100/metadata.json", "iter_0000200/metadata.json", "iter_0000300/half",
		"iter_x/metadata.json",
		"step-000000000040-g000001/complete.json",
		"step-000000000050-g000002/complete.json", "step-000000000060-g000002/rank-0",
		"latest/text", "bad/text",
	} {
		path := filepath.Join(dir, f)
		text := "x"
		if strings.HasPrefix(f, "latest") {
			text = "1200\n"
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		path string
		want int64
		err  bool
	}{
		{"iter_{iteration}/metadata.json", 200, false},
		{"step-{iteration}-g*/complete.json", 50, false},
		{"step-{iteration}-g00000?/complete.json", 50, false},
		{"{iteration}/none", falcon.NoIteration, false},
		{"latest/text", 1200, false},
		{"away/text", falcon.NoIteration, false},
		{"bad/text", falcon.NoIteration, true},
		{"latest", falcon.NoIteration, true},
	} {
		got, err := NewestCheckpoint(filepath.Join(dir, c.path))
		if got != c.want || (err != nil) != c.err {
			t.Errorf("%s: %d, %v; want %d", c.path, got, err, c.want)
		}
	}
}

func FuzzNewestCheckpoint(f *testing.F) {
	for _, s := range []string{
		"a-{iteration}-*/b", "[{iteration}]x", `\{iteration}`, "{iteration}{iteration}",
		"?{iteration}[", "\xe7{iteration}",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, pattern string) {
		c := Config{Checkpoint: "/" + pattern}
		if c.checkCheckpoint() == nil && strings.Contains(pattern, iterationWord) {
			iterationPattern(c.Checkpoint).FindStringSubmatch("/a-12-x/b") // it must compile
		}
	})
}
