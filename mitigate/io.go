package mitigate

import (
	"time"

	"github.com/failslow/falcon"
)

// Input is one thing that happened.
type Input interface{ input() }

// Job describes the job epoch; stepped before anything else and on change.
type Job struct {
	Epoch        uint64
	Layout       falcon.Layout
	Unknown      string  // why Layout is a guess: no work is moved between ranks; empty = it is known
	MicroBatches []int32 // per replica, now
	GPUs         int     // for lost GPU-hours

	Placement falcon.Placement // device by rank, now; empty = unknown: S3 and S4 can't be planned
	Spares    []falcon.Node    // connected nodes with room for a node's ranks and without any
	Barred    []string         // why other such nodes are not to be used, one clause each
	CanLaunch bool             // every node in use and every spare can start processes: S4 can be carried out
	Can       falcon.Can       // what all processes have declared that they can do (falcon_job.h)

	// all processes can wait for a recovery now: S4 can replace one node alone (fence)
	Parks      bool
	OnlyCopies []falcon.Node // nodes with state of which no other node holds a replica, ascending
	// that a recovery takes from suspend to resume, as predicted from those measured; 0 = unknown
	RecoveryMs float64

	// Recovered is set where this epoch is the one before with some processes replaced
	// elsewhere: splits and places stay in force.
	Recovered  bool
	Generation uint64 // highest that was ever launched: the next is above it

	// What a replica may be given, by replica: memory bounds the count,
	// interleaved schedules want multiples of the stages. Empty = 1, no limit, 1.
	MicroMin, MicroMax, MicroMultiple []int32
	// by rank, what moves with it (parameters, optimizer), 10⁶ bytes; empty = thrice
	// what it reduces
	StateMB []float64
	CopyMBs float64 // between device and host memory, 10⁶ B/s; 0 = unknown
}

// Incident is the newest state of an incident.
type Incident struct {
	Incident falcon.Incident
}

// Iteration is the job's iteration time: the slowest rank, pauses taken out.
type Iteration struct {
	Index   int64
	Ms      float64
	Unheard []falcon.Node // silent: it was counted without their ranks
}

// Speeds are the last complete profile's self times per micro-batch, by rank, for S2.
type Speeds struct {
	Incident string
	SelfMs   []float64         // indexed by rank; 0 = not measured
	Profile  falcon.JobProfile // of the same window; Groups empty = only speeds are known
}

// Measured reports that a complete profile of the job has come in. Speeds of the same
// profile come before it, where they differ from those before.
type Measured struct {
	Begun Clock // when it was asked for
}

// Decision is an operator's approval or veto of a proposal. With Action empty and Rung set it
// takes that rung of the incident's ladder now, whatever the ski-rental clock says.
type Decision struct {
	Action   string // id
	PlanHash string
	Approve  bool
	By       string
	Reason   string
	Incident string
	Rung     falcon.Rung
	Variant  falcon.Variant // of S4; empty = policy's first that can be taken
	From     string         // where it came from: "unix:UID", "HOST"
	AtUnixNs int64
	Undo     bool // with Action: take back what is in force; Approve counts for nothing
}

// Committed reports that the ranks agreed on an order: the vote is the commit.
type Committed struct {
	Order        uint64
	Iteration    int64   // first iteration it holds for
	Status       int32   // 0 = applied, else the framework's refusal
	MicroBatches []int32 // what was ordered; empty = as the planner remembers

	Swap   *falcon.Swap // placements: how it went
	Resume int64        // checkpoints: the iteration that a restart begins with
}

// Left reports that all processes have ended after a checkpoint that they were to
// leave with, or that they did not (Reason).
type Left struct {
	Order  uint64
	Reason string
}

// Launched reports that a launch runs as a new job epoch, or why not. Job comes before it.
type Launched struct {
	Generation uint64
	Failed     string
}

