package judge

import (
	"fmt"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/cause"
	"github.com/failslow/falcon/detect/peer"
	"github.com/failslow/falcon/detect/trace"
)

// TraceReport is a verdict with its evidence and measurements.
type TraceReport struct {
	falcon.Verdict
	Source     string         `json:"source"` // "timeline" or "flight_recorder"
	Layout     *falcon.Layout `json:"layout,omitempty"`
	Steps      int            `json:"steps,omitempty"` // number of steps in the trace
	Workers    []WorkerReport `json:"workers"`
	Hang       *Hang          `json:"hang,omitempty"`
	Stuck      []Stuck        `json:"stuck,omitempty"`
	Mismatched []Mismatch     `json:"mismatched,omitempty"`
	Missing    []falcon.Rank  `json:"missing,omitempty"` // ranks of groups without a record
	Dropped    int            `json:"dropped,omitempty"` // ignored calls
}

// WorkerReport is one worker's share of a step.
type WorkerReport struct {
	Worker     string      `json:"worker"`
	Rank       falcon.Rank `json:"rank"`
	Steps      int         `json:"steps,omitempty"`
	ComputeMs  float64     `json:"compute_ms,omitempty"`
	PeerMs     float64     `json:"peer_ms,omitempty"` // median of same-stage peers, 0 = none
	Ratio      float64     `json:"ratio,omitempty"`
	TransferMs float64     `json:"transfer_ms"`
	WaitMs     float64     `json:"wait_ms"`
	Slow       bool        `json:"slow"`
	Awaited    bool        `json:"awaited"` // others wait for it over twice the transfer
}

// Weights of evidence from a trace alone, in addition to those of detect/cause.
const (
	weightStages   = 0.60 // a stage computes longer than the others, equally in all replicas
	weightSequence = 0.60 // the slowest worker changes from step to step
	noCounters     = 0.8  // factor: there is only timing
)

// noCountersText is added to every verdict on a file.
const noCountersText = "The file has no hardware counters and no active tests: timing alone shows which rank, not the cause"

// Timeline judges the workers of a trace by the rules (zero = the default).
func Timeline(t trace.Timeline, rules peer.Rules) TraceReport {
	w := timelineWindow(t)
	w.Rules = rules
	res := peer.Judge(w)
	for i := range res.Groups {
		if res.Groups[i].Bytes == 0 {
			res.Groups[i].Suspect = false // groups of unknown size have no class
		}
	}
	r := TraceReport{
		Source:  "timeline",
		Layout:  &t.Layout,
		Steps:   len(t.Steps),
		Dropped: t.Dropped,
		Workers: workerReports(t, res),
	}
	r.Verdict = timelineVerdict(t, res, rules.WithDefaults().Suspect)
	for _, q := range res.Ranks {
		if !q.Measured {
			r.Missing = append(r.Missing, q.Rank)
		}
	}
	if t.Assumed != "" {
		r.addNote(falcon.EvidenceTiming, true, "Assumed: %s", t.Assumed)
		r.Confidence *= noCounters
	}
	if t.Dropped > 0 {
		r.addNote(falcon.EvidenceTiming, true, "%d communication calls after the first %d were ignored",
			t.Dropped, trace.MaxCalls)
	}
	r.addNote(falcon.EvidenceCounter, true, noCountersText)
	r.fillEmptyLists()
	return r
}

func (r *TraceReport) addNote(kind falcon.EvidenceKind, against bool, format string, args ...any) {
	r.Evidence = append(r.Evidence, falcon.Evidence{
		Kind:    kind,
		Text:    fmt.Sprintf(format, args...),
		Against: against,
	})
}

// fillEmptyLists replaces nil lists by empty ones.
func (r *TraceReport) fillEmptyLists() {
	if r.Devices == nil {
		r.Devices = []falcon.Device{}
	}
	if r.Ranks == nil {
		r.Ranks = []falcon.Rank{}
	}
	if r.Links == nil {
		r.Links = []falcon.Link{}
	}
	if r.Workers == nil {
		r.Workers = []WorkerReport{}
	}
}

