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

// ActionState is the state of an action.
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
	ActionRetained   ActionState = "retained"   // its fault has cleared, and the job stays as it is
	ActionFailed     ActionState = "failed"     // never took effect
	ActionExpired    ActionState = "expired"    // the fault cleared before a decision
)

// Order is an order to all ranks, carried out at an iteration boundary. Ids grow over a
// job's life; ranks commit to one by a collective vote.
type Order struct {
	Epoch        uint64    `json:"epoch"` // job epoch it was made for; a stale one is refused
	ID           uint64    `json:"id"`
	Kind         OrderKind `json:"kind"`
	MicroBatches []int32   `json:"micro_batches,omitempty"` // per data-parallel replica
	// Blocks is a placement (S3): the ranks fall into len(Blocks) blocks of equal
	// size, and the processes that hold block b take block Blocks[b] over, each
	// keeping its place in the block. A node holds one block.
	Blocks []int32 `json:"blocks,omitempty"`
	Leave  bool    `json:"leave,omitempty"` // checkpoint (S4): end the processes once it is written
}

// OrderKind is what an order has ranks do.
type OrderKind string

// Kinds of orders.
const (
	OrderMicroBatches OrderKind = "microbatches"
	OrderPlacement    OrderKind = "placement"
	OrderCheckpoint   OrderKind = "checkpoint"
	OrderStop         OrderKind = "stop"
)

// SwapSteps are the steps of a placement, in their order (FALCON §5.3).
var SwapSteps = [4]string{"pause", "dump", "swap", "restore"}

// Swap is how a placement went on the slowest rank.
type Swap struct {
	StepMs  [4]float64 `json:"step_ms"`  // pause, dump, swap, restore
	MovedMB float64    `json:"moved_mb"` // over all ranks, in 10⁶ bytes
}

// Launch is processes to be started: an S4 restart, or the replacement of a node.
type Launch struct {
	Generation uint64    `json:"generation"` // grows with each launch of the job
	Placement  Placement `json:"placement"`  // device by rank
	Resume     bool      `json:"resume"`     // from the newest checkpoint
}

// Variant is how rung S4 is taken (straggler-chapter §3).
type Variant string

// The variants of S4.
const (
	VariantRestart Variant = "restart" // checkpoint, and all ranks again on healthy nodes
	VariantReplace Variant = "replace" // one node fenced, a spare in its place
	VariantDrop    Variant = "drop"    // a replica given up, the batch rescaled
	// one node fenced, a spare in its place by a recovery: no checkpoint, all other processes stay
	VariantFence Variant = "fence"
)

// Action is one rung proposed for one incident, and what became of it. A copy of
// it may be kept: what it refers to is replaced and never changed.
type Action struct {
	ID       string      `json:"id"` // "INC-0001/S2/1"
	Incident string      `json:"incident"`
	Rung     Rung        `json:"rung"`
	State    ActionState `json:"state"`
	Plan
	Decision
	Execution
	Outcome
}

// Plan is what an action would change, and what that was predicted to be worth.
type Plan struct {
	PlanHash     string  `json:"plan_hash"`         // decisions name it; a stale one is refused
	Variant      Variant `json:"variant,omitempty"` // of S4
	MicroBatches []int32 `json:"micro_batches,omitempty"`
	Previous     []int32 `json:"previous,omitempty"` // what a revert goes back to
	// split before any action of the epoch: what reverts end at
	Base      []int32   `json:"base,omitempty"`
	Preview   *Preview  `json:"preview,omitempty"`   // S3: what would change
	Placement Placement `json:"placement,omitempty"` // S3, S4: device by rank, once in force
	// S3: device by rank before, what a revert goes back to
	Home              Placement `json:"home,omitempty"`
	JobEpoch          uint64    `json:"job_epoch,omitempty"` // that it was planned for
	ProposedIteration int64     `json:"proposed_iteration"`
	BeforeMs          float64   `json:"before_ms"`
	PredictedMs       float64   `json:"predicted_ms"`
	OverheadMs        float64   `json:"overhead_ms"`
	Why               string    `json:"why"` // one sentence: why now, or why refused
}

