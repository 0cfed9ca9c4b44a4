// Package epoch decides when a job epoch begins: which description of the job is
// believed, whether its processes are those of the epoch in force, of another
// launch, or what a recovery has led to.
//
// It guarantees that nothing is believed while the description is frozen or a rank
// is missing, that what ranks report one by one is believed only once it has not
// changed for the bounds below, that every change of the processes or of the layout
// begins another epoch, and that a recovery's epoch begins only with the processes
// that it has left or made.
//
// The machine is pure: time and what the ranks report are arguments, a decision is
// the answer. Its owner makes a described job durable and hands it to Committed. It
// must not judge single reports: which process holds a rank is decided before.
package epoch

import (
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// How long a description must not change before it is believed. Ranks report one by
// one, so that what is seen in between is a mixture.
const (
	LayoutWait       = 5 * time.Second // the adapter may still declare a layout
	ProcessesSettle  = 2 * time.Second // a restarted job shows up rank by rank
	MicroBatchSettle = 3 * time.Second // ranks report a new split at different moments
	AdoptWait        = 3 * time.Second // for the reports of new communicators after a recovery
)

// Job is the description of a job epoch, as journals keep it.
type Job struct {
	Epoch        uint64           `json:"epoch"`
	Processes    []string         `json:"processes"` // by rank: node/pid, and the launch if it was one
	Layout       falcon.Layout    `json:"layout"`
	Placement    falcon.Placement `json:"placement"`
	MicroBatches []int32          `json:"micro_batches,omitempty"`

	PlacementOrder  uint64           `json:"placement_order,omitempty"`     // in force, 0 = as launched
	PlacedIteration int64            `json:"placement_iteration,omitempty"` // first one of Placement
	Before          falcon.Placement `json:"placement_before,omitempty"`    // until then
	// launch of the processes, 0 = none of ours
	Generation uint64 `json:"generation,omitempty"`
	// Can.Park, for engines of the release before
	Adapter bool `json:"adapter,omitempty"`
	// what all processes have declared
	Can falcon.Can `json:"can,omitzero"`
	// recovery that the epoch began with, 0 = none
	Rejoined uint64 `json:"rejoined,omitempty"`

	LayoutFrom string `json:"layout_from,omitempty"` // FromConfig, FromTraffic; empty = the adapter
	// why the layout is not known, and its replicas are none; empty = it is
	Unknown string `json:"unknown,omitempty"`
}

// Newest is the newest generation that the job is of: its launch's, or that of its
// newest rejoin.
func (j Job) Newest() uint64 {
	return max(j.Generation, j.Rejoined)
}

// FromOutside reports whether the job was begun by somebody else than Falcon, with other processes in
// all places than was.
func (j Job) FromOutside(was Job) bool {
	return j.Newest() == 0 &&
		len(was.Processes) > 0 &&
		countSame(was.Processes, j.Processes) == 0
}

func (j *Job) setCan(c falcon.Can) {
	j.Can, j.Adapter = c, c.Park
}

// Doubt is why no work and no state may be moved between replicas, empty where the
// layout was declared. Communicators do not show traffic that passes by NCCL.
func (j Job) Doubt() string {
	if j.LayoutFrom == FromTraffic {
		return "the layout is inferred from communicators, which may not show all; declare it by the adapter, or as mesh in falcon.yaml"
	}
	return j.Unknown
}

// Equal reports whether two descriptions are the same.
func (j Job) Equal(o Job) bool {
	return j.Epoch == o.Epoch &&
		j.Layout == o.Layout &&
		slices.Equal(j.Processes, o.Processes) &&
		slices.Equal(j.Placement, o.Placement) &&
		slices.Equal(j.MicroBatches, o.MicroBatches) &&
		j.PlacementOrder == o.PlacementOrder &&
		j.PlacedIteration == o.PlacedIteration &&
		slices.Equal(j.Before, o.Before) &&
		j.Generation == o.Generation &&
		j.Can == o.Can &&
		j.Rejoined == o.Rejoined &&
		j.LayoutFrom == o.LayoutFrom &&
		j.Unknown == o.Unknown
}

// View is what is seen of the job at one moment.
type View struct {
	Job       Job    // in force
	Frozen    bool   // a recovery is at work: nothing is believed
	Ranks     []Rank // nil = some are missing or have ended
	Ended     bool   // Ranks are all, and all have ended: nothing of them changes any more
	Unsettled bool   // an order is out, or a rank has not reported its new place: splits are not believed
	Recovered *Recovered

	Configured falcon.Layout // zero = none
	Inferred   falcon.Layout // from what communicators carry; zero = none
	Unsure     string        // why nothing is inferred
}

// Rank is one rank as its agent describes it.
type Rank struct {
	Process      string
	Device       falcon.Device
	Layout       falcon.Layout // as the adapter declares it
	MicroBatches int32         // of its replica, 0 = unknown
	Order        uint64        // placement that its rank belongs to
	Generation   uint64        // launch of its process
	Rejoined     uint64        // generation in which it trains
	Can          falcon.Can    // what its process has declared
}

// Recovered is a recovery that has succeeded, and whose job epoch has not begun.
type Recovered struct {
	Generation uint64
	EndedNs    int64
	Replaced   map[falcon.Rank]bool // by recoveries of the epoch in force
}

// Kind is what is decided.
type Kind uint8

// Decisions.
const (
	Nothing    Kind = iota // no description is complete
	Wait                   // it may change: look again
	Describe               // Job is the job of the epoch in force
	Begin                  // Job begins another epoch
	BeginAfter             // Job begins the epoch that the recovery has led to
)

// Decision is the answer to a look at the job.
type Decision struct {
	Kind  Kind
	Job   Job    // but for Nothing and Wait
	Doubt string // about the layout, where it is new
}

// Machine decides on one job.
type Machine struct {
	seen  Job // newest description
	since time.Time
	doubt string
}

// Doubt is what is doubtful about the description that was believed last.
func (m *Machine) Doubt() string { return m.doubt }

// Committed has a description in force: ranks that still report the job as it was
// have not done so for long.
func (m *Machine) Committed(now time.Time, j Job) {
	m.seen, m.since = j, now
}

// Step looks at the job.
func (m *Machine) Step(now time.Time, v View) Decision {
	if v.Frozen || v.Ranks == nil {
		return Decision{}
	}
	if v.Recovered != nil && v.sameProcesses() {
		return v.adopt(now)
	}
	job, wait, doubt := v.candidate()
	if !job.Equal(m.seen) {
		m.Committed(now, job)
	}
	if v.Ended {
		wait = 0
		doubt = m.doubt
	}
	if now.Sub(m.since) < wait {
		return Decision{Kind: Wait}
	}
	out := Decision{Kind: Describe, Job: job}
	if job.Epoch != v.Job.Epoch {
		out.Kind = Begin
	}
	if doubt != m.doubt {
		m.doubt, out.Doubt = doubt, doubt
	}
	return out
}

// sameProcesses reports whether the processes are those that the recovery has left
// and made. Others are another job.
func (v *View) sameProcesses() bool {
	if len(v.Ranks) != len(v.Job.Processes) {
		return false
	}
	for i, r := range v.Ranks {
		if r.Process != v.Job.Processes[i] &&
			(!v.Recovered.Replaced[falcon.Rank(i)] || r.Generation > v.Recovered.Generation) {
			return false
		}
	}
	return true
}

// adopt begins the recovery's epoch once all ranks train in its generation, or after
// AdoptWait.
func (v *View) adopt(now time.Time) Decision {
	joined := !slices.ContainsFunc(v.Ranks, func(r Rank) bool {
		return r.Rejoined < v.Recovered.Generation
	})
	if !joined && now.UnixNano()-v.Recovered.EndedNs < int64(AdoptWait) {
		return Decision{Kind: Wait}
	}
	job := v.Job
	job.Epoch++
	job.Processes, job.Placement, job.Rejoined = v.processes(), v.placement(), v.Recovered.Generation
	job.setCan(v.can())
	job.PlacementOrder, job.PlacedIteration, job.Before = v.newestOrder(), 0, nil
	return Decision{Kind: BeginAfter, Job: job}
}

// Candidate is the job as its ranks describe it, whether or not it is believed.
func (v *View) Candidate() Job {
	job, _, _ := v.candidate()
	return job
}

// candidate also says how long the description must not change, and what is
// doubtful about it.
func (v *View) candidate() (job Job, wait time.Duration, doubt string) {
	was := v.Job
	layout, from, doubt := v.layout()
	unknown, processes := doubt, v.processes()
	same := countSame(was.Processes, processes)
	if (doubt != "" || from == FromTraffic && was.Unknown == "") &&
		same == len(processes) &&
		same == len(was.Processes) {
		// What was declared or inferred once holds for these processes.
		layout = was.Layout
		from = was.LayoutFrom
		doubt = ""
		if was.Unknown == "" {
			unknown = ""
		}
	}
	job = was
	job.Processes, job.Layout, job.Placement = processes, layout, v.placement()
	job.LayoutFrom, job.Unknown = from, unknown
	job.MicroBatches, job.Generation = v.microBatches(layout), v.generation()
	job.setCan(v.can())
	if was.Rejoined != 0 && same == len(processes) {
		job.Generation = was.Generation // survivors and replaced ranks are of several launches
	}
	switch {
	case same != len(processes) || len(was.Processes) != same || layout != was.Layout:
		job.Epoch++
		job.PlacementOrder, job.PlacedIteration, job.Before, job.Rejoined = v.newestOrder(), 0, nil, 0
		if same > 0 && same < len(processes) {
			wait = ProcessesSettle
		}
		if doubt != "" || from != "" {
			wait = max(wait, LayoutWait)
		}
	case job.MicroBatches == nil || v.Unsettled:
		job.MicroBatches = was.MicroBatches // the order's outcome decides
	case was.MicroBatches != nil && !slices.Equal(job.MicroBatches, was.MicroBatches):
		wait = MicroBatchSettle
	}
	return job, wait, doubt
}

func countSame(a, b []string) int {
	n := 0
	for i := range min(len(a), len(b)) {
		if a[i] == b[i] {
			n++
		}
	}
	return n
}
