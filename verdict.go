package falcon

import (
	"math"
	"slices"
)

// Cause is the class of root cause that a verdict names.
type Cause string

// The causes, by their names on the wire, in records and in exports.
const (
	CauseGPU         Cause = "gpu_degradation"
	CauseCPU         Cause = "cpu_contention"
	CauseNetwork     Cause = "network_congestion"
	CauseFacility    Cause = "facility"
	CauseNotHardware Cause = "not_hardware"
	CauseUnknown     Cause = "unknown"
)

// causeTexts are the causes in words; every text for a person has them from here.
var causeTexts = map[Cause]string{
	CauseGPU:         "GPU degradation",
	CauseCPU:         "CPU contention",
	CauseNetwork:     "network congestion",
	CauseFacility:    "facility fault (power or cooling)",
	CauseNotHardware: "not hardware",
	CauseUnknown:     "cause unknown",
	"":               "cause unknown",
}

// Text is the cause in words; one that is not known here is given by its name.
func (c Cause) Text() string {
	if text, ok := causeTexts[c]; ok {
		return text
	}
	return string(c)
}

// EvidenceKind says which of the three independent proofs a line belongs to.
type EvidenceKind string

// The kinds of evidence.
const (
	EvidenceTiming  EvidenceKind = "timing"  // change point and peers
	EvidenceTest    EvidenceKind = "test"    // active validation
	EvidenceCounter EvidenceKind = "counter" // hardware counters
	EvidenceHistory EvidenceKind = "history" // what was named before; a remark, no proof
)

// Evidence is one line that led to a verdict, fit to be shown as it is.
type Evidence struct {
	Kind    EvidenceKind `json:"kind"`
	Text    string       `json:"text"`
	Against bool         `json:"against,omitempty"` // speaks against the verdict's cause
}

// Verdict says what is wrong, where, how bad, and why we think so.
type Verdict struct {
	Cause Cause `json:"cause"`
	// of not_hardware, as the cause or among Also; "" = not known more closely
	Reason  Reason   `json:"reason,omitempty"`
	Also    []Cause  `json:"also,omitempty"` // further causes at once
	Devices []Device `json:"devices"`
	Ranks   []Rank   `json:"ranks"`
	Links   []Link   `json:"links"`
	NICs    []NIC    `json:"nics,omitempty"` // ports whose counters show it
	// NCCL's choices by which links are known, where they matter
	Paths      []PathChoice `json:"paths,omitempty"`
	Untested   *Untested    `json:"untested,omitempty"` // a test that was not allowed, nil = none
	Severity   int          `json:"severity"`           // 1..4
	Confidence float64      `json:"confidence"`         // 0..1
	Evidence   []Evidence   `json:"evidence"`
}

// HasCause reports whether a cause is among those of the verdict.
func (v *Verdict) HasCause(c Cause) bool {
	return v.Cause == c || slices.Contains(v.Also, c)
}

// NamesNode reports whether the verdict is about a node: a device on it, a link
// that ends at it, or, where it knows neither, a rank on it by the placement.
func (v *Verdict) NamesNode(n Node, p Placement) bool {
	if len(v.Devices)+len(v.Links) > 0 {
		return slices.ContainsFunc(v.Devices, func(d Device) bool {
			return d.Node() == n
		}) ||
			slices.ContainsFunc(v.Links, func(l Link) bool {
				return l.A == n || l.B == n
			})
	}
	return slices.ContainsFunc(v.Ranks, func(r Rank) bool {
		return r >= 0 && int(r) < len(p) && p[r].Node() == n
	})
}

// IncidentState is the state of an incident.
type IncidentState string

// The states of an incident.
const (
	IncidentVerified IncidentState = "verified" // onset verified, culprit sought
	IncidentLocated  IncidentState = "located"  // verdict given
	IncidentRelieved IncidentState = "relieved" // the fault has cleared
	IncidentClosed   IncidentState = "closed"   // cleared and every action reverted
)

// NoIteration is an iteration that has not come.
const NoIteration int64 = -1

// Incident is one fail-slow fault from onset to close.
type Incident struct {
	ID                string        `json:"id"`
	State             IncidentState `json:"state"`
	FromStart         bool          `json:"from_start,omitempty"`
	OnsetIteration    int64         `json:"onset_iteration"`    // estimate: first slow iteration
	DetectedIteration int64         `json:"detected_iteration"` // last iteration seen when verified
	// first healthy one, NoIteration while it lasts
	RelievedIteration int64   `json:"relieved_iteration"`
	HealthyMs         float64 `json:"healthy_ms"`
	SlowMs            float64 `json:"slow_ms"`
	// level right before the onset, with other faults and what is done about them; 0 = unknown
	BeforeMs    float64 `json:"before_ms,omitempty"`
	Probability float64 `json:"probability"` // P(r ≤ w) when the alarm was raised
	// how many times the fault has come, 0 = once; all else is of the newest
	Times int `json:"times,omitempty"`
	// OnsetIteration of the first, where there were several
	FirstOnset int64 `json:"first_onset,omitempty"`
	// it ended as what it names left the job: the fault may last where it is
	Departed bool    `json:"departed,omitempty"`
	Verdict  Verdict `json:"verdict"`
}

// MinorBelow is the slowdown below which an incident is minor: FALCON §4.2 does not
// report it. It alerts operators by what it has cost, not by being there.
const MinorBelow = 0.10

// IsMinor reports whether a slowdown between two iteration times is minor.
func IsMinor(healthyMs, slowMs float64) bool {
	return healthyMs > 0 && slowMs < healthyMs*(1+MinorBelow)
}

// beforeDiffers is the share of the healthy time from which on the level before an onset is
// another one.
const beforeDiffers = 0.03

// Before is the iteration time that the incident began from: the level right before its onset,
// or the healthy one where that is as good as the same or not known.
func (i Incident) Before() float64 {
	if i.BeforeMs <= 0 ||
		i.HealthyMs > 0 && math.Abs(i.BeforeMs/i.HealthyMs-1) < beforeDiffers {
		return i.HealthyMs
	}
	return i.BeforeMs
}

// Open reports whether the fault still lasts.
func (i Incident) Open() bool {
	return i.State == IncidentVerified || i.State == IncidentLocated
}
