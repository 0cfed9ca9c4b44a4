package tui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/colorprofile"

	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/key"
)

// The ladder with each rung proposed, and acting by itself.
func TestGoldenLadder(t *testing.T) {
	for _, mo := range []moment{
		{"s3", enginetest.Proposed + 4, 0, enginetest.Options{Rung: "S3"}},
		{"s3-large", enginetest.Proposed + 4, 0, enginetest.Options{Rung: "S3", TP: 8, DP: 32, PP: 8}},
		{"s4", enginetest.Proposed + 4, 0, enginetest.Options{Rung: "S4"}},
		{"automatic", enginetest.Proposed + 4, 0, enginetest.Options{Auto: true}},
	} {
		for _, s := range sizes {
			m := screen(
				t,
				mo,
				key.Ladder,
				s[0],
				s[1],
				"dark",
				colorprofile.TrueColor,
				false,
			)
			checkGeometry(t, m.View().Content, s[0], s[1])
			golden(
				t,
				fmt.Sprintf("text/ladder-%s-%dx%d.txt", mo.name, s[0], s[1]),
				trimRows(text(m)),
			)
		}
		m := screen(t, mo, key.Ladder, 80, 24, "dark", colorprofile.ASCII, true)
		golden(t, fmt.Sprintf("text/ladder-%s-80x24-ascii.txt", mo.name), trimRows(text(m)))
	}
}

// What acts by itself is said in words on every page, in the ladder and in the
// dialog, and the countdown runs by the clock.
func TestAutomaticIsSaidInWords(t *testing.T) {
	_, src, clk, m := opened(t, enginetest.Options{Auto: true}, 80, 24)
	left := time.Duration(src.state.Snap.Ladder.Proposal.DeadlineUnixNs - src.state.Snap.AtUnixNs)
	clk.t = src.state.Received.Add(left - 20*time.Second) // by the engine's clock
	m.Update(tickMsg{})
	if s := text(m); !containsAll(s, "AUTOMATIC: policy approves this in 20 s", "a veto or F stops it") {
		t.Errorf("the dialog:\n%s", s)
	}
	clk.pass(time.Second)
	presses(m, "esc")
	if s := text(m); !containsAll(s, "acts in 19 s", "AUTO ≤ S2") {
		t.Errorf("the bar:\n%s", s)
	}
	presses(m, "5")
	if s := text(
		m,
	); !containsAll(s, "AUTOMATIC UP TO S2: S2 in 19 s unless vetoed; 2 of 3 S2 actions this hour") {
		t.Errorf("the ladder:\n%s", s)
	}
	src.state.Snap.Policy.Frozen = true
	m.Update(updateMsg{src.state})
	if s := text(m); containsAll(s, "AUTOMATIC") || containsAll(s, "acts in") {
		t.Errorf("frozen, nothing acts by itself:\n%s", s)
	}
}

// A rung that has been taken waits for nobody: the page says how it stands.
func TestARungThatWasTakenSaysHowItStands(t *testing.T) {
	const waits = "It waits for a person"
	for _, c := range []struct {
		iter, approved int64
		want           []string
	}{
		{enginetest.Proposed + 2, 0, []string{waits}},
		{
			enginetest.Proposed + 2,
			enginetest.Proposed + 1,
			[]string{"S2 (shift micro-batches) approved by maria; the ranks are agreeing on an iteration"},
		},
		{
			enginetest.Proposed + 5,
			enginetest.Proposed + 1,
			[]string{"In force since iteration 53, approved by maria; its gain is being measured. If wrong:"},
		},
		{
			enginetest.Proposed + 12,
			enginetest.Proposed + 1,
			[]string{
				"In force since iteration 53, approved by maria, and kept: 400 ms → 262 ms measured",
				"It is undone when the fault clears",
			},
		},
	} {
		src := &still{state: stateAt(
			t,
			enginetest.Options{},
			c.iter,
			c.approved,
			wide,
		)}
		m := quiet(t, src, Options{Theme: "dark", Now: newClock().now}, 120, 40)
		for _, k := range []string{"5", "k", "k", "k", "k", "j"} { // onto S2
			send(m, k)
		}
		s := strings.Join(strings.Fields(text(m)), " ")
		if !containsAll(s, c.want...) || c.approved > 0 && strings.Contains(s, waits) {
			t.Errorf("iteration %d, want %q:\n%s", c.iter, c.want, text(m))
		}
	}
}
