package falcon

// FaultKind is what stopped a part of the job (fail-stop).
type FaultKind string

// Kinds of faults.
const (
	FaultExit   FaultKind = "exit"   // a training process ended, and not by an order
	FaultNode   FaultKind = "node"   // a node is gone: agent silent, and the job stalls
	FaultFrozen FaultKind = "frozen" // a process is alive, its hook is silent and its peers stall
	FaultHang   FaultKind = "hang"   // a process and its hook are alive, and no iteration comes
	// a device reported what it does not recover from by itself (XID, ECC, NIC down)
	FaultDevice FaultKind = "device"
)

// FaultSign is what is not known of a fault. It decides whether a person is asked.
type FaultSign string

// Signs.
const (
	SignUnwatched FaultSign = "unwatched" // nothing but ends that no agent saw: the job may have finished
	SignNoneLeft  FaultSign = "none left" // no process is left, and nobody saw how they ended
	SignUnheard   FaultSign = "unheard"   // it hangs, and nodes are not heard: they, or the console's network
)

// Fault is one fail-stop fault. It belongs to hardware: the ranks are those
// that the placement of the job epoch had there.
type Fault struct {
	Kind     FaultKind `json:"kind"`
	Node     Node      `json:"node"`
	Device   Device    `json:"device,omitempty"` // empty = the whole node
	Ranks    []Rank    `json:"ranks"`            // whose processes must be replaced
	Evidence []string  `json:"evidence"`         // one sentence each, oldest first
	// who demanded it without a sign; "" = it was found
	AskedBy string `json:"asked_by,omitempty"`
	// the action (S4 fence) that has the node replaced; "" = none
	Action string `json:"action,omitempty"`
	// that the action names for the node's ranks; another where that is gone
	Spare Node `json:"spare,omitempty"`
	// nothing but silence speaks against the node: it holds until the node is heard
	// again with its processes
	Silent bool `json:"silent,omitempty"`
	// the node is heard, but did not answer an order: it holds until the node is heard
	// by another connection
	Unanswered bool `json:"unanswered,omitempty"`
	// why the process ended, as it says itself; "" = nothing of that is known
	Words string `json:"words,omitempty"`
	// what is not known of it, which decides who may act; "" = nothing of that kind
	Sign       FaultSign `json:"sign,omitempty"`
	FirstNs    int64     `json:"first_unix_ns"`    // of the first sign
	DetectedNs int64     `json:"detected_unix_ns"` // when it was certain enough to act
	// when the node was heard again with its processes, and taken back; 0 = it was not
	ReturnedNs int64 `json:"returned_unix_ns,omitempty"`
}

// Holds reports whether the fault still stands: its node was not taken back since.
func (f Fault) Holds() bool { return f.ReturnedNs == 0 }

// MayPass reports whether nothing but a connection speaks against the node, so that the node is taken
// back once that is well again.
func (f Fault) MayPass() bool { return f.Silent || f.Unanswered }

// LosesNode reports whether the fault takes its node with it: the node can't be trusted
// to run the rank again, and what still runs on it is stopped.
func (f Fault) LosesNode() bool {
	return f.Kind == FaultNode || f.Kind == FaultFrozen || f.Kind == FaultDevice
}

// ZeRO is how the optimizer's state is spread (Rajbhandari et al. 2020):
// stage 0 = every replica has all of it; stage 1 = each of Instances groups of
// data-parallel ranks holds it once. With d data-parallel ranks and N instances
// the slices of instance m are ranks m·d/N … (m+1)·d/N − 1.
type ZeRO struct {
	Stage     int `json:"stage"`
	Instances int `json:"instances"`
}

// RecoveryState is how far a recovery has come.
type RecoveryState string

// States of a recovery. It goes from suspend to resumed in this order; a new
// fault in any of them begins again at suspend with the next generation.
const (
	RecoveryProposed RecoveryState = "proposed" // waits for a decision
	// survivors leave their collectives and park; what is faulty is fenced
	RecoverySuspend RecoveryState = "suspend"
	RecoveryReplace RecoveryState = "replace"   // processes are started in the place of the faulty ones
	RecoveryTable   RecoveryState = "ranktable" // the new rank table goes to the nodes
	// every process reports which steps it holds; they are locked
	RecoveryCollect   RecoveryState = "collect"
	RecoveryRejoin    RecoveryState = "rejoin"    // groups are built and shards restored
	RecoveryResumed   RecoveryState = "resumed"   // the job trains again
	RecoveryFailed    RecoveryState = "failed"    // given up: the reason names what is left to do
	RecoveryDenied    RecoveryState = "denied"    // a person denied it
	RecoveryCancelled RecoveryState = "cancelled" // a person ended it before the point of no return
)

