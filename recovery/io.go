package recovery

import (
	"github.com/failslow/falcon"
	"github.com/failslow/falcon/recovery/internal/liveness"
)

// Input is one thing that happened.
type Input interface{ input() }

// Job describes the job epoch; stepped before anything else and on change.
type Job struct {
	Epoch      uint64
	Layout     falcon.Layout
	Placement  falcon.Placement // device by rank
	Generation uint64           // of the launch or rejoin in force
	ZeRO       falcon.ZeRO
	StateMB    float64  // of one rank, 10⁶ bytes; 0 = unknown
	Barred     []string // why other nodes are no spares although they could be, one clause each
	// connected nodes with room for a node's ranks and without any, in order of preference
	Spares    []falcon.Node
	CanLaunch map[falcon.Node]bool
	// nodes in use whose agents are between two connections: they may be able to start processes
	Away       map[falcon.Node]bool
	Domains    map[falcon.Node]string // failure domain (rack, switch); absent = the node's own
	Parks      bool                   // all processes have declared that they park and rejoin in place
	Splits     []int32                // micro-batches per replica in force
	Unit       int                    // that every replica's micro-batches must be a multiple of; 0 = 1
	Checkpoint int64                  // newest iteration that storage holds; NoIteration = none known
	Unbegun    bool                   // all its processes had ended before it was described
}

// Process is one training process as its agent describes it; stepped on change.
type Process struct {
	Rank       falcon.Rank
	Node       falcon.Node
	Pid        int
	Generation uint64 // that started it
	Alive      bool
	Normal     bool          // it ended by itself with success or on an order
	Finished   bool          // it ended with success, and not on an order: its part of the job is done
	Exit       string        // how it ended; empty = not known so far
	Ending     falcon.Ending // the same, as its kernel told it
	Rejoined   uint64        // newest generation that it has rejoined with success, 0 = none
	Park       *Park         // nil = it does not park
}

// Park describes a process that has left training to wait for Rejoin.
type Park struct {
	Generation uint64 // newest suspension it obeyed; a joining process: the one that launched it
	Joining    bool   // it replaces another: holds nothing
	Tag        int64  // its step tag when it parked; -1 = inside the optimizer: it must not be trusted
	Hold       falcon.RankHold
}

// Beat is a rank's sign of life, as its agent saw it.
type Beat struct {
	Rank      falcon.Rank
	Pid       int
	Iteration int64
	Tag       int64
	HookAgeMs float64 // since the hook's side thread was last alive

	Calls        uint64  // NCCL calls so far
	WaitingMs    float64 // since when it waits for others without a new call, 0 = it does not
	WaitingKnown bool    // the hook measures that
}

// Node reports that an agent was heard, or how its stream ended.
type Node struct {
	Node  falcon.Node
	Alive bool
	How   How // with Alive false: how its stream ended
}

// MessageReceived reports that anything but a beat was heard of an agent. It counts for a node that
// is suspected: a dead one is so only after all that it had sent is here, and one that lives
// behind a slow path may have beats that lie behind older reports.
type MessageReceived struct{ Node falcon.Node }

// How is how an agent's stream came to its end.
type How = liveness.How

// Ends of streams. None of them is a sign against the node by itself.
const (
	TimedOut = liveness.TimedOut // nothing was heard on it for long
	Reset    = liveness.Reset    // the other side broke it
	Goodbye  = liveness.Goodbye  // the agent reported that it stops in order
	Closed   = liveness.Closed   // the engine ended it itself
)

// Late reports that the engine works off messages of some time ago, or was not called
// for longer than it should be: what looks like silence may be its own delay.
type Late struct{}

// Standstill is what the calls of a job that stands still show: who holds it up. It is
// evidence of a hang for the person who decides, and no fault by itself.
type Standstill struct{ Text string } // "" = it goes on, or nothing is known

// Device is a device's own report.
type Device struct {
	Device falcon.Device // "n1.g0", or a NIC "n1.nic0"
	Fatal  bool          // it does not go on by itself
	Code   int           // XID, 0 = none
	Text   string
}

func (d Device) report() liveness.Report {
	return liveness.Report{
		Device: d.Device,
		Code:   d.Code,
		Text:   d.Text,
	}
}

// EventLife is how long a device's fatal report is a sign.
const EventLife = liveness.ReportLife

// Pace is the detector's view of iterations: a hang differs from a slow iteration by it.
type Pace struct {
	Iteration int64   // newest begun by any rank
	Ms        float64 // usual iteration time, 0 = unknown
	Held      bool    // a validation or an order holds the job: no progress is expected
}

// Suspended is the outcome of Suspend on one node: all its processes park or
// are gone (Process has reported them), or Refused is the reason why not.
type Suspended struct {
	Node       falcon.Node
	Generation uint64
	Refused    string
	Late       bool // with Refused: a process did not park in time; without, one can't
}

// Newer reports that a node has refused an order as older than a generation that it has seen.
type Newer struct {
	Node       falcon.Node
	Generation uint64
}

// Launched is the outcome of Launch on one node.
type Launched struct {
	Node       falcon.Node
	Generation uint64
	Failed     string
	// Unproven is of a process that runs and can't be followed, as under a hook of
	// another release: no fault of the node, and no better on the next one.
	Unproven bool
}

