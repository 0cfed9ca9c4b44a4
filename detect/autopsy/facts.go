package autopsy

import (
	"strings"
	"time"
)

// Source is where a fact was read.
type Source struct {
	File string
	Line int // from 1, 0 = the file as a whole
	Text string
}

// Who is whom a fact speaks of. Empty fields are not known.
type Who struct {
	Rank   int // -1 = not known
	Host   string
	Device string
}

// Nobody is a Who of which nothing is known.
var Nobody = Who{Rank: -1}

// Facts are what the readers found.
type Facts struct {
	Inputs   []Input
	Series   []Series
	Faults   []Fault
	Calls    []Call
	Stacks   []Stack
	Samples  []Sample
	Named    []Named
	Verdicts []Verdict
	Silences []Silence
	Waits    []Wait
	Tests    []Bandwidth
}

// Input is one file, or one member of an archive.
type Input struct {
	Path  string
	Kind  string // "" = not understood
	First string // the first line, where it was not understood
	Why   string // why it was not used
	Used  bool
	Who   Who
	From  time.Time // zero = its lines have no time
	To    time.Time
	Lines int
	Notes []string
}

// Series is one value over iterations: times, or what times follow from.
type Series struct {
	File   string
	Name   string // as the file names it
	Unit   string // "ms", or "" where only ratios are known
	Why    string // why this one was taken
	Every  int    // iterations that a point covers, 0 = not known
	Who    Who    // whose times they are, Nobody = the job's
	Points []Point
}

// Label is the name without whose it is.
func (s Series) Label() string {
	if i := strings.LastIndex(s.Name, " - "); i >= 0 {
		return s.Name[i+3:]
	}
	return s.Name
}

// Point is one value of a series.
type Point struct {
	Value     float64 // grows with the time that an iteration takes
	Iteration int64   // -1 = not known
	Time      time.Time
	Line      int
}

// Class orders faults: the lower comes first as a cause.
type Class int

// Classes of faults.
const (
	Hardware    Class = iota // a device, a link or a node reports it
	Memory                   // out of memory
	Program                  // an error of the program
	Network                  // a connection failed: often a consequence of a peer's end
	Storage                  // a file system or its network
	Watchdog                 // a wait that took too long
	Ending                   // a launcher or scheduler ends what is left
	Warning                  // may be harmless
	Consequence              // follows from another one by its own words
)

// Fault is one line that states a fault.
type Fault struct {
	Kind   string // "ecc", "xid", "oom", "exception", …
	Class  Class
	Who    Who
	Time   time.Time
	Text   string // what it means
	Advice string
	Source Source
}

// Call is one rank's place in the order of a group's collectives.
type Call struct {
	Rank    int
	Host    string
	Group   string
	N       int    // ranks that this is said of; 0 = it names one that was counted, Rank -1 = it names none
	Seq     int64  // of the newest that it entered, -1 = not known, below = the rank does not answer
	Op      string // "" = not known
	Size    int64  // elements, 0 = not known
	TimedMs float64
	Counted bool // by RAS, which numbers each operation by itself
	Source  Source
}

// Stack is where one process stood.
type Stack struct {
	Who    Who
	Pid    int64
	Frames []string // innermost first
	Source Source
}

// Direction says which values of a sample are bad.
type Direction int

// Directions.
const (
	MoreIsSlow Direction = iota // times
	LessIsSlow                  // clocks, rates, scores
	LeastWaits                  // times inside a collective: the last to arrive waits least
	// utilisation in percent plus one: who waits in a collective is busy, who is not in it idles
	IdleStands
)

// Sample is one value of one member among peers.
type Sample struct {
	Metric    string
	Direction Direction
	By        string // "rank", "host" or "device"
	Key       string
	Who       Who
	Step      int64 // -1 = not known
	Value     float64
	Source    Source
}

// Named is a member that a report itself names.
type Named struct {
	Kind   string // "hang" or "slow"
	Metric string
	Who    Who
	Step   int64
	Value  float64
	Other  float64 // of the member at the other end, 0 = the report does not have it
	Strong bool    // the report is a judgement, not an extreme that every report has
	Gone   bool    // it does not answer at all
	Source Source
}

// Verdict is what another judge of this tree says of a file of its own kind.
type Verdict struct {
	Kind       string // of Answer
	Ranks      []int
	Confidence float64
	Text       []string
	Against    []string
	Source     Source
}

// Silence is a log whose progress stopped while the rest of it, or another file, went on.
type Silence struct {
	Last  Source // the last line of progress
	From  time.Time
	To    time.Time // the last line of anything
	Usual time.Duration
}

// Wait is how long one collective took over a job, and how much of that was waiting for the last to arrive.
type Wait struct {
	Op     string
	Size   string
	InMs   float64
	WaitMs float64 // beside InMs
	Source Source
}

// Bandwidth is one test of a group of nodes.
type Bandwidth struct {
	Metric string
	Hosts  []string
	Bytes  int64
	GBs    float64
	Source Source
}
