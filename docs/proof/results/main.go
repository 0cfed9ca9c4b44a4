// Command results writes docs/results.md: the figures that matter, each taken from the page that a
// measurement has written. It measures nothing, and fails where a page has no such figure.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A figure is what one line of a measured page says. The pattern's groups are put together with
// show, as "%s of %s".
type figure struct {
	what    string
	page    string // below docs/results
	part    string // of the page, as docs/tables.txt has it; "-" = the page
	pattern string
	show    string
}

// A chapter is figures of one kind.
type chapter struct {
	title   string
	figures []figure
}

func main() {
	root := "../.."
	page, err := render(root)
	if err == nil {
		err = os.WriteFile(filepath.Join(root, "docs/results.md"), []byte(page), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "results:", err)
		os.Exit(1)
	}
}

const intro = `# Results

The figures that matter, taken by ` + "`make results`" + ` from the pages of [results](results/), which
have the command, machine, date and commit of each, and say where one is older than the code.
What is emulated is called so.
`

func render(root string) (string, error) {
	var b strings.Builder
	b.WriteString(intro)
	for _, c := range chapters {
		fmt.Fprintf(&b, "\n## %s\n\n| What | Measured | From |\n|---|---|---|\n", c.title)
		for _, f := range c.figures {
			value, err := f.read(root)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&b, "| %s | %s | [%s](results/%s) |\n", f.what, value, f.source(), f.page)
		}
	}
	return b.String(), nil
}

func (f figure) source() string {
	name := strings.TrimSuffix(f.page, ".md")
	if f.part == "-" || f.part == name {
		return name
	}
	return name + ", " + f.part
}

func (f figure) read(root string) (string, error) {
	b, err := os.ReadFile(filepath.Join(root, "docs/results", f.page))
	if err != nil {
		return "", err
	}
	text := string(b)
	if f.part != "-" {
		_, rest, found := strings.Cut(text, "<!-- "+f.part+": written by ")
		if !found {
			return "", fmt.Errorf("docs/results/%s has no part %s", f.page, f.part)
		}
		text, _, _ = strings.Cut(rest, "<!-- end of "+f.part+" -->")
	}
	groups := regexp.MustCompile(`(?m)` + f.pattern).FindStringSubmatch(text)
	if groups == nil {
		return "", fmt.Errorf("docs/results/%s, part %s: no line is like %s", f.page, f.part, f.pattern)
	}
	values := make([]any, len(groups)-1)
	for i, g := range groups[1:] {
		values[i] = strings.TrimSpace(g)
	}
	return fmt.Sprintf(f.show, values...), nil
}