// Tabled reports that a node has the generation's rank table.
type Tabled struct {
	Node       falcon.Node
	Generation uint64
	Failed     string
}

// Rejoined is one rank's answer to Rejoin: status 0 = it trains again from step
// Resume; GroupsMs and RestoreMs are its own times.
type Rejoined struct {
	Rank       falcon.Rank
	Generation uint64
	Status     int32
	Iteration  int64
	GroupsMs   float64
	RestoreMs  float64
	Bytes      uint64
}

// Decision is an operator's decision on a recovery.
type Decision struct {
	Recovery string
	PlanHash string // must be the one that the operator saw
	Verb     Verb
	By, From string
	Reason   string
}

// Verb is what a decision asks for.
type Verb string

// Verbs.
const (
	Approve Verb = "approve"
	Deny    Verb = "deny"
	Abort   Verb = "abort" // until the point of no return
	// while it waits for a proof: nothing of the job runs on the nodes that are given up
	Ended Verb = "ended"
)

// Demand asks for a recovery by hand: a node is to be fenced and replaced, or the
// process of a rank, although no fault was seen.
type Demand struct {
	Node             falcon.Node
	Rank             falcon.Rank // -1 = the whole node
	By, From, Reason string
	// that asks for it (S4 fence): refused while a recovery is in progress; "" = a person
	Action string
	Spare  falcon.Node // that the action names; another where that is gone
}

// SetPolicy replaces the policy.
type SetPolicy struct{ Policy falcon.Policy }

// Restored gives back the journal's records, after Job. Orders of recoveries that are not over are
// given again, with the same generation.
type Restored struct {
	Recoveries []falcon.Recovery
	NextID     int
	Generation uint64        // highest ever used
	Devices    []Seen        // fatal reports, which agents send once, the newest of each node
	Ended      []falcon.Rank // of the job epoch in force, with success
}

// Seen is a device's fatal report with the time at which it came.
type Seen struct {
	Device Device
	AtNs   int64
}

func (Job) input()             {}
func (Process) input()         {}
func (Beat) input()            {}
func (Node) input()            {}
func (MessageReceived) input() {}
func (Late) input()            {}
func (Standstill) input()      {}
func (Device) input()          {}
func (Pace) input()            {}
func (Suspended) input()       {}
func (Newer) input()           {}
func (Launched) input()        {}
func (Tabled) input()          {}
func (Rejoined) input()        {}
func (Decision) input()        {}
func (Demand) input()          {}
func (SetPolicy) input()       {}
func (Restored) input()        {}

// Command is an order for the engine, once Recoveries are durable; idempotent by generation.
type Command interface{ command() }

// Suspend has the processes on Nodes leave their collectives and park. A rank in the optimizer (tag
// -1) is left alone until its tag is i+1 or WaitMs are over.
type Suspend struct {
	Generation uint64
	Nodes      []falcon.Node
	WaitMs     int64
}

// Fence has everything of the generations before refused: frames, commands and
// acknowledgements of these nodes' processes, store and table writes.
type Fence struct {
	Generation uint64
	Nodes      []falcon.Node // fenced as a whole
	Ranks      []falcon.Rank // processes fenced on nodes that stay
}

// Launch has processes started that park at once.
type Launch struct {
	Generation uint64
	Ranks      map[falcon.Rank]falcon.Device
	World      int
}

// Table has the rank table of the generation made and brought to the nodes.
type Table struct {
	Generation uint64
	Placement  falcon.Placement
}

// Rejoin lets the parked processes go on: groups of the generation are built,
// Moves restored, and training goes on at iteration Resume.
type Rejoin struct {
	Generation uint64
	Order      uint64 // id, from the recovery's own range: its generation
	Resume     int64
	Checkpoint bool
	Moves      []falcon.ShardMove // those that need one; empty with Checkpoint
	Splits     []int32
	Placement  falcon.Placement
}

// Stop ends parked processes that are not wanted any more: those on a fenced
// node that is still heard, or all (Ranks nil) when the recovery has failed.
type Stop struct {
	Generation uint64
	Nodes      []falcon.Node
	Ranks      []falcon.Rank
}

// Restart hands the job over to a whole restart from the newest checkpoint,
// where survivors can't be kept: Launch of all ranks once all have ended.
type Restart struct {
	Generation uint64
	Placement  falcon.Placement
	Reason     string
}

func (Suspend) command() {}
func (Fence) command()   {}
func (Launch) command()  {}
func (Table) command()   {}
func (Rejoin) command()  {}
func (Stop) command()    {}
func (Restart) command() {}

// Note is a line for the event log.
type Note struct {
	About    string // id of the recovery, else a node; "" = the job
	Kind     string // "fault", "recovery"
	Text     string // one sentence
	Severity int
}

// Ready is what a Step led to. Recoveries are made durable before commands are carried out.
type Ready struct {
	Recoveries []falcon.Recovery // whole, each changed one once
	Commands   []Command
	Notes      []Note
	Ended      []falcon.Rank // ended with success since; durable with Recoveries
}

// Empty reports whether there is nothing to do.
func (r Ready) Empty() bool {
	return len(r.Recoveries) == 0 &&
		len(r.Commands) == 0 &&
		len(r.Notes) == 0 &&
		len(r.Ended) == 0
}
