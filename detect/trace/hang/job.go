package hang

import "github.com/failslow/falcon"

// Job is what was recorded of all ranks at the time of the hang.
type Job struct {
	Groups  []Group
	Members []Member // by rank, ascending; ranks without a record are in it, too
}

// Group is one communicator.
type Group struct {
	Name    string
	Kind    string        // groups of one kind do the same on other ranks, as all tensor-parallel ones; may be empty
	Members []falcon.Rank // ascending
}

// Member is one rank.
type Member struct {
	Rank    falcon.Rank
	Seen    bool           // there is a record of it
	Empty   bool           // the record says nothing of any group
	Hidden  bool           // it makes calls that its record leaves out
	Whole   bool           // the record lost nothing: what it lacks was never asked for
	Pending []Call         // asked for and not completed, in order
	Asked   map[int]int64  // newest collective asked for, by group; absent = not known
	Done    map[int]int64  // newest collective known to be completed, by group
	Calls   map[Key]Record // the collectives recorded
}

// Record is one recorded collective.
type Record struct {
	Shape string // what members must agree on; empty where that can't be told
	At    int    // its place in the rank's order of calls
}

// Key is one collective of one group.
type Key struct {
	Group int
	Seq   int64
}

// Call is a collective, a send or a receive that a rank has asked for.
type Call struct {
	Group  int
	Seq    int64  // of a collective
	Name   string // as shown, "nccl:all_reduce"
	Rooted bool   // some members may complete it before others are in it
	Failed bool   // it may have ended in an error
	Pair   bool   // a send or a receive
	Send   bool
	Peer   falcon.Rank // of a send or a receive
	Place  string      // where the program calls it, may be empty
}

// Kind says what a finding is.
type Kind string

// The kinds of findings.
const (
	Behind   Kind = "missed_call"    // others are in a call that it never asked for, and it waits for nobody
	Device   Kind = "device_stopped" // it never saw calls complete that its peers completed with it
	Missing  Kind = "no_record"      // others wait for it and it left no record
	Mismatch Kind = "mismatch"       // it calls something else than the other members
	Order    Kind = "wrong_order"    // it calls in another order than the other members
	Together Kind = "none_finished"  // all members are in the call and none finished it
	Circle   Kind = "circle"         // they wait for each other, and no side has a majority
)

// Finding is one end of the graph.
type Finding struct {
	Kind    Kind
	Ranks   []falcon.Rank
	Group   int // index, -1 = none
	Seq     int64
	Pair    bool // the call is a send or receive
	Call    string
	Place   string          // where a rank that waits calls it
	Waiting []falcon.Rank   // members that are in the call
	Asked   int64           // newest collective the ranks asked for in the group, -1 = not known
	Peers   int64           // Device: newest collective that the peers completed
	Shapes  map[string]int  // Mismatch: how many members call what
	Odd     map[string]bool // Mismatch: which of these are the odd ones

	op *operation
}

// Answer is who holds the job up.
type Answer struct {
	Culprits   []Finding
	Candidates []Finding // of these nobody can be named alone
	Waiting    int       // ranks that wait for somebody
	Old        []falcon.Rank
}
