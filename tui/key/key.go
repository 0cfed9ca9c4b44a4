// Package key is the console's one table of keys. Dispatch, text entry,
// footer, help, the palette and the documentation all read it, so that they
// can't disagree. A line of it is a binding of the bubbles library, with what
// that doesn't know: scope, action, and a sentence for the help.
//
// A Map is such a table as one operator uses it: the shipped one, or one in
// which some actions lie on other keys. It never changes once it is made, so
// that sessions may share it. It guarantees, for a remapped table too, that no
// key means two things where both could be meant, that a dialog's confirm and
// cancel are what they always are, and that nothing that decides lies on a key
// one moves with. It holds data and pure look-ups only.
package key

import (
	bubbles "charm.land/bubbles/v2/key"
)

// Scope is where a binding holds. Page scopes add to Global; Dialog, Prompt,
// Help and Fleet replace it. Replay adds to both in a recording.
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
	Output    Scope = "output"
	Replay    Scope = "replay"
	Fleet     Scope = "fleet" // the list of jobs, where a console shows several
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
	ShowFleet     Action = "show-fleet"
	History       Action = "history"
	NextPage      Action = "next-page"
	PrevPage      Action = "previous-page"
	Back          Action = "back"
	Ack           Action = "ack"
	Snooze        Action = "snooze"
	WriteNote     Action = "write-note"
	HandOver      Action = "hand-over"
	Approve       Action = "approve"
	Veto          Action = "veto"
	Undo          Action = "undo"
	Why           Action = "why"
	Mode          Action = "mode"
	Freeze        Action = "freeze"
	Command       Action = "command"
	Filter        Action = "filter"
	ShowHelp      Action = "help"
	Runbook       Action = "runbook"
	Pause         Action = "pause"
	Follow        Action = "follow"
	Theme         Action = "theme"
	Mouse         Action = "mouse"
	PreviousView  Action = "previous-view"
	ZoomPane      Action = "zoom-pane"
	SetMark       Action = "set-mark"
	GoMark        Action = "go-to-mark"
	Complete      Action = "complete"
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
	PickRange     Action = "pick-range"
	PickSuspects  Action = "pick-suspects"
	Order         Action = "order"
	TestKind      Action = "test-kind"
	RunTest       Action = "run-test"
	StopTest      Action = "stop-test"
	TakeRung      Action = "take-rung"
	AbortRecovery Action = "abort-recovery"
	StateEnded    Action = "state-ended"
	FenceNode     Action = "fence-node"
	RenewRank     Action = "renew-rank"
	LiftFence     Action = "lift-fence"
	ShowOutput    Action = "show-output"
	Again         Action = "again"
	Anyway        Action = "anyway"
	Older         Action = "older"
	Newer         Action = "newer"
	Copy          Action = "copy"
	Export        Action = "export"
	CopyLink      Action = "copy-link"
	Mute          Action = "mute"
	OlderIncident Action = "older-incident"
	NewerIncident Action = "newer-incident"
	Kind          Action = "kind"
	Severity      Action = "severity"
	Results       Action = "results"
	Links         Action = "links"
	Confirm       Action = "confirm"
	Cancel        Action = "cancel"
	Erase         Action = "erase"
	EraseWord     Action = "erase-word"
	EraseAll      Action = "erase-all"
	Play          Action = "play"
	Faster        Action = "faster"
	Slower        Action = "slower"
	IterationOn   Action = "iteration-on"
	IterationBack Action = "iteration-back"
	FrameOn       Action = "frame-on"
	FrameBack     Action = "frame-back"
	EventOn       Action = "event-on"
	EventBack     Action = "event-back"
	IncidentOn    Action = "incident-on"
	IncidentBack  Action = "incident-back"
	ToStart       Action = "to-start"
	ToEnd         Action = "to-end"
)

// Binding is one line of the table. Its library binding holds the keys as the terminal
// names them; its help has the key as shown and the footer's name.
type Binding struct {
	bubbles.Binding
	Scope    Scope
	Action   Action
	Sentence string // what help says
	Footer   int    // rank in the footer, lower first; 0 = not shown there
}

func newBinding(s Scope, a Action, keys []string, show, word, sentence string, footer int) Binding {
	return Binding{
		bubbles.NewBinding(bubbles.WithKeys(keys...), bubbles.WithHelp(show, word)),
		s,
		a,
		sentence,
		footer,
	}
}
