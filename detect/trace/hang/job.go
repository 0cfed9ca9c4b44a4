package hang

import "github.com/failslow/falcon"

// Job is the record of all ranks at the time of the hang.
type Job struct {
	Groups  []Group
	Members []Member // by rank, ascending, including ranks without a record
}

// Group is one communicator.
type Group struct {
	Name string
	// groups of a kind do the same on different ranks, such as all tensor-parallel
	// groups; may be empty
	Kind    string
	Members []falcon.Rank // ascending
}

// Member is one rank.
type Member struct {
	Rank    falcon.Rank
	Seen    bool           // it has a record
	Empty   bool           // the record has no group
	Hidden  bool           // the record omits some of its calls
	Whole   bool           // the record is complete: other calls were never made
	Pending []Call         // called and not completed, in order
	Asked   map[int]int64  // newest collective called, by group; absent = not known
	Done    map[int]int64  // newest collective completed, by group; absent = not known
	Calls   map[Key]Record // the collectives recorded
}

// Record is one recorded collective.
type Record struct {
	Shape string // parameters that members must agree on; empty if not known
	At    int    // position in the rank's order of calls
}

// Key is one collective of one group.
type Key struct {
	Group int
	Seq   int64
}

// Call is a collective, a send or a receive that a rank has called.
type Call struct {
	Group  int
	Seq    int64  // of a collective
	Name   string // "nccl:all_reduce"
	Rooted bool   // some members may complete it before others are in it
	Failed bool   // it may have ended in an error
	Pair   bool   // a send or a receive
	Send   bool
	Peer   falcon.Rank // of a send or a receive
	Place  string      // source position of the call, may be empty
}

// Kind is the kind of a finding.
type Kind string

// The kinds of findings.
const (
	Behind   Kind = "missed_call"    // others are in a call that it never called, and it does not wait
	Device   Kind = "device_stopped" // it has not completed calls that its peers completed with it
	Missing  Kind = "no_record"      // others wait for it and it has no record
	Mismatch Kind = "mismatch"       // its call differs from that of the other members
	Order    Kind = "wrong_order"    // its order of calls differs from that of the other members
	Together Kind = "none_finished"  // all members are in the call and none finished it
	Circle   Kind = "circle"         // they wait for each other, without a majority
)

// Finding is one end of the graph.
type Finding struct {
	Kind    Kind
	Ranks   []falcon.Rank
	Group   int // index, -1 = none
	Seq     int64
	Pair    bool // the call is a send or receive
	Call    string
	Place   string          // source position in a rank that waits
	Waiting []falcon.Rank   // members that are in the call
	Asked   int64           // newest collective that the ranks called in the group, -1 = not known
	Peers   int64           // Device: newest collective that the peers completed
	Shapes  map[string]int  // Mismatch: number of members by shape
	Odd     map[string]bool // Mismatch: the minority shapes

	op *operation
}

// Answer lists the causes of the hang.
type Answer struct {
	Culprits   []Finding
	Candidates []Finding // possible causes if the records are ambiguous
	Waiting    int       // number of ranks that wait
	Old        []falcon.Rank
}