// Decision is who let an action happen, or forbade it.
type Decision struct {
	DecidedBy     string `json:"decided_by"`             // "policy" or the operator's name
	DecidedFrom   string `json:"decided_from,omitempty"` // "policy", "unix:UID", "HOST" of the client
	DecidedUnixNs int64  `json:"decided_unix_ns,omitempty"`
	Reason        string `json:"reason,omitempty"` // the decision's, or why the action failed
	// Approvals are those of people, in their order, whatever came of the action in
	// the end. While it is proposed the first of two waits for the second; policy's
	// own approval is in DecidedBy alone.
	Approvals []Approval `json:"approvals,omitempty"`
	// DeadlineUnixNs ends a countdown. Proposed: then policy decides; 0 = a person
	// must. Approved: then it is ordered, until then a veto withdraws it; 0 = at
	// once, or not while something stops actions.
	DeadlineUnixNs int64 `json:"deadline_unix_ns,omitempty"`
}

// Execution is how far an action has been carried out.
type Execution struct {
	OrderID          uint64 `json:"order_id,omitempty"` // newest order sent for it
	AppliedIteration int64  `json:"applied_iteration"`  // NoIteration until it is in force
	// of an action under way that takes several steps
	Phase      ActionPhase `json:"phase,omitempty"`
	Swap       *Swap       `json:"swap,omitempty"`       // S3: how it went
	Generation uint64      `json:"generation,omitempty"` // S4: newest launch made for it
	Launches   int         `json:"launches,omitempty"`   // S4: launches made for it
	// S4: the iteration that the restart begins with
	Resume int64 `json:"resume_iteration,omitempty"`
	// S4: when the job's last iteration before it was seen
	StoppedUnixNs int64 `json:"stopped_unix_ns,omitempty"`
	// S4 fence: the recovery that replaced the node
	Recovery string `json:"recovery,omitempty"`
}

// Outcome is what came of an action.
type Outcome struct {
	MeasuredMs        float64 `json:"measured_ms"`           // 0 until measured
	ErrorShare        float64 `json:"error_share,omitempty"` // measured over predicted − 1, once measured
	RevertedIteration int64   `json:"reverted_iteration"`    // NoIteration until it is undone
	// why it is or was undone; set from the moment it has to go
	RevertReason string `json:"revert_reason,omitempty"`
	// RevertKind is what the reason says, for programs; "" as long as there is none.
	RevertKind RevertKind `json:"revert_kind,omitempty"`
}

// RevertKind is why an action had to go.
type RevertKind string

// Kinds of reverts.
const (
	RevertUnhelpful RevertKind = "unhelpful" // it did not help enough
	RevertUndone    RevertKind = "undone"    // a person asked for it
	RevertCleared   RevertKind = "cleared"   // the fault has cleared, or left the job
	// a newer action of the incident took its place: nothing was undone
	RevertReplaced RevertKind = "replaced"
	RevertJob      RevertKind = "job" // the job has changed
)

