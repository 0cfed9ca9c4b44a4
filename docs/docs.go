// Package docs is the runbook inside the programs: what a verdict asks of whoever is on call, to
// be read where no browser is.
//
// It guarantees that every cause of a verdict has a section. The text is the page's own,
// embedded when the program is built; it holds data and pure look-ups only.
package docs

import (
	_ "embed" // the page is data
	"slices"
	"strings"
)

//go:embed runbook.md
var runbook string

// Topics of the runbook beside the causes of verdicts.
const (
	FirstMinute = "first-minute"
	Standstill  = "standstill"
	Proposal    = "proposal"
	Lost        = "lost"
	Fence       = "fence"
	Itself      = "falcon"
	HandOver    = "handover"
)

// titles are the headings of the topics that are not named as their heading is.
var titles = map[string]string{
	FirstMinute: "The first minute",
	Standstill:  "The job stands still",
	Proposal:    "Something is proposed",
	Lost:        "A rank or node is gone",
	Fence:       "Lifting a fence",
	Itself:      "Falcon itself",
	HandOver:    "Before you hand over",
}

// causes are the headings that are causes of verdicts.
var causes = []string{
	"gpu_degradation", "cpu_contention", "network_congestion", "facility", "not_hardware",
	"unknown",
}

// Topics are all that Section knows, causes first.
func Topics() []string {
	return append(slices.Clone(causes), FirstMinute, Standstill, Proposal, Lost, Fence, Itself, HandOver)
}

// Section is a topic's section of the runbook as plain lines, its heading first; "" is the cause
// that is not known. It is nil for what the runbook has no section about.
func Section(topic string) []string {
	if topic == "" {
		topic = "unknown"
	}
	title := titles[topic]
	if slices.Contains(causes, topic) {
		title = topic
	}
	if title == "" {
		return nil
	}
	return plainLines(sectionOf(title))
}

// sectionOf are the lines from a heading to the next one that is as high.
func sectionOf(title string) []string {
	lines := strings.Split(runbook, "\n")
	depth := func(l string) int {
		return len(l) - len(strings.TrimLeft(l, "#"))
	}
	from := slices.IndexFunc(lines, func(l string) bool {
		return depth(l) > 1 && strings.TrimSpace(strings.TrimLeft(l, "#")) == title
	})
	if from < 0 {
		return nil
	}
	rest := lines[from+1:]
	end := slices.IndexFunc(rest, func(l string) bool {
		return depth(l) > 0 && depth(l) <= depth(lines[from])
	})
	if end >= 0 {
		rest = rest[:end]
	}
	return append([]string{title}, rest...)
}

// plainLines are lines of a page as paragraphs, items and rows, one a line, without marks of
// Markdown; an empty line ends a paragraph.
func plainLines(lines []string) []string {
	var out []string
	open := false // the last line goes on
	for _, l := range lines {
		text := strings.TrimSpace(l)
		switch {
		case text == "" || strings.HasPrefix(text, "|--") || strings.HasPrefix(text, "```"):
			open = false
			if n := len(out); text == "" && n > 0 && out[n-1] != "" {
				out = append(out, "")
			}
			continue
		case strings.HasPrefix(text, "|"):
			open = false
			text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '|' }), ": ")
			text = strings.Join(strings.Fields(text), " ")
			text = strings.ReplaceAll(text, " : ", ": ")
		case strings.HasPrefix(text, "#"):
			open = false
			text = strings.TrimLeft(text, "# ")
		}
		text = plain(text)
		starts := strings.HasPrefix(text, "- ") || isNumbered(text)
		if open && !starts && len(out) > 1 {
			out[len(out)-1] += " " + text
			continue
		}
		out, open = append(out, text), !strings.HasPrefix(strings.TrimSpace(l), "|") && len(out) > 0
	}
	if n := len(out); n > 0 && out[n-1] == "" {
		out = out[:n-1]
	}
	return slices.Clip(out)
}

func isNumbered(text string) bool {
	n, _, found := strings.Cut(text, ". ")
	return found && n != "" && strings.Trim(n, "0123456789") == ""
}

// plain drops marks: links are their text, strong words are words.
func plain(text string) string {
	text = strings.ReplaceAll(text, "**", "")
	for {
		open := strings.Index(text, "](")
		if open < 0 {
			return text
		}
		from := strings.LastIndex(text[:open], "[")
		end := strings.Index(text[open:], ")")
		if from < 0 || end < 0 {
			return text
		}
		text = text[:from] + text[from+1:open] + text[open+end+1:]
	}
}
