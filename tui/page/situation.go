package page

import (
	"slices"
	"strings"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/statements"
	"github.com/failslow/falcon/tui/key"
)

// SituationMost is how many keys a situation has.
const SituationMost = 5

// situations are the keys that somebody needs first who reads a kind of statement, the likeliest
// first.
var situations = map[statements.Kind][]key.Action{
	statements.Recovery: {key.ShowRecovery, key.ShowOutput, key.Runbook, key.Freeze, key.ShowEvents},
	statements.Standing: {key.ShowOutput, key.ShowRecovery, key.Runbook, key.ShowRanks, key.ShowEvents},
	statements.Acting:   {key.Why, key.ShowLadder, key.Freeze, key.Runbook, key.ShowEvents},
	statements.Slower:   {key.ShowRanks, key.ShowPosterior, key.ShowOutput, key.ShowEvents, key.Runbook},
	statements.Incident: {key.Why, key.Runbook, key.RunTest, key.Ack, key.Snooze},
	statements.Held:     {key.ShowValidate, key.ShowEvents, key.ShowRanks, key.Freeze, key.Runbook},
	statements.Frozen:   {key.Freeze, key.Why, key.ShowEvents, key.Mode, key.Runbook},
	statements.Unseen:   {key.ShowEvents, key.ShowRanks, key.Runbook, key.CopyLink, key.Command},
	statements.Pending:  {key.Veto, key.Freeze, key.Approve, key.Why, key.Runbook},
	statements.Decision: {key.Approve, key.Veto, key.Why, key.Runbook, key.Freeze},
}

// Keys of situations that the kind of the first statement alone does not tell.
var (
	askedKeys = []key.Action{key.Approve, key.Veto, key.ShowRecovery, key.ShowOutput, key.Runbook}
	overKeys  = []key.Action{key.ShowOutput, key.ShowRecovery, key.ShowEvents, key.Runbook, key.Export}
	undoKeys  = []key.Action{key.Undo, key.Why, key.ShowRanks, key.ShowEvents, key.Runbook}
	quietKeys = []key.Action{key.ShowRanks, key.ShowPosterior, key.ShowEvents, key.Command, key.Runbook}
)

// Situation are the keys that somebody needs first now, on a page, by what is said first.
func Situation(s *State, on key.Scope) []key.Binding {
	var out []key.Binding
	for _, a := range situation(Statements(s)) {
		b := s.Keys.ForAction(on, a)
		if len(b.Keys()) == 0 {
			b = s.Keys.ForAction(key.Global, a)
		}
		if len(b.Keys()) > 0 {
			out = append(out, b)
		}
	}
	return out[:min(len(out), SituationMost)]
}

func situation(list []statements.Statement) []key.Action {
	has := func(k statements.Kind) bool {
		return slices.ContainsFunc(list, func(x statements.Statement) bool { return x.Kind == k })
	}
	asked := slices.ContainsFunc(list, func(x statements.Statement) bool {
		return x.Kind == statements.Recovery && x.Recovery.GetState() == string(falcon.RecoveryProposed)
	})
	first := list[0].Kind
	switch first {
	case statements.Recovery, statements.Stopped, statements.Failed, statements.Gone,
		statements.Ended, statements.Finished:
		if asked {
			return askedKeys
		}
		if first != statements.Recovery {
			return overKeys
		}
		return situations[statements.Recovery]
	}
	for _, k := range []statements.Kind{statements.Pending, statements.Decision} { // the bar is about it
		if has(k) {
			return situations[k]
		}
	}
	if own, ok := situations[first]; ok {
		return own
	}
	if has(statements.InForce) {
		return undoKeys
	}
	return quietKeys
}

// headLeast is how many letters tell what a key does.
const headLeast = 12

// InShort is what a key does without how.
func InShort(b key.Binding) string {
	text, _, _ := strings.Cut(b.Sentence, ";")
	text, _, _ = strings.Cut(text, ". ")
	if head, _, _ := strings.Cut(text, ":"); len(head) >= headLeast {
		text = head
	}
	return strings.TrimSuffix(text, ".")
}
