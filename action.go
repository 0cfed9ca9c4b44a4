package falcon

// Rung is a step of the mitigation ladder (FALCON §5.1, table 3).
type Rung string

// The ladder, from cheapest to dearest.
const (
	RungS1 Rung = "S1" // ignore
	RungS2 Rung = "S2" // redistribute micro-batches over data-parallel replicas
	RungS3 Rung = "S3" // change the topology
	RungS4 Rung = "S4" // checkpoint and restart on healthy nodes
)

// Level is the rung's height, 1 to 4; 0 for anything else.
func (r Rung) Level() int {
	switch r {
	case RungS1:
		return 1
	case RungS2:
		return 2
	case RungS3:
		return 3
	case RungS4:
		return 4
	}
	return 0
}

// ActionState is where an action stands.
type ActionState string

// The states of an action, in the order in which they can come.
const (
	ActionProposed   ActionState = "proposed"   // waits for a decision
	ActionApproved   ActionState = "approved"   // decided, about to be ordered
	ActionVetoed     ActionState = "vetoed"     // a person said no
	ActionDispatched ActionState = "dispatched" // ordered, not yet agreed by the ranks
	ActionApplied    ActionState = "applied"    // in force, gain being measured
	ActionKept       ActionState = "kept"       // gain verified
	ActionReverting  ActionState = "reverting"  // ordered back
	ActionReverted   ActionState = "reverted"   // undone
	ActionFailed     ActionState = "failed"     // never took effect
	ActionExpired    ActionState = "expired"    // the fault cleared before a decision
)

// Order is what the ranks are told at an iteration boundary. Ids grow over a
// job's life; ranks commit to one by a collective vote (LAB-AND-HOOK.md,
// "Agreement").
type Order struct {
	Epoch        uint64  `json:"epoch"` // job epoch it was made for; a stale one is refused
	ID           uint64  `json:"id"`
	Kind         string  `json:"kind"`                    // OrderMicroBatches, …
	MicroBatches []int32 `json:"micro_batches,omitempty"` // per data-parallel replica
}

// Kinds of orders.
const (
	OrderMicroBatches = "microbatches"
	OrderStop         = "stop"
)

// Action is one rung taken, proposed or refused for one incident.
type Action struct {
	ID                string      `json:"id"` // "INC-0001/S2/1"
	Incident          string      `json:"incident"`
	Rung              Rung        `json:"rung"`
	State             ActionState `json:"state"`
	PlanHash          string      `json:"plan_hash"` // decisions name it; a stale one is refused
	MicroBatches      []int32     `json:"micro_batches,omitempty"`
	Previous          []int32     `json:"previous,omitempty"` // what a revert goes back to
	ProposedIteration int64       `json:"proposed_iteration"`
	DecidedBy         string      `json:"decided_by"`       // "policy" or the operator's name
	Reason            string      `json:"reason,omitempty"` // the decision's, or why it failed
	AppliedIteration  int64       `json:"applied_iteration"`
	RevertedIteration int64       `json:"reverted_iteration"`
	BeforeMs          float64     `json:"before_ms"`
	PredictedMs       float64     `json:"predicted_ms"`
	MeasuredMs        float64     `json:"measured_ms"` // 0 until measured
	OverheadMs        float64     `json:"overhead_ms"`
	Why               string      `json:"why"`                     // one sentence: why now, or why refused
	OrderID           uint64      `json:"order_id,omitempty"`      // newest order sent for it
	RevertReason      string      `json:"revert_reason,omitempty"` // why it is or was undone; set from the moment it has to go
	JobEpoch          uint64      `json:"job_epoch,omitempty"`     // that it was planned for
	Base              []int32     `json:"base,omitempty"`          // split before any action of the epoch: what reverts end at
}

// RungView is one line of the ladder as the operator sees it.
type RungView struct {
	Rung       Rung    `json:"rung"`
	Applicable bool    `json:"applicable"`
	Reason     string  `json:"reason"` // why not, or what it does
	OverheadMs float64 `json:"overhead_ms"`
	GainMs     float64 `json:"gain_ms"`      // predicted, per iteration
	BreakEven  int64   `json:"break_even"`   // iterations since onset at which impact equals overhead; NoIteration if never
	ImpactMs   float64 `json:"impact_ms"`    // accumulated so far
	PredictMs  float64 `json:"predicted_ms"` // iteration time with it
	Current    bool    `json:"current"`
}

// Ladder is the state of mitigation for one incident.
type Ladder struct {
	Incident string     `json:"incident"`
	ImpactMs float64    `json:"impact_ms"` // Σ(ms − healthy) over unpaused iterations since onset
	LostGPUh float64    `json:"lost_gpu_hours"`
	Rungs    []RungView `json:"rungs"`
	Proposal *Action    `json:"proposal,omitempty"`
	Actions  []Action   `json:"actions"`
}

// Mode is who may act.
type Mode string

// Modes of the engine.
const (
	ModeObserve Mode = "observe" // nothing is proposed for execution
	ModeApprove Mode = "approve" // every rung waits for a person
	ModeAuto    Mode = "auto"    // rungs up to the cap act by themselves
)

// Policy bounds what happens without a person.
type Policy struct {
	Mode   Mode   `json:"mode"`
	Cap    Rung   `json:"cap"`    // highest automatic rung in ModeAuto
	Frozen bool   `json:"frozen"` // the operator's stop: nothing new is dispatched
	Owner  string `json:"owner,omitempty"`
}

// Automatic says whether rung r may act without a person.
func (p Policy) Automatic(r Rung) bool {
	return !p.Frozen && p.Mode == ModeAuto && r.Level() <= p.Cap.Level()
}
