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
	// ApprovalAuto, …; empty = by mode and cap
	Approval string `json:"approval,omitempty" yaml:"approval"`
	// from proposal to automatic approval, so that people can veto
	Countdown float64 `json:"countdown_s,omitempty" yaml:"countdown_s"`
	// taken at most so often; 0 = no limit of its own
	PerHour int `json:"per_hour,omitempty" yaml:"per_hour"`
	// from a person's approval to the order, so that it can be withdrawn; 0 = at once
	Undo float64 `json:"undo_s,omitempty" yaml:"-"`
	// one person's approval waits for another person's
	Second bool `json:"second,omitempty" yaml:"second"`
}

// Policy bounds what happens without a person.
type Policy struct {
	Mode   Mode   `json:"mode" yaml:"mode"`
	Cap    Rung   `json:"cap" yaml:"cap"`  // highest automatic rung in ModeAuto
	Frozen bool   `json:"frozen" yaml:"-"` // the operator's stop: nothing new is dispatched
	Owner  string `json:"owner,omitempty" yaml:"owner"`

	Rungs map[Rung]RungPolicy `json:"rungs,omitempty" yaml:"-"`
	// when rungs may act by themselves, "22:00-06:00" in UTC; empty = always
	Hours string `json:"hours,omitempty" yaml:"hours"`
	// S4 may give up a replica and rescale the batch
	AllowDrop bool `json:"allow_drop,omitempty" yaml:"allow_drop"`
	// of S4, in order of preference; empty = replace, restart
	Variants []Variant `json:"variants,omitempty" yaml:"variants"`

	// whether a test may hold the job: ApprovalAuto, …; empty = validation.mode
	Tests string `json:"tests,omitempty" yaml:"tests"`

	Recovery RecoveryPolicy `json:"recovery,omitzero" yaml:"recovery"` // of fail-stop faults
}

// Equal reports whether two policies are the same.
func (p Policy) Equal(q Policy) bool { return reflect.DeepEqual(p, q) }
