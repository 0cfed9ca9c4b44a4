package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A corrupt, half-made or absent file gets one clear sentence and a non-zero
// exit; the file's content never reaches the terminal.
func TestInspectRefuses(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"corrupt header": {[]string{"inspect", file("c", bytes.Repeat([]byte{0x1b, 0xff}, 5000))}, 1, "corrupt"},
		"empty":          {[]string{"inspect", file("e", nil)}, 1, "ring:"},
		"half made":      {[]string{"inspect", file("h", make([]byte, 5<<20))}, 1, "not ready"},
		"absent":         {[]string{"inspect", filepath.Join(dir, "absent")}, 1, "no such file"},
		"no file":        {[]string{"inspect"}, 2, "name one file"},
	} {
		var out, errs bytes.Buffer
		code := run(c.args, &out, &errs)
		text := strings.TrimSpace(errs.String())
		if code != c.code || !strings.Contains(text, c.want) || strings.ContainsAny(text, "\n\x1b") || out.Len() != 0 {
			t.Errorf("%s: exit %d, stderr %q, stdout %q", name, code, text, out.String())
		}
	}
}
