// Package key is the console's one table of keys. Dispatch, text entry,
// footer, help and the documentation all read it, so that they can't disagree.
// A line of it is a binding of the bubbles library, with what that doesn't
// know: scope, action, and a sentence for the help.
//
// It guarantees (by test) that no key means two things where both could be
// meant. It holds data and pure look-ups only.
package key

import (
	"fmt"
	"slices"
	"strings"

	bubbles "charm.land/bubbles/v2/key"
)

// Scope is where a binding holds. Page scopes add to Global; Dialog, Prompt
// and Help replace it.
type Scope string

// The scopes.
const (
	Global    Scope = "everywhere"
	Overview  Scope = "overview"
	Ranks     Scope = "ranks"
	Grid      Scope = "grid"
	Posterior Scope = "posterior"
	Ladder    Scope = "ladder"
	Validate  Scope = "validate"
	Recovery  Scope = "recovery"
	Events    Scope = "events"
	Dialog    Scope = "dialog"
	Prompt    Scope = "prompt"
	Help      Scope = "help"
)

// Pages lists the page scopes in the order of their keys.
var Pages = []Scope{Overview, Ranks, Grid, Posterior, Ladder, Validate, Recovery, Events}

// Action is what a key does.
type Action string

// The actions.
const (
	None          Action = ""
	ShowOverview  Action = "show-overview"
	ShowRanks     Action = "show-ranks"
	ShowGrid      Action = "show-grid"
	ShowPosterior Action = "show-posterior"
	ShowLadder    Action = "show-ladder"
	ShowValidate  Action = "show-validate"
	ShowRecovery  Action = "show-recovery"
	ShowEvents    Action = "show-events"
	NextPage      Action = "next-page"
	PrevPage      Action = "previous-page"
	Back          Action = "back"
	Approve       Action = "approve"
	Veto          Action = "veto"
	Why           Action = "why"
	Mode          Action = "mode"
	Freeze        Action = "freeze"
	Command       Action = "command"
	Filter        Action = "filter"
	ShowHelp      Action = "help"
	Pause         Action = "pause"
	Follow        Action = "follow"
	Theme         Action = "theme"
	Quit          Action = "quit"
	Up            Action = "up"
	Down          Action = "down"
	Left          Action = "left"
	Right         Action = "right"
	First         Action = "first"
	Last          Action = "last"
	PageUp        Action = "page-up"
	PageDown      Action = "page-down"
	Next          Action = "next"
	Prev          Action = "previous"
	ZoomIn        Action = "zoom-in"
	ZoomOut       Action = "zoom-out"
	Metric        Action = "metric"
	Open          Action = "open"
	Pick          Action = "pick"
	PickReplicas  Action = "pick-replicas"
	PickPipeline  Action = "pick-pipeline"
	Unpick        Action = "unpick"
	TestKind      Action = "test-kind"
	RunTest       Action = "run-test"
	StopTest      Action = "stop-test"
	TakeRung      Action = "take-rung"
	AbortRecovery Action = "abort-recovery"
	FenceNode     Action = "fence-node"
	RenewRank     Action = "renew-rank"
	Older         Action = "older"
	Newer         Action = "newer"
	Confirm       Action = "confirm"
	Cancel        Action = "cancel"
	Erase         Action = "erase"
	EraseWord     Action = "erase-word"
	EraseAll      Action = "erase-all"
)

// Binding is one line of the table: the library's binding holds the keys as
// the terminal names them, and as help the key as the operator reads it with
// the footer's word.
type Binding struct {
	bubbles.Binding
	Scope    Scope
	Action   Action
	Sentence string // what help says
	Footer   int    // rank in the footer, lower first; 0 = not shown there
}

func bind(s Scope, a Action, keys []string, show, word, sentence string, footer int) Binding {
	return Binding{bubbles.NewBinding(bubbles.WithKeys(keys...), bubbles.WithHelp(show, word)), s, a, sentence, footer}
}

// Table lists every binding, in the order in which help shows them.
func Table() []Binding { return slices.Clone(table) }

// Lookup finds what a key does in the first of the scopes that binds it.
func Lookup(k fmt.Stringer, scopes ...Scope) Action {
	for _, s := range scopes {
		for _, b := range table {
			if b.Scope == s && bubbles.Matches(k, b.Binding) {
				return b.Action
			}
		}
	}
	return None
}

// In lists the bindings of a scope in the table's order.
func In(s Scope) []Binding {
	var out []Binding
	for _, b := range table {
		if b.Scope == s {
			out = append(out, b)
		}
	}
	return out
}

// Footer lists the bindings that the footer shows: scope by scope as given,
// most useful first.
func Footer(scopes ...Scope) []bubbles.Binding {
	var out []bubbles.Binding
	for _, s := range scopes {
		part := slices.DeleteFunc(In(s), func(b Binding) bool { return b.Footer == 0 })
		slices.SortStableFunc(part, func(x, y Binding) int { return x.Footer - y.Footer })
		for _, b := range part {
			out = append(out, b.Binding)
		}
	}
	return out
}

// ForAction is the binding of an action in a scope; one that no key matches
// where there is none.
func ForAction(s Scope, a Action) Binding {
	for _, b := range table {
		if b.Scope == s && b.Action == a {
			return b
		}
	}
	return Binding{}
}

// Markdown is the table as the user's guide prints it.
func Markdown() string {
	var b strings.Builder
	for _, s := range slices.Concat([]Scope{Global}, Pages, []Scope{Dialog, Prompt, Help}) {
		list := In(s)
		if len(list) == 0 {
			continue
		}
		fmt.Fprintf(&b, "### %s%s\n\n| Key | What it does |\n|---|---|\n", strings.ToUpper(string(s[:1])), s[1:])
		for _, x := range list {
			fmt.Fprintf(&b, "| `%s` | %s |\n", x.Help().Key, x.Sentence)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