// timelineWindow converts a trace to a window of the live detector.
func timelineWindow(t trace.Timeline) peer.Window {
	w := peer.Window{
		Layout:   t.Layout,
		Comms:    map[falcon.Rank][]falcon.Comm{},
		NoStarts: true,
	}
	for _, one := range t.Workers {
		w.Comms[one.Rank] = countComms(t.Layout, one)
		w.Profiles = append(w.Profiles, falcon.RankProfile{
			Rank:       one.Rank,
			Iterations: one.Count,
			SelfMs:     medianStep(one.ComputeMs),
			Calls:      timings(t, one),
		})
	}
	return w
}

// medianStep is the median of the measured steps.
func medianStep(steps []float64) float64 {
	measured := make([]float64, 0, len(steps))
	for _, ms := range steps {
		if ms > 0 {
			measured = append(measured, ms)
		}
	}
	return falcon.Median(measured)
}

func countComms(l falcon.Layout, w trace.Worker) []falcon.Comm {
	seen := map[uint64]bool{}
	var out []falcon.Comm
	for _, c := range w.Calls {
		if seen[c.Comm] {
			continue
		}
		seen[c.Comm] = true
		at := falcon.Comm{
			ID:         c.Comm,
			Dimension:  c.Dimension,
			Size:       c.Size,
			RankInComm: int(w.Rank),
		}
		if c.Dimension == falcon.DimPP {
			at.RankInComm = l.Coord(w.Rank).PP
		}
		out = append(out, at)
	}
	return out
}

// timings numbers a worker's calls per communicator, within their step if the trace
// has steps, so that a missing step of one worker does not shift its calls.
func timings(t trace.Timeline, w trace.Worker) []falcon.CallTiming {
	type counter struct {
		comm uint64
		step int64
	}
	const perStep = 1 << 24
	counts := map[counter]uint64{}
	out := make([]falcon.CallTiming, 0, len(w.Calls))
	for _, c := range w.Calls {
		step, named := slices.BinarySearch(t.Steps, c.Step)
		k := counter{comm: c.Comm, step: int64(step)}
		ct := falcon.CallTiming{
			Comm:       c.Comm,
			Op:         c.Op,
			Peer:       -1,
			Bytes:      c.Bytes,
			StartMs:    c.StartMs,
			DurationMs: c.DurationMs,
		}
		if named {
			ct.Ordinal = uint64(step)*perStep + counts[k]%perStep
		} else {
			k.step = -1
			ct.Ordinal = counts[k]
		}
		counts[k]++
		if c.From >= 0 {
			ct.Peer = t.Layout.Coord(c.From).PP
		}
		out = append(out, ct)
	}
	return out
}

func workerReports(t trace.Timeline, res peer.Result) []WorkerReport {
	out := make([]WorkerReport, 0, len(t.Workers))
	for _, w := range t.Workers {
		r := res.Ranks[w.Rank]
		total := 0.0
		for _, c := range w.Calls {
			total += c.DurationMs
		}
		out = append(out, WorkerReport{
			Worker:     w.Name,
			Rank:       w.Rank,
			Steps:      w.Count,
			ComputeMs:  r.SelfMs,
			PeerMs:     r.PeerMs,
			Ratio:      r.Ratio,
			WaitMs:     r.WaitMs,
			TransferMs: max(0, total/float64(w.Count)-r.WaitMs),
			Slow:       r.Slow,
			Awaited:    r.Awaited,
		})
	}
	return out
}

// timelineVerdict explains the comparison. If no rank is slow, it looks for uneven
// work.
func timelineVerdict(t trace.Timeline, res peer.Result, suspect float64) falcon.Verdict {
	v := cause.Judge(cause.Case{Layout: t.Layout, Timing: res})
	v.Evidence = slices.DeleteFunc(v.Evidence, func(e falcon.Evidence) bool {
		return e.Kind == falcon.EvidenceCounter
	})
	for _, r := range v.Ranks {
		i := slices.IndexFunc(t.Workers, func(w trace.Worker) bool { return w.Rank == r })
		if i >= 0 {
			v.Evidence = append(v.Evidence, falcon.Evidence{
				Kind: falcon.EvidenceTiming,
				Text: fmt.Sprintf("Rank %d is worker %s, over %d steps",
					r, t.Workers[i].Name, t.Workers[i].Count),
			})
		}
	}
	if v.Cause != falcon.CauseUnknown || len(v.Ranks) > 0 {
		return v
	}
	if u, ok := unevenStages(t, res, suspect); ok {
		return u
	}
	if u, ok := unevenSteps(t, suspect); ok {
		return u
	}
	if late, ok := findTurned(t); ok {
		late.Evidence = append(late.Evidence, v.Evidence...)
		late.Severity = max(late.Severity, v.Severity)
		return late
	}
	return v
}

