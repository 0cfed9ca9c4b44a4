package engine

import (
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/validate"
	"github.com/failslow/falcon/detect"
	"github.com/failslow/falcon/mitigate"
	"github.com/failslow/falcon/recovery"
	"github.com/failslow/falcon/recovery/restart"
)

// A machine takes inputs and the time, and says what is to be done. That is the one protocol
// between the engine and all that decides over more than one input: what Ready gave is made
// durable and carried out, and Advance says so.
type machine[In, Out any] interface {
	Step(now time.Time, in In)
	Tick(now time.Time)
	Ready() Out
	Advance()
}

var (
	_ machine[validate.Input, validate.Ready] = (*validate.Machine)(nil)
	_ machine[restart.Input, restart.Ready]   = (*restart.Machine)(nil)
)

// Detector is what the engine needs of package detect's machine.
type Detector interface {
	machine[detect.Input, detect.Ready]
	Rank(r falcon.Rank) (status detect.RankStatus, known bool)
	Series(r falcon.Rank, columns, rows int) []detect.Column
	Decisions() []*detect.Decision
	Steady() detect.Steady
	Recurring() []detect.Recurrence
	Speeds() []float64          // by rank, ms per micro-batch, 0 = not measured
	Profile() falcon.JobProfile // of the same window; empty before the first
	// Profiled is the number of that window and when it was asked for; zero before the first.
	Profiled() (window uint64, from time.Time)
}

// Planner is what the engine needs of package mitigate's machine.
type Planner interface {
	machine[mitigate.Input, mitigate.Ready]
	Ladder(incident string) (ladder falcon.Ladder, known bool)
	Policy() falcon.Policy
	Check(d mitigate.Decision) error // why a decision would be refused
	OverheadsMs() map[falcon.Rung]float64
}

// Recoverer is what the engine needs of package recovery's machine.
type Recoverer interface {
	machine[recovery.Input, recovery.Ready]
	Check(d recovery.Decision) error     // why a decision would be refused
	CheckDemand(d recovery.Demand) error // why a recovery by hand can't be had
	PredictMs() float64                  // that a recovery keeps the job from training
	Hears(now time.Time) bool            // silence of nodes means something
	OnlyPaused(now time.Time, n falcon.Node, least time.Duration) bool
	ForAction(id string) (rec falcon.Recovery, known bool)
}
