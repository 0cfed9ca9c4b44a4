package standstill

import (
	"cmp"
	"time"

	"github.com/failslow/falcon"
)

// Config are the machine's times; zero values mean the defaults.
type Config struct {
	Beat    time.Duration // between two signs of life of a rank, 2 s
	Unknown time.Duration // without a call for so long, a job whose pace is unknown stands still, 30 s
	Answer  time.Duration // agents may take so long to answer, 2 s
	Again   time.Duration // a standstill is asked about again after it, then after twice as long, 5 s
}

func (c Config) withDefaults() Config {
	c.Beat = cmp.Or(c.Beat, 2*time.Second)
	c.Unknown = cmp.Or(c.Unknown, 30*time.Second)
	c.Answer = cmp.Or(c.Answer, 2*time.Second)
	c.Again = cmp.Or(c.Again, 5*time.Second)
	return c
}

// Input is what the machine takes in: Sign, Pace, Job and Answer.
type Input interface{ input() }

// Sign is a rank's sign of life.
type Sign struct {
	Rank         falcon.Rank
	Pid          int
	Iteration    int64
	Calls        uint64  // so far, over all communicators
	HookAgeMs    float64 // since its hook was last alive
	WaitingMs    float64 // since when it waits inside a call or for its device, 0 = it does not
	WaitingKnown bool    // the hook measures that
}

// Pace says whether the job's iteration time is known, and whether the job may stand
// still, as it is held, recovers or is about to end.
type Pace struct{ Known, Held bool }

// Job is the ranks and communicators of the job, given when the machine asks.
type Job struct {
	Seats  []Seat // by rank
	Groups []Group
}

// Seat is one rank's process.
type Seat struct {
	Node   falcon.Node
	Device falcon.Device
	Pid    int
	Alive  bool
	Hidden bool // it makes calls that are not seen
}

// Group is one communicator.
type Group struct {
	ID     uint64
	Name   string        // as people know it
	Kind   string        // groups of one kind do the same on other ranks; may be empty
	Places []falcon.Rank // by rank in the communicator, -1 = not known
}

// Answer is what one node says of its processes.
type Answer struct {
	Ask   uint64
	Node  falcon.Node
	Ranks []Calls
}

// Calls is where one process stands in its calls.
type Calls struct {
	Sign

	Comms []CommCalls
	Calls []Call // newest ones, in the order in which they were entered, oldest first
}

// CommCalls is what a process has asked for on one communicator.
type CommCalls struct {
	Comm        uint64
	Collectives uint64 // with Known
	Known       bool
	Pairs       bool // it carries sends and receives as well
	Inside      int  // calls that have begun and have not returned
}

// Call is one recorded call.
type Call struct {
	Comm     int    // index into Calls.Comms
	Number   uint64 // from 1, of the collectives or of those with the peer; 0 = not known
	Op       falcon.Op
	Count    uint64
	Dtype    uint8
	Peer     int // peer or root in the communicator, -1 = none or not known
	Stream   uint32
	Group    uint32 // launched together, 0 = alone
	Open     bool   // not launched: its group has not ended
	Failed   bool
	Captured bool
}

func (Sign) input()   {}
func (Pace) input()   {}
func (Job) input()    {}
func (Answer) input() {}

// Ready is what the machine wants.
type Ready struct {
	Ask     uint64        // all agents are to be asked with this number, after a Job; 0 = nothing
	Changed bool          // Hang is another one than before
	Hang    *falcon.Hang  // in force, nil = none
	Lasted  time.Duration // with Changed and no Hang: so long the job stood still
	TakenUp bool          // with Lasted: it does not go on, others see to it
}

// Empty reports whether nothing is wanted.
func (r Ready) Empty() bool {
	return r.Ask == 0 && !r.Changed
}