// Over reports whether the recovery has ended.
func (s RecoveryState) Over() bool {
	switch s {
	case RecoveryResumed, RecoveryFailed, RecoveryDenied, RecoveryCancelled:
		return true
	}
	return false
}

// Phases of a recovery, for times: the names of the lab's report.
const (
	PhaseDetect  = "detect" // from the fault's first sign to certainty
	PhaseDecide  = "decide" // from certainty to the decision; absent where policy acts at once
	PhaseSuspend = "suspend"
	// from the last survivor's parking until what is faulty has ended and a spare is there; absent
	// where that takes no time
	PhaseFence   = "fence"
	PhaseReplace = "replace"
	PhaseTable   = "ranktable"
	PhaseCollect = "collect"
	PhaseGroups  = "groups"
	PhaseRestore = "restore"
	PhaseResume  = "resume" // from the last restored rank to the first iteration begun
)

// FromCheckpoint is the source rank where a shard comes from storage.
const FromCheckpoint Rank = -2

// ShardMove is from whom a rank gets its state.
type ShardMove struct {
	Rank Rank   `json:"rank"`
	From Rank   `json:"from"` // FromCheckpoint = storage
	Why  string `json:"why,omitempty"`
}

// RankHold is what one parked process holds: up to two steps of its shard, each
// with the checksum that whoever restores from it must find.
type RankHold struct {
	Steps [2]int64  `json:"steps"` // NoIteration = none
	Sums  [2]uint64 `json:"sums"`
}

// At finds the checksum of a step.
func (h RankHold) At(step int64) (uint64, bool) {
	for i, s := range h.Steps {
		if s == step && s >= 0 {
			return h.Sums[i], true
		}
	}
	return 0, false
}

// Recovery is one handling of fail-stop faults, from the first sign to the job's
// next iteration. Several faults join one recovery when they come before it has
// ended.
type Recovery struct {
	ID       string        `json:"id"` // "REC-0001"
	State    RecoveryState `json:"state"`
	JobEpoch uint64        `json:"job_epoch"`
	Faults   []Fault       `json:"faults"`
	RecoveryPlan
	RecoveryDecision
	RecoveryExecution
	RecoveryOutcome
}

// RecoveryPlan is how the job is to go on. PlanHash names what a decision agreed to:
// faults, replacements, moves.
type RecoveryPlan struct {
	PlanHash   string          `json:"plan_hash"`
	Replaced   map[Rank]Device `json:"replaced"`         // device of each rank whose process is replaced
	Survivors  []Rank          `json:"survivors"`        // whose processes stay
	Fenced     []Node          `json:"fenced"`           // refused from now on
	Placement  Placement       `json:"placement"`        // device by rank, once over
	Resume     int64           `json:"resume_iteration"` // NoIteration until chosen
	Before     int64           `json:"before_iteration"` // newest iteration begun before the fault
	Moves      []ShardMove     `json:"moves"`
	Checkpoint bool            `json:"checkpoint"`       // all ranks go back to storage
	Splits     []int32         `json:"splits,omitempty"` // micro-batches per replica that it goes on with
	// all processes are restarted: survivors can't be kept
	Whole    bool   `json:"whole,omitempty"`
	WholeWhy string `json:"whole_why,omitempty"` // why they can't, for people; "" without Whole
	// what a whole restart goes on with where no spare came; nil = all replicas
	Shrink *Shrink `json:"shrink,omitempty"`
}

// RecoveryDecision is who let a recovery happen, or forbade it.
type RecoveryDecision struct {
	DecidedBy   string `json:"decided_by"` // "policy" or the operator's name
	DecidedFrom string `json:"decided_from,omitempty"`
	// who stated that nothing of the job runs on the nodes given up; "" = no one
	StatedBy string `json:"stated_by,omitempty"`
}

