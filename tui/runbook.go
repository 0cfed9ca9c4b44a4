package tui

import (
	"slices"
	"strings"

	"github.com/failslow/falcon/backend/statements"
	"github.com/failslow/falcon/docs"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// runbookTopic is what the screen asks to be read: who holds the job up or what is lost comes
// before a slowdown.
func runbookTopic(by decision.Operator) string {
	switch x := page.First(by.Live); {
	case x.Kind == statements.Standing:
		return docs.Standstill
	case x.Kind == statements.Recovery, x.Kind == statements.Stopped, x.Kind == statements.Failed,
		x.Kind == statements.Gone, x.Kind == statements.Ended:
		return docs.Lost
	case !page.Open(by.Subject.Incident()):
		return docs.FirstMinute
	}
	return by.Subject.Incident().GetVerdict().GetCause()
}

// newRunbook is the help's box with a section of the runbook in it.
func newRunbook(h *helpBox, topic string) *helpBox {
	h.title, h.text = "RUNBOOK", docs.Section(topic)
	if h.text == nil {
		topic = ""
		h.text = docs.Section("")
	}
	if h.text[0] == topic || topic == "" { // the heading is the cause's name
		h.text[0] = phrase.Capital(phrase.Cause(topic))
	}
	return h
}

// textLines are the lines of a text that hold what is wanted, all where nothing is.
func (h *helpBox) textLines(w int) []page.Line {
	var out []page.Line
	want := strings.ToLower(strings.TrimSpace(h.wanted))
	for i, l := range h.text {
		if want != "" && !strings.Contains(strings.ToLower(l), want) {
			continue
		}
		role := themes.Text
		if i == 0 {
			role = themes.Title
		}
		rows := widget.Wrap(l, w)
		if l == "" {
			rows = []string{""}
		}
		for _, row := range rows {
			out = append(out, page.Line{Text: row, Role: role})
		}
	}
	return slices.Clip(out)
}
