package falcon

import "reflect"

// Mode is who may act.
type Mode string

// Modes of the engine.
const (
	ModeObserve Mode = "observe" // nothing is proposed for execution
	ModeApprove Mode = "approve" // every rung waits for a person
	ModeAuto    Mode = "auto"    // rungs up to the cap act by themselves
)

// What policy wants before a rung is taken.
const (
	ApprovalAuto   = "auto"   // acts by itself, after its countdown
	ApprovalPerson = "person" // waits for a person
	ApprovalNever  = "never"
)

// RungPolicy is what policy says of one rung. The time to undo has no YAML name:
// falcon.yaml distinguishes one that is not set from zero.
type RungPolicy struct {
	Approval  string  `json:"approval,omitempty" yaml:"approval"`       // ApprovalAuto, …; empty = by mode and cap
	Countdown float64 `json:"countdown_s,omitempty" yaml:"countdown_s"` // from proposal to automatic approval, so that people can veto
	PerHour   int     `json:"per_hour,omitempty" yaml:"per_hour"`       // taken at most so often; 0 = no limit of its own
	Undo      float64 `json:"undo_s,omitempty" yaml:"-"`                // from a person's approval to the order, so that it can be withdrawn; 0 = at once
	Second    bool    `json:"second,omitempty" yaml:"second"`           // one person's approval waits for another person's
}

// Policy bounds what happens without a person.
type Policy struct {
	Mode   Mode   `json:"mode" yaml:"mode"`
	Cap    Rung   `json:"cap" yaml:"cap"`  // highest automatic rung in ModeAuto
	Frozen bool   `json:"frozen" yaml:"-"` // the operator's stop: nothing new is dispatched
	Owner  string `json:"owner,omitempty" yaml:"owner"`

	Rungs     map[Rung]RungPolicy `json:"rungs,omitempty" yaml:"-"`
	Hours     string              `json:"hours,omitempty" yaml:"hours"`           // when rungs may act by themselves, "22:00-06:00" in UTC; empty = always
	AllowDrop bool                `json:"allow_drop,omitempty" yaml:"allow_drop"` // S4 may give up a replica and rescale the batch
	Variants  []Variant           `json:"variants,omitempty" yaml:"variants"`     // of S4, in order of preference; empty = replace, restart

	Tests string `json:"tests,omitempty" yaml:"tests"` // whether a test may hold the job: ApprovalAuto, …; empty = validation.mode

	Recovery RecoveryPolicy `json:"recovery,omitzero" yaml:"recovery"` // of fail-stop faults
}

// Equal reports whether two policies are the same.
func (p Policy) Equal(q Policy) bool { return reflect.DeepEqual(p, q) }
