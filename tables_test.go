package falcon_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon/backend/sim/tabletest"
)

var updateTables = flag.Bool("update-tables", false,
	"write into each page which of its tables are older than the code")

// ageLines are what a page says right above a table that is older than the code, and
// above one that does not say which code it was measured with.
func ageLines(t tabletest.Table) (older, unknown string) {
	again := fmt.Sprintf("`make %s` measures it again.*\n\n", t.Target)
	return fmt.Sprintf("*Older than the code: %s changed since this was measured; ",
			strings.Join(t.Packages, ", ")) + again,
		"*Perhaps older than the code: this does not say which code was measured; " + again
}

// anyAges are such lines of any wording of the folders: a row may have got others.
const anyAges = `(?:\*(?:Older|Perhaps older) than the code: [^\n]* measures it again\.\*\n\n)+`

var (
	agesAtStart = regexp.MustCompile(`^` + anyAges)
	agesAtEnd   = regexp.MustCompile(anyAges + `$`)
)

var errNoPart = errors.New("there is no part")

// placed is where a table's line belongs in its page: the end of the text before it.
// It returns the text before, the part itself, and what follows.
func placed(page string, t tabletest.Table) (before, part, after string, err error) {
	if t.Part == "-" {
		title, rest, found := strings.Cut(page, "\n\n")
		if !found {
			return "", "", "", fmt.Errorf("docs/%s has no title", t.Page)
		}
		part, _, _ := strings.Cut(rest, "<!--")
		return title + "\n\n", part, strings.TrimPrefix(rest, part), nil
	}
	at := strings.Index(page, "<!-- "+t.Part+": written by ")
	end := fmt.Sprintf("<!-- end of %s -->", t.Part)
	i := strings.Index(page, end)
	if at < 0 || i < at {
		return "", "", "", fmt.Errorf("docs/%s: %w %s", t.Page, errNoPart, t.Part)
	}
	return page[:at], page[at : i+len(end)], page[i+len(end):], nil
}

// aged is the page with that table's line as it has to be where the code has this hash.
func aged(page string, t tabletest.Table, now string) (string, error) {
	before, part, after, err := placed(page, t)
	if err != nil {
		return "", err
	}
	older, unknown := ageLines(t)
	before = agesAtEnd.ReplaceAllString(before, "")
	part = agesAtStart.ReplaceAllString(part, "")
	switch tabletest.Stamped(part) {
	case now:
	case "":
		before += unknown
	default:
		before += older
	}
	return before + part + after, nil
}

// Every page says of each of its tables whether the code has changed since it was
// measured. Tables take minutes to nights to measure, so that an old one fails no
// test by itself; one that does not say so does.
func TestTablesSayTheirAge(t *testing.T) {
	tables, err := tabletest.Tables(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		path := filepath.Join("docs", table.Page)
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		now, err := table.Sources(".")
		if err != nil {
			t.Fatal(err)
		}
		t.Log(table.Page, table.Part, "Sources", now+".") // docs/bench.sh reads it
		want, err := aged(string(page), table, now)
		if errors.Is(err, errNoPart) {
			t.Logf("docs/%s: part %s is not measured yet: make %s", table.Page, table.Part, table.Target)
			continue
		}
		if err != nil {
			t.Error(err)
			continue
		}
		switch {
		case want == string(page):
		case *updateTables:
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf(
				"docs/%s: the page does not say rightly whether table %s is older than the code: run make tables, or make %s to measure it again",
				table.Page, table.Part, table.Target,
			)
		}
	}
}

var markOfPart = regexp.MustCompile(`<!-- ([a-z0-9-]+): written by `)

// Every part that a command writes is in docs/tables.txt.
func TestTablesAreListed(t *testing.T) {
	tables, err := tabletest.Tables(".")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	measured, err := filepath.Glob("docs/results/*.md")
	if err != nil || len(measured) == 0 {
		t.Fatalf("%d measured pages, %v", len(measured), err)
	}
	pages = append(pages, measured...)
	targets := strings.Join(fileLines(t, "Makefile"), "\n")
	plays := nightPlays(t)
	for _, table := range tables {
		played := slices.ContainsFunc(plays, func(p nightPlay) bool { return p.Name == table.Target })
		if !played && !strings.Contains(targets, "\n"+table.Target+":") {
			t.Errorf("docs/tables.txt: %s %s: neither a target nor a play is %s",
				table.Page, table.Part, table.Target)
		}
	}
	for _, path := range pages {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range markOfPart.FindAllStringSubmatch(string(text), -1) {
			if !slices.ContainsFunc(tables, func(x tabletest.Table) bool {
				return "docs/"+x.Page == path && x.Part == m[1]
			}) {
				t.Errorf("%s: part %s is not in docs/tables.txt", path, m[1])
			}
		}
	}
}

func TestAgedPages(t *testing.T) {
	table := tabletest.Table{
		Page:     "p.md",
		Part:     "b",
		Target:   "bs",
		Packages: []string{"x", "y"},
	}
	const hash, other = "0123456789ab", "ba9876543210"
	page := "# P\n\ntext\n\n<!-- a: written by make -->\n1\n<!-- end of a -->\n\n<!-- b: written by make -->\nSources " + hash + ".\n<!-- end of b -->\n"
	age := func(page, now string) string {
		t.Helper()
		out, err := aged(page, table, now)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	old := age(page, other)
	if !strings.Contains(
		old,
		"<!-- end of a -->\n\n*Older than the code: x, y changed since this was measured; `make bs` measures it again.*\n\n<!-- b:",
	) {
		t.Errorf("older: %s", old)
	}
	if age(old, other) != old || age(old, hash) != page || age(page, hash) != page {
		t.Error("the line is written twice, or stays")
	}
	table.Packages = []string{"z"}
	got := age(old, other)
	if strings.Contains(got, "x, y") || !strings.Contains(got, "code: z changed") {
		t.Errorf("the row has other folders: %s", got)
	}
	table.Part = "-"
	unknown := age(page, hash)
	if !strings.HasPrefix(unknown, "# P\n\n*Perhaps older than the code: ") ||
		age(unknown, other) != unknown {
		t.Errorf("of unknown age: %s", unknown)
	}
	known := strings.Replace(page, "text", "text. Sources "+hash+".", 1)
	if age(known, hash) != known || !strings.HasPrefix(age(known, other), "# P\n\n*Older than the code: ") {
		t.Error("a whole page with a hash")
	}
	table.Part = "c"
	if _, err := aged(page, table, hash); !errors.Is(err, errNoPart) {
		t.Error("a part that is not there:", err)
	}
}
