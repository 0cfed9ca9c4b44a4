package tui

import (
	"context"
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page/ladder"
	"github.com/failslow/falcon/tui/page/validate"
	"github.com/failslow/falcon/tui/phrase"
)

type validatedMsg struct {
	dialog     int // 0 = not from a dialog
	validation *falconv1.Validation
	err        error
}

// openValidate asks before the job is held: for the links named, else for the
// ranks picked.
func (m *Model) openValidate(links []string) tea.Cmd {
	if why := m.lacks("approver", "a test"); why != "" {
		m.say(themes.Warn, why)
		return nil
	}
	m.show(key.Validate)
	r := &falconv1.ValidateRequest{Links: links, LinkTest: true, Reason: "asked from the console"}
	if picked := m.pages[key.Validate].(*validate.Page).Links(); len(links) == 0 && len(picked) > 0 {
		r.Links = picked
		r.Gemm, _ = m.testKind().Covers()
	} else if len(links) == 0 {
		r.Ranks = m.state.Picks()
		r.Gemm, r.LinkTest = m.testKind().Covers()
	}
	if r.LinkTest && len(r.Ranks) == 1 && len(r.Links) == 0 {
		m.say(themes.Warn, "a link has two ends: pick another rank, a group with d or s, or GPUs only with t")
		return nil
	}
	return m.open(&dialog{kind: kindValidate, test: r})
}

func (m *Model) testKind() validate.Kind {
	return m.pages[key.Validate].(*validate.Page).Kind()
}

// running is the newest validation that this console knows of: the engine may
// have answered with one that is in no snapshot yet.
func (m *Model) running() *falconv1.Validation {
	v := m.live.Snap().GetValidation()
	if b := m.begun.GetId(); b > v.GetId() && len(b) >= len(v.GetId()) {
		return m.begun
	}
	return v
}

// stopValidation lets the job go at once: the safe direction needs no dialog.
func (m *Model) stopValidation() tea.Cmd {
	v := m.running()
	if !validate.Underway(v) {
		m.say(themes.Dim, "no validation is in progress")
		return nil
	}
	if why := m.lacks("approver", "ending a test"); why != "" {
		m.say(themes.Warn, why)
		return nil
	}
	m.say(themes.Accent, "letting the job go …")
	return m.askValidate(0, &falconv1.ValidateRequest{Cancel: v.Id})
}

func (m *Model) validate(d *dialog) tea.Cmd {
	d.sending, d.err = true, ""
	return m.askValidate(d.id, d.test)
}

func (m *Model) askValidate(dialog int, r *falconv1.ValidateRequest) tea.Cmd {
	return func() tea.Msg {
		v, err := m.src.Validate(context.Background(), r)
		return validatedMsg{dialog, v, err}
	}
}

func (m *Model) validated(msg validatedMsg) {
	if msg.err != nil {
		m.failed(msg.dialog, "no test: "+msg.err.Error())
		return
	}
	m.close(msg.dialog)
	m.begun = msg.validation
	m.say(themes.Good, msg.validation.GetId()+" "+msg.validation.GetState())
}

// testLines say what is about to happen to the job.
func testLines(r *falconv1.ValidateRequest, world, w int) []ladder.Line {
	what := "links " + fewOf(r.Links)
	if r.Gemm {
		what += ", and the GPUs at their ends"
	}
	if len(r.Links) == 0 {
		what = validateWhat(r) + " of " + ranksText(r.Ranks, world)
	}
	out := wrapped(themes.Title, "Test "+what, w)
	out = append(out, wrapped(themes.Text, "The job runs on to an iteration boundary two or more iterations ahead and is held there while the tests run, usually well under a second; nothing trains meanwhile. Paused time is not counted as slow.", w)...)
	return append(out, wrapped(themes.Text, "If wrong: where no consistent boundary exists nothing is held and the reason is shown. X lets go at once; the ranks let go by themselves at their deadline, even without console and agents.", w)...)
}

func fewOf(names []string) string {
	const most = 8
	t := strings.Join(names[:min(most, len(names))], ", ")
	if rest := len(names) - most; rest > 0 {
		t += fmt.Sprintf(" and %d more", rest)
	}
	return t
}

func validateWhat(r *falconv1.ValidateRequest) string {
	switch {
	case r.Gemm && r.LinkTest:
		return "GPUs and the links"
	case r.Gemm:
		return "the GPUs"
	}
	return "the links"
}

func ranksText(ranks []int32, world int) string {
	if len(ranks) == 0 {
		return fmt.Sprintf("all %s ranks", phrase.Count(int64(world)))
	}
	const most = 8
	var parts []string
	for _, r := range ranks[:min(most, len(ranks))] {
		parts = append(parts, fmt.Sprint(r))
	}
	t := "ranks " + strings.Join(parts, ", ")
	if rest := len(ranks) - most; rest > 0 {
		t += fmt.Sprintf(" and %d more", rest)
	}
	return t
}