// unevenStages finds a stage that computes longer than the others, equally in all its
// replicas: an uneven split of the model.
func unevenStages(t trace.Timeline, res peer.Result, suspect float64) (falcon.Verdict, bool) {
	stages := make([][]float64, t.Layout.PP)
	for _, r := range res.Ranks {
		if r.Measured {
			stage := t.Layout.Coord(r.Rank).PP
			stages[stage] = append(stages[stage], r.SelfMs)
		}
	}
	worst, ratio := -1, suspect
	for stage, own := range stages {
		var others []float64
		for s, ms := range stages {
			if s != stage {
				others = append(others, falcon.Median(slices.Clone(ms)))
			}
		}
		base := falcon.Median(others)
		if len(own) < 2 || base <= 0 || slices.Max(own) > suspect*slices.Min(own) {
			continue
		}
		if r := falcon.Median(slices.Clone(own)) / base; r > ratio {
			worst, ratio = stage, r
		}
	}
	if worst < 0 {
		return falcon.Verdict{}, false
	}
	return notHardware(ratio-1, weightStages,
		"All %d workers of stage %d compute %.2f x as long as the other stages: the stage has more work",
		len(stages[worst]), worst, ratio), true
}

const unknownRank = -1

// unevenSteps finds work that differs by step and replica, for example because of
// sequence lengths.
func unevenSteps(t trace.Timeline, suspect float64) (falcon.Verdict, bool) {
	byPlace := map[falcon.Coord][]trace.Worker{}
	for _, w := range t.Workers {
		at := t.Layout.Coord(w.Rank)
		at.DP = 0
		byPlace[at] = append(byPlace[at], w)
	}
	var spreads []float64
	uneven, changed := 0, 0
	for _, alike := range byPlace {
		before := falcon.Rank(unknownRank)
		for step := range t.Steps {
			spread, who, ok := spreadOf(alike, step)
			if !ok {
				continue
			}
			spreads = append(spreads, spread)
			if spread <= suspect {
				continue
			}
			if uneven++; who != before {
				changed++
			}
			before = who
		}
	}
	const stepsLeast = 5
	typicalSpread := falcon.Median(spreads)
	if uneven < stepsLeast || typicalSpread <= suspect || 2*changed < uneven {
		return falcon.Verdict{}, false // the work is even, or the same worker is slowest in every step
	}
	return notHardware(typicalSpread-1, weightSequence,
		"The slowest replica of a step computes %.2f x as long as the median, and it changes from step to step: the work differs, for example by sequence length",
		typicalSpread), true
}

// spreadOf compares the replicas of one place in one step.
func spreadOf(alike []trace.Worker, step int) (spread float64, who falcon.Rank, ok bool) {
	var ms []float64
	longest := 0.0
	for _, w := range alike {
		if v := w.ComputeMs[step]; v > 0 {
			ms = append(ms, v)
			if v > longest {
				longest = v
				who = w.Rank
			}
		}
	}
	if len(ms) < 3 {
		return 0, 0, false
	}
	return longest / falcon.Median(ms), who, true
}

func notHardware(delay, weight float64, format string, args ...any) falcon.Verdict {
	return falcon.Verdict{
		Cause:      falcon.CauseNotHardware,
		Confidence: weight * noCounters,
		Severity:   cause.Severity(delay, 0, false, 0),
		Evidence: []falcon.Evidence{{
			Kind: falcon.EvidenceTiming,
			Text: fmt.Sprintf(format, args...),
		}},
	}
}