// Approval is one person's approval of an action.
type Approval struct {
	By     string `json:"by"`
	From   string `json:"from,omitempty"` // as DecidedFrom
	UnixNs int64  `json:"unix_ns,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Waits reports whether one person has approved what a second has to approve, too.
func (a Action) Waits() bool {
	return a.State == ActionProposed && len(a.Approvals) > 0
}

// ActionPhase is the step of an action that takes several.
type ActionPhase string

// Phases of actions.
const (
	PhasePlacement  ActionPhase = "placement"  // S3: the ranks were ordered to change places
	PhaseSplit      ActionPhase = "split"      // S3: they did; now the split that suits the new places
	PhaseCheckpoint ActionPhase = "checkpoint" // S4: the ranks were ordered to write a checkpoint and end
	PhaseLeaving    ActionPhase = "leaving"    // S4: it is written; the processes are ending
	PhaseLaunching  ActionPhase = "launching"  // S4: processes are being started on the new nodes
	PhaseRelaunch   ActionPhase = "relaunch"   // S4: that failed; they are being started on the old nodes
	// S4 fence: it is approved; the ranks are measured once more before it goes out
	PhaseMeasuring ActionPhase = "measuring"
	PhaseFencing   ActionPhase = "fencing" // S4 fence: a recovery replaces the node
)

// Preview is what a placement would change, for people.
type Preview struct {
	Swaps [][2]Node `json:"swaps"` // nodes that change places, in order
	// tensor-parallel groups that do instead, by the first devices of their places, in order
	Groups [][2]Device `json:"groups,omitempty"`
	// links that no group of the dimension uses any more
	Left    map[Dimension][]Link `json:"left"`
	Joined  map[Dimension][]Link `json:"joined"`
	MovedMB float64              `json:"moved_mb"`
	CopyMs  float64              `json:"copy_ms"` // predicted dump + swap + restore
	// pipeline stages that hold a slow device afterwards
	Stages   []int `json:"stages,omitempty"`
	Replicas []int `json:"replicas,omitempty"` // replicas that hold one
	// micro-batches that would be best there (a later S2)
	Splits []int32 `json:"splits,omitempty"`
	// per iteration over inter-node links, afterwards
	Traffic map[Dimension]float64 `json:"traffic_mb,omitempty"`
}

// RungView is one line of the ladder as the operator sees it.
type RungView struct {
	Rung       Rung    `json:"rung"`
	Applicable bool    `json:"applicable"`
	Reason     string  `json:"reason"` // why not, or what it does
	OverheadMs float64 `json:"overhead_ms"`
	GainMs     float64 `json:"gain_ms"` // predicted, per iteration
	// iterations: see Rented for plan ladder; else after which GainMs has repaid
	// OverheadMs; NoIteration if never
	BreakEven int64   `json:"break_even"`
	ImpactMs  float64 `json:"impact_ms"`    // accumulated so far
	PredictMs float64 `json:"predicted_ms"` // iteration time with it
	Current   bool    `json:"current"`
	PlanHash  string  `json:"plan_hash,omitempty"` // of the plan that taking it now would carry out
	Variant   Variant `json:"variant,omitempty"`
	// impact still to come until it is proposed (ski-rental), 0 = due
	ClockMs float64 `json:"clock_ms"`
	// the same by the clock, at the present loss; 0 = due, or nothing is lost now
	DueInMs float64 `json:"due_in_ms"`
	// what policy says: ApprovalAuto, ApprovalPerson, ApprovalNever
	Approval     string   `json:"approval"`
	Next         bool     `json:"next,omitempty"`     // the rung that the clock runs for
	IfWrong      string   `json:"if_wrong,omitempty"` // what happens when it does not help
	Preview      *Preview `json:"preview,omitempty"`
	MicroBatches []int32  `json:"micro_batches,omitempty"`
	// how often it was ordered within the last hour, whoever decided
	TakenHour int `json:"taken_hour,omitempty"`
}

// Ladder is the state of mitigation for one incident.
type Ladder struct {
	Incident string     `json:"incident"`
	ImpactMs float64    `json:"impact_ms"` // Σ(ms − healthy) over unpaused iterations since onset
	LostGPUh float64    `json:"lost_gpu_hours"`
	Rungs    []RungView `json:"rungs"`
	Proposal *Action    `json:"proposal,omitempty"`
	Actions  []Action   `json:"actions"`

	LossPerMinuteGPUh float64 `json:"loss_per_minute_gpu_hours"` // at the present pace
	// one sentence: what the prices rest on, and how well it predicted so far
	Model string `json:"model,omitempty"`
}
