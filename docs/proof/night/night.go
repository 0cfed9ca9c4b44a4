package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Results of a play.
const (
	passed  = "pass"
	failed  = "FAIL"
	skipped = "skipped" // what it needs is absent: nothing was shown
)

const resultsHead = "| Target | Commit | Ended (UTC) | Minutes | Result |\n|---|---|---|---|---|\n"

// night plays a list as a night does.
func (r *runner) night(plays []play) error {
	book, err := r.openBook()
	if err != nil {
		return err
	}
	r.installTools()
	var bad []string
	for _, p := range plays {
		if at := book.passedAt(p.Name); at != "" {
			fmt.Printf("nightly: %s passed at %s\n", p.Name, at)
			continue
		}
		result, err := r.nightPlay(p, book)
		if err != nil {
			return err
		}
		if result == failed {
			bad = append(bad, p.Name)
		}
	}
	text, err := os.ReadFile(book.file)
	if err != nil {
		return err
	}
	fmt.Print(string(text))
	if len(bad) > 0 {
		return fmt.Errorf("failed: %s", strings.Join(bad, " "))
	}
	return nil
}

// nightPlay plays one into its log, and enters its result.
func (r *runner) nightPlay(p play, book *book) (result string, err error) {
	begun := time.Now()
	fmt.Printf("nightly: %s, since %s\n", p.Name, begun.UTC().Format("15:04"))
	path := filepath.Join(book.folder, p.Name+".log")
	log, err := os.Create(path)
	if err != nil {
		return "", err
	}
	missing, failure := r.play(p, log, places{book.folder, book.folder, true})
	if missing != "" {
		fmt.Fprintf(log, "%s: skipped: %s\n", p.Name, missing)
	}
	if err := log.Close(); err != nil {
		return "", err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	result = resultOf(p.Name, failure, string(text))
	if result == failed {
		fmt.Println(lastLines(string(text), 20))
		fmt.Printf("nightly: %s: %v\n", p.Name, failure)
	}
	return result, book.enter(p.Name, time.Now(), time.Since(begun), result)
}

// resultOf judges a play by how it ended, and by whether any test of it was played.
func resultOf(name string, failure error, log string) string {
	if failure != nil {
		return failed
	}
	result := passed
	anySkipped, anyPassed := false, false
	for line := range strings.Lines(log) {
		anySkipped = anySkipped || strings.HasPrefix(line, "--- SKIP")
		anyPassed = anyPassed || strings.HasPrefix(line, "--- PASS")
		if strings.HasPrefix(line, name+": ") && strings.Contains(line, "skipped") {
			result = skipped
		}
	}
	if anySkipped && !anyPassed {
		return skipped
	}
	return result
}

func lastLines(text string, most int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}

// installTools installs what makes network namespaces, where this user may: a lab's network is cut
// in them.
func (r *runner) installTools() {
	c := r.command(os.Stdout, "bash", "-c", `command -v ip >/dev/null && command -v iptables >/dev/null ||
	[ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null ||
	{ apt-get update -qq && apt-get install -y -qq iproute2 iptables >/dev/null; }`)
	if err := c.Run(); err != nil {
		fmt.Println("nightly: ip and iptables can't be installed: what needs them is skipped")
	}
}

// book is the results of nights.
type book struct {
	folder string // of logs, and of pages that plays write
	file   string // of results
	commit string // of this tree; with a "+" where it has changes
	since  string // what passed at or after it counts; "" = at this commit alone
	later  func(a, b string) bool
}

// openBook prepares the folder of this night. One without NIGHT_SINCE is of one commit.
func (r *runner) openBook() (*book, error) {
	b := &book{
		folder: r.path("bin", "nightly"),
		since:  os.Getenv("NIGHT_SINCE"),
		later:  r.isLater,
	}
	b.file = filepath.Join(b.folder, "results.md")
	if file := os.Getenv("NIGHT_RESULTS"); file != "" {
		b.file = file
		if !filepath.IsAbs(file) {
			b.file = r.path(file)
		}
	}
	if b.since != "" && !r.isLater(b.since, "HEAD") {
		return nil, fmt.Errorf("NIGHT_SINCE=%s is no commit before this one; see git log", b.since)
	}
	var err error
	if b.commit, err = r.commit(b.file); err != nil {
		return nil, err
	}
	mark := filepath.Join(b.folder, "commit")
	if of, _ := os.ReadFile(mark); b.since == "" && strings.TrimSpace(string(of)) != b.commit {
		if err := os.RemoveAll(b.folder); err != nil {
			return nil, err
		}
	}
	if err := r.copyPages(b.folder); err != nil {
		return nil, err
	}
	if _, err := os.Stat(b.file); errors.Is(err, os.ErrNotExist) {
		if err := os.WriteFile(b.file, []byte(resultsHead), 0o644); err != nil {
			return nil, err
		}
	}
	return b, os.WriteFile(mark, []byte(b.commit+"\n"), 0o644)
}

// copyPages copies the pages that plays write their parts of, once in a night.
func (r *runner) copyPages(folder string) error {
	if _, err := os.Stat(folder); err == nil {
		return nil
	}
	for _, part := range []string{"", "results"} {
		if err := os.MkdirAll(filepath.Join(folder, part), 0o755); err != nil {
			return err
		}
		pages, err := filepath.Glob(r.path("docs", part, "*.*"))
		if err != nil {
			return err
		}
		for _, page := range pages {
			text, err := os.ReadFile(page)
			if err != nil {
				return err
			}
			copied := filepath.Join(folder, part, filepath.Base(page))
			if err := os.WriteFile(copied, text, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// commit names the tree. A file of results in it is no change of it.
func (r *runner) commit(results string) (string, error) {
	name, err := r.git("rev-parse", "--short", "HEAD")
	if err != nil {
		return "", err
	}
	changed, err := r.git("status", "--porcelain", "--", ":(exclude)bin", ":(exclude)"+r.inTree(results))
	if err != nil {
		return "", err
	}
	if changed != "" {
		name += "+"
	}
	return name, nil
}

// inTree is a file's path in the tree; "bin" for one outside.
func (r *runner) inTree(file string) string {
	rel, err := filepath.Rel(r.path(), file)
	if err != nil || strings.HasPrefix(rel, "..") {
		return "bin"
	}
	return rel
}

func (r *runner) git(args ...string) (string, error) {
	var out strings.Builder
	c := r.command(&out, "git", args...)
	c.Stderr = os.Stderr
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(out.String()), nil
}

// isLater reports whether commit b is a, or comes after it.
func (r *runner) isLater(a, b string) bool {
	var none strings.Builder
	return r.command(&none, "git", "merge-base", "--is-ancestor", a, b).Run() == nil
}

// passedAt is the commit at which a play has passed, where that counts.
func (b *book) passedAt(name string) string {
	f, err := os.Open(b.file)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		at := passedRow(lines.Text(), name)
		switch {
		case at == "" || strings.HasSuffix(at, "+"):
		case at == b.commit:
			return at
		case b.since != "" && b.later(b.since, at) && b.later(at, "HEAD"):
			return at
		}
	}
	return ""
}

// passedRow is the commit of a row that says that a play passed; "" of another row.
func passedRow(row, name string) string {
	cells := strings.Split(row, " | ")
	if len(cells) != 5 || cells[0] != "| "+name || cells[4] != passed+" |" {
		return ""
	}
	return cells[1]
}

// enter adds a row.
func (b *book) enter(name string, now time.Time, took time.Duration, result string) error {
	f, err := os.OpenFile(b.file, os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "| %s | %s | %s | %.0f | %s |\n",
		name, b.commit, now.UTC().Format("2006-01-02 15:04"), took.Minutes(), result)
	return errors.Join(err, f.Close())
}