// RecoveryExecution is how far its orders have come.
type RecoveryExecution struct {
	Generation uint64 `json:"generation"` // newest; of rank table, communicators and processes
	Attempts   int    `json:"attempts"`
	// ranks were ordered to rejoin: it can't be cancelled any more
	NoReturn   bool   `json:"no_return"`
	DeadlineNs int64  `json:"deadline_unix_ns,omitempty"` // of the present state; 0 = none
	Pending    []Rank `json:"pending,omitempty"`          // faulty, and not launched again yet
	// generation of the newest launch of each replaced rank
	Launched map[Rank]uint64 `json:"launched,omitempty"`
	// rejoins that failed without a new fault
	FailedRejoins int `json:"failed_rejoins,omitempty"`
	// all ranks ended within moments of each other, which is no loss of nodes; "" = they did not
	Together EndsTogether `json:"together,omitempty"`
	// it waits for a proof, or a person's statement, that no rank of the job trains on
	AwaitsProof bool          `json:"awaits_proof,omitempty"`
	Wait        *RecoveryWait `json:"wait,omitempty"` // whom it waits for; nil = nobody
}

// RecoveryWait is for whom parked ranks wait, and what a restart from storage would cost instead.
type RecoveryWait struct {
	// given up for their silence alone, ascending: each is taken back when it is heard again
	Nodes   []Node    `json:"nodes,omitempty"`
	Spare   bool      `json:"spare,omitempty"` // a spare ends it too
	UntilNs int64     `json:"until_unix_ns"`
	Then    AfterWait `json:"then"`
	// training that a restart from the newest checkpoint does again
	RedoMs   float64 `json:"redo_ms,omitempty"`
	LaunchMs float64 `json:"launch_ms,omitempty"` // and until it trains
}

// AfterWait is what follows when a recovery has waited for nothing.
type AfterWait string

// What follows a wait.
const (
	ThenFail       AfterWait = "fail"       // the recovery fails
	ThenFewer      AfterWait = "fewer"      // the job goes on from the checkpoint with fewer replicas
	ThenCheckpoint AfterWait = "checkpoint" // the node is replaced, and all ranks load the checkpoint
	ThenRestart    AfterWait = "restart"    // the whole job is started again from the checkpoint
)

// RecoveryOutcome is the reason of its present state, and the times that it took.
type RecoveryOutcome struct {
	Reason    string             `json:"reason,omitempty"` // why so, why it waits, or why it failed
	StartedNs int64              `json:"started_unix_ns"`
	EndedNs   int64              `json:"ended_unix_ns"`
	PhaseMs   map[string]float64 `json:"phases_ms"`
	PredictMs map[string]float64 `json:"predicted_ms"`
	// without success, it had all processes of the job end
	EndedJob bool `json:"ended_job,omitempty"`
}

// Shrink is a job with fewer replicas: those that stay keep their devices and
// their order, and share the whole batch. A recovery's Placement, and the ranks
// of its faults, are of the world before.
type Shrink struct {
	Layout    Layout    `json:"layout,omitzero"`
	Of        int       `json:"of"`                  // replicas before
	Kept      []int     `json:"kept"`                // which of them stay, ascending
	Placement Placement `json:"placement,omitempty"` // device by new rank
	Splits    []int32   `json:"splits,omitempty"`    // micro-batches per replica that stays
}

// RecoveryPolicy is what may be done without a person.
type RecoveryPolicy struct {
	// ApprovalAuto (default) or ApprovalPerson
	Approval  string  `json:"approval,omitempty" yaml:"approval"`
	Countdown float64 `json:"countdown_s,omitempty" yaml:"countdown_s"` // before it acts by itself
	// where the job stalls, a silent agent is enough to fence its node
	FenceAlone bool `json:"fence_alone,omitempty" yaml:"fence_alone"`
	// go on with fewer replicas where no spare is left
	AllowShrink bool `json:"allow_shrink,omitempty" yaml:"allow_shrink"`
	// times an hour that a process is replaced on its own node, default 2
	InPlace int `json:"in_place,omitempty" yaml:"in_place"`
	// recoveries without a person, default 10; then a person must approve
	PerHour int `json:"per_hour,omitempty" yaml:"per_hour"`
}