// Fenced is the outcome of a Fence. Where it succeeded, Job with the new places comes before it.
type Fenced struct {
	Action     string // id
	Recovery   string // id of the recovery, "" = none began
	Failed     string // why not; "" = the job trains without the node
	Resume     int64  // iteration that it went on with
	Generation uint64
	Placement  falcon.Placement // device by rank since
}

// Undeliverable reports that an order can't take effect any more.
type Undeliverable struct {
	Order  uint64
	Reason string
}

// SetPolicy replaces the policy.
type SetPolicy struct {
	Policy falcon.Policy
}

// Restored gives back what the journal kept when the engine stopped.
type Restored struct {
	Actions     []falcon.Action // newest state of each, in order of proposal
	NextOrder   uint64          // ids below it were used
	OverheadsMs map[falcon.Rung]float64
	Impacts     []Impact // newest of each incident
}

// Impact is what an incident has cost so far, kept over restarts so that it never shrinks.
type Impact struct {
	Incident       string  `json:"incident"`
	JobEpoch       uint64  `json:"job_epoch"`
	From           int64   `json:"from"`    // first slow iteration of that epoch
	Counted        int64   `json:"counted"` // iterations of the epoch up to here are in the sums
	ImpactMs       float64 `json:"impact_ms"`
	LostGPUMs      float64 `json:"lost_gpu_ms"`
	PerIterationMs float64 `json:"per_iteration_ms"` // what the newest iteration lost
	// LevelMs is what an iteration lost to this incident when a later one began:
	// more than that is the later one's. 0 = no later one, or unknown.
	LevelMs float64 `json:"level_ms,omitempty"`
	// PaidMs is ImpactMs when the rung of that level was last taken: the
	// ski-rental clock of a rung counts from there.
	PaidMs [5]float64 `json:"paid_ms"`
}

func (Job) input()           {}
func (Restored) input()      {}
func (Incident) input()      {}
func (Iteration) input()     {}
func (Speeds) input()        {}
func (Measured) input()      {}
func (Decision) input()      {}
func (Committed) input()     {}
func (Undeliverable) input() {}
func (SetPolicy) input()     {}
func (Left) input()          {}
func (Launched) input()      {}
func (Fenced) input()        {}

// Acted reports to the detector that an action took force or was undone.
type Acted struct {
	Incident     string
	Rung         falcon.Rung
	Iteration    int64
	Reverted     bool
	Unchanged    bool // it ended, and the job stays as it is
	MicroBatches []int32
	Placement    falcon.Placement // S3, S4: device by rank, from then on; empty = as before
}

// Fence asks for the replacement of a node in a recovery. It is given again after a
// restart of the engine: one recovery follows, whatever is repeated.
type Fence struct {
	Action   string // id
	Incident string
	Node     falcon.Node
	Spare    falcon.Node // that the plan names; a recovery takes another where that is gone
	JobEpoch uint64      // that it was planned for
	By, From string      // who decided
	Reason   string
}

// Note is a line for the event log.
type Note struct {
	Iteration int64
	About     string // id of the action or incident; "" = the job
	Kind      string // "proposal", "decision", "action", "skip"
	Text      string
}

// Ready is what a Step led to. Actions are persisted before orders go out; Acted is fed to detect.
type Ready struct {
	Actions []falcon.Action // whole, each changed one once
	Orders  []falcon.Order
	Launch  *falcon.Launch // processes to be started, once Actions are persisted
	Fences  []Fence        // nodes to be replaced, likewise; at most one is under way
	Acted   []Acted
	Notes   []Note
	Impacts []Impact // to be persisted with the rest
	Look    string   // why the ranks are to be profiled now; "" = no need
}

// Empty reports whether there is nothing to do.
func (r Ready) Empty() bool {
	return len(r.Actions) == 0 &&
		len(r.Orders) == 0 &&
		len(r.Acted) == 0 &&
		len(r.Notes) == 0 &&
		len(r.Impacts) == 0 &&
		len(r.Fences) == 0 &&
		r.Launch == nil &&
		r.Look == ""
}

// Clock is when an input happened, by the engine's clock.
type Clock = time.Time
