package tabletest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// WritePart replaces one marked part of a page, or adds it at the end. by is what writes it, such as
// "make eval"; text is without the marks. A page that is absent is made.
func WritePart(path, part, by, text string) error {
	from := fmt.Sprintf("<!-- %s: written by %s -->", part, by)
	to := fmt.Sprintf("<!-- end of %s -->", part)
	raw, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	head, rest, found := strings.Cut(string(raw), from)
	tail := ""
	if found {
		_, tail, _ = strings.Cut(rest, to)
	}
	page := strings.TrimLeft(strings.TrimRight(head, "\n")+"\n\n", "\n") +
		from +
		"\n" +
		strings.TrimSpace(text) +
		"\n" +
		to +
		"\n"
	if tail = strings.TrimLeft(tail, "\n"); tail != "" {
		page += "\n" + tail
	}
	return os.WriteFile(path, []byte(page), 0o644)
}

// Processor is the model of this machine's processor, its architecture where that is unknown.
func Processor() string {
	raw, _ := os.ReadFile("/proc/cpuinfo") // without it the model is unknown
	for line := range strings.Lines(string(raw)) {
		if name, model, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(model)
		}
	}
	return runtime.GOARCH
}

// Commit is the checkout's commit, with a mark where it has changes, but for the pages that
// measurements write; "unknown" outside of one.
func Commit() string {
	out, err := exec.Command("git", "describe", "--always").Output()
	if err != nil {
		return "unknown"
	}
	commit := strings.TrimSpace(string(out))
	changed, err := exec.Command("git", "status", "--porcelain", "--", ":(top)", ":(top,exclude)docs/results").Output()
	if err != nil || len(changed) > 0 {
		commit += "-dirty"
	}
	return commit
}
