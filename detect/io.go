package detect

import (
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/peer"
)

// Input is one thing that happened: Job, Chosen, Samples, Profiled, Readings, Acted,
// Restored, Validated or Culprits.
type Input interface{ input() }

// Job describes the job epoch. It is stepped before the first sample and
// again when anything in it changes; a new Epoch forgets series and baseline.
type Job struct {
	Epoch        uint64
	Layout       falcon.Layout
	Placement    falcon.Placement
	Comms        map[falcon.Rank][]falcon.Comm
	MicroBatches []int32 // per replica, now
	Emulated     bool
	// Outside: the epoch was begun by somebody else than Falcon, with other processes in all places.
	// It may be another job.
	Outside bool
}

// Chosen is what is newly known of NCCL's choices: the communicators of the job as it was described,
// with them. It changes nothing else.
type Chosen struct {
	Comms map[falcon.Rank][]falcon.Comm
}

// Samples are iterations of any ranks; each rank's come in order of iteration.
type Samples struct {
	Samples []falcon.Sample
}

// Profiled is one node's part of a profile window, or its refusal.
type Profiled struct {
	Window   uint64
	Profiles []falcon.RankProfile
	Refused  string
}

// Readings are looks at hardware counters.
type Readings struct {
	GPUs  []falcon.GPUReading
	Hosts []falcon.HostReading
	NICs  []falcon.NICReading
}

// Validated is a validation that is over, whoever asked for it, or a refusal.
type Validated struct {
	Validation falcon.Validation
}

// Culprits are the devices and links named by incidents of the past, of this
// job and others, newest last: what is named again and again is worth a line.
type Culprits struct {
	Past []Named
}

// Named is one culprit of one past incident.
type Named struct {
	Job      string
	Incident string
	At       time.Time
	Device   falcon.Device // empty for links
	Link     falcon.Link   // zero for devices
	Cause    falcon.Cause

	epoch uint64 // of the job that Job = "" meant when it was named
}

// Acted reports that an action took force or was undone: a change
// point within the settle window after it belongs to the action.
type Acted struct {
	Incident     string
	Rung         falcon.Rung
	Iteration    int64 // first iteration it holds for
	Reverted     bool
	Unchanged    bool    // it ended, and the job stays as it is
	MicroBatches []int32 // per replica, from then on
	// Placement is the device of each rank from then on (S3); empty = as before.
	// Open incidents stay with their devices and links, under other ranks.
	Placement falcon.Placement
}

// Look asks for a complete profile soon, whatever else calls for one.
type Look struct {
	Why string
}

// Restored gives back the incidents that were open when the engine stopped. It
// is stepped before or after Job; Acted follows for every action that holds.
type Restored struct {
	Incidents []falcon.Incident
	Baseline  float64 // ms, 0 when unknown
	NextID    int     // number of the next incident
}

func (Job) input()       {}
func (Chosen) input()    {}
func (Samples) input()   {}
func (Profiled) input()  {}
func (Readings) input()  {}
func (Acted) input()     {}
func (Restored) input()  {}
func (Validated) input() {}
func (Culprits) input()  {}
func (Look) input()      {}
func (Compared) input()  {}

// Comparison is the comparison of a window's profiles, for the caller to carry out aside: of a
// large job it takes long. It shares nothing that later steps change.
type Comparison struct {
	Window uint64
	of     peer.Window
}

// Run carries the comparison out. Its result belongs into Step.
func (c Comparison) Run() Compared {
	return Compared{c.Window, peer.Judge(c.of)}
}

// Compared is what a comparison has found.
type Compared struct {
	Window uint64
	Result peer.Result
}

// ProfileRequest asks for a profile window on all ranks.
type ProfileRequest struct {
	Window     uint64
	Iterations int
	Why        string
}

// Note is a line for the event log: what was seen and judged to be nothing
// (a jitter, a change point that belongs to an action, a new baseline).
type Note struct {
	Iteration int64
	About     string // id of the incident, else a rank; "" = the job
	// "jitter", "rebase", "settled", "profile", "onset", "relief", "validation",
	// "watch", "throughput"
	Kind string
	Text string
}

// Ready is what a Step led to. Incidents are persisted before requests are sent.
type Ready struct {
	Incidents []falcon.Incident // whole, each changed one once
	Requests  []ProfileRequest
	Asks      []falcon.ValidationAsk // tests wanted; the engine's policy decides
	Notes     []Note
	Compare   *Comparison // to be run aside, see Config.CompareAside; nil = nothing
}

// Empty reports whether there is nothing to do.
func (r Ready) Empty() bool {
	return len(r.Incidents) == 0 &&
		len(r.Requests) == 0 &&
		len(r.Asks) == 0 &&
		len(r.Notes) == 0 &&
		r.Compare == nil
}

// RankStatus is the detector's present view of one rank, for consoles.
type RankStatus struct {
	Ms          float64 // last iteration, pauses taken out
	BaselineMs  float64
	Slowdown    float64 // Ms over baseline, minus 1
	Probability float64 // P(r ≤ w), 0 while the rank is near its level: see bocd.TrackerConfig.Rest
	Iteration   int64
	SelfMs      float64 // last profile, 0 = none
	SelfRatio   float64 // SelfMs over the median of its peers that no open incident names, 0 = there is none
	WaitMs      float64 // last profile, per iteration
	Suspect     bool
	SlowSteps   int  // steps running that the rank-level watch saw it slow
	Failing     bool // so many that it calls the rank failing
}

// Column is one iteration of a rank, with the state of the job's filter after it.
type Column struct {
	Iteration   int64
	Ms          float64
	Probability float64 // P(r ≤ w)
	MAP         int     // most probable run length
	Alarm       bool    // an alarm waited for its verification
	// P(r = 0..len-2), the last entry holds the tail; empty where the filter had no state
	Posterior []float64
}

// Steady is how the machine is doing as a whole.
type Steady struct {
	Learning   bool    // baseline not yet known
	BaselineMs float64 // lowest verified regime of the epoch, job level
	CurrentMs  float64 // median of the last iterations, slowest rank each
	Iteration  int64   // newest iteration seen from all ranks
	// newest iterations in a row that are no minor slowdown of the baseline, at most slowerMost
	Slower int
}
