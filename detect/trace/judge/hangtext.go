package judge

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/trace/hang"
)

// Hang is the cause of a hang.
type Hang struct {
	Culprits   []HangPart `json:"culprits"`
	Candidates []HangPart `json:"candidates"` // the records do not show which of these it is
	Waiting    int        `json:"waiting"`    // ranks that wait for others
}

// HangPart is one cause of a hang, with its ranks.
type HangPart struct {
	Kind    hang.Kind     `json:"kind"`
	Ranks   []falcon.Rank `json:"ranks"`
	Group   string        `json:"group,omitempty"`
	Members []falcon.Rank `json:"members,omitempty"` // of the group
	Seq     int64         `json:"seq,omitempty"`     // the collective's number in the group
	Call    string        `json:"call,omitempty"`
	Waiting []falcon.Rank `json:"waiting"` // ranks that are in the call
	Text    string        `json:"text"`
	Advice  string        `json:"advice"`
}

// Weights of the causes of a hang.
const (
	weightDevice  = 0.80
	weightOrder   = 0.70
	weightMissing = 0.65
)

func weightOf(k hang.Kind) float64 {
	switch k {
	case hang.Mismatch:
		return weightMismatch
	case hang.Device:
		return weightDevice
	case hang.Order:
		return weightOrder
	case hang.Missing:
		return weightMissing
	}
	return weightLate
}

// reportHang adds the causes of a hang to the report; false if no rank waits.
func (s *standstill) reportHang(r *TraceReport, a hang.Answer) bool {
	if len(a.Culprits)+len(a.Candidates) == 0 {
		return false
	}
	h := &Hang{
		Culprits:   []HangPart{},
		Candidates: []HangPart{},
		Waiting:    a.Waiting,
	}
	r.Hang = h
	r.Severity = 4
	r.Confidence = 1
	notHardware := len(a.Culprits) > 0
	for _, f := range a.Culprits {
		p := s.part(f)
		h.Culprits = append(h.Culprits, p)
		r.Ranks = append(r.Ranks, f.Ranks...)
		r.Confidence = min(r.Confidence, weightOf(f.Kind)*noCounters)
		r.addNote(falcon.EvidenceTiming, false, "%s", p.Text)
		notHardware = notHardware && (f.Kind == hang.Mismatch || f.Kind == hang.Order)
	}
	for _, f := range a.Candidates {
		p := s.part(f)
		h.Candidates = append(h.Candidates, p)
		r.addNote(falcon.EvidenceTiming, len(a.Culprits) > 0, "%s", p.Text)
	}
	if notHardware {
		r.Cause = falcon.CauseNotHardware
	}
	slices.Sort(r.Ranks)
	r.Ranks = slices.Compact(r.Ranks)
	if len(a.Culprits) == 0 {
		r.Confidence = weightLate * noCounters * noCounters
		r.addNote(falcon.EvidenceTiming, true, "The dumps are ambiguous, so none of these ranks is named")
	} else if n := a.Waiting; n > 0 {
		r.addNote(falcon.EvidenceTiming, false, "Waiting for %s, directly or indirectly: %d of %d ranks",
			subject(r.Ranks), n, len(s.job.Members))
	}
	if len(a.Old) > 0 {
		r.addNote(falcon.EvidenceTiming, true,
			"The dumps of %s are older than the others: peers completed calls that they don't have; dump all ranks at the same time",
			subject(a.Old))
	}
	r.addNote(
		falcon.EvidenceTiming,
		true,
		"Dumps have no timestamp: a running job can look like this for a moment; take a second set of dumps to confirm",
	)
	return true
}

func (s *standstill) part(f hang.Finding) HangPart {
	p := HangPart{
		Kind:    f.Kind,
		Ranks:   f.Ranks,
		Waiting: f.Waiting,
		Call:    f.Call,
		Text:    s.textOf(f),
		Advice:  adviceOf(f),
	}
	if p.Waiting == nil {
		p.Waiting = []falcon.Rank{}
	}
	if f.Group >= 0 {
		p.Group = s.job.Groups[f.Group].Name
		p.Members = s.job.Groups[f.Group].Members
	}
	if !f.Pair {
		p.Seq = f.Seq
	}
	return p
}

// callText formats the call that others wait in.
func (s *standstill) callText(f hang.Finding) string {
	if f.Group < 0 {
		return "an unknown call"
	}
	text := "call " + f.Call
	if !f.Pair {
		text = fmt.Sprintf("collective %d, %s,", f.Seq, f.Call)
	}
	text += " of " + s.groupText(f.Group)
	if f.Place != "" {
		text += " (" + f.Place + ")"
	}
	return text
}

func (s *standstill) textOf(f hang.Finding) string {
	call := s.callText(f)
	waiting := subject(f.Waiting, "waits", "wait")
	switch f.Kind {
	case hang.Device:
		return fmt.Sprintf(
			"%s not completed %s, while its peers have completed up to %d: the device of the rank, or its watchdog thread, has stopped",
			upper(subject(f.Ranks, "has", "have")), call, f.Peers,
		)
	case hang.Missing:
		return fmt.Sprintf("%s no dump; %s in %s",
			upper(subject(f.Ranks, "left", "left")), waiting, call)
	case hang.Mismatch:
		return upper(call) + ": " + shapesText(f)
	case hang.Order:
		return fmt.Sprintf(
			"%s in another call, while %s, the majority of the group, in %s: the order of calls differs",
			upper(subject(f.Ranks, "is", "are")), waiting, call,
		)
	case hang.Together:
		return upper(call) +
			": all members with a dump are in it and none has finished. A network link or device of the group is blocked, or earlier work that is not recorded"
	case hang.Circle:
		return fmt.Sprintf("%s for each other, one side in %s, without a majority on either side",
			upper(subject(f.Ranks, "waits", "wait")), call)
	}
	text := fmt.Sprintf("%s: %s in it, %s never called it",
		upper(call), subject(f.Waiting, "is", "are"), subject(f.Ranks))
	if f.Asked >= 0 {
		text += fmt.Sprintf(", last call %d", f.Asked)
	}
	return text + ", and no recorded call blocks it"
}

func upper(text string) string {
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

func shapesText(f hang.Finding) string {
	var odd, rest []string
	for _, shape := range slices.Sorted(maps.Keys(f.Shapes)) {
		if f.Odd[shape] {
			odd = append(odd, shape)
		} else {
			rest = append(rest, fmt.Sprintf("%s by %d", shape, f.Shapes[shape]))
		}
	}
	if len(odd) == 0 {
		return "the calls of its members differ without a majority, " + strings.Join(rest, ", ")
	}
	return fmt.Sprintf("%s %s, the others %s: the program is not the same on all ranks",
		subject(f.Ranks, "calls", "call"), strings.Join(odd, ", "), strings.Join(rest, ", "))
}

// NoteUnread adds notes on dumps that can't be read.
func (r *TraceReport) NoteUnread(sentences []string) {
	const most = 8
	for i, text := range sentences {
		if i == most {
			r.addNote(falcon.EvidenceTiming, true, "%d more dumps can't be read", len(sentences)-most)
			break
		}
		r.addNote(falcon.EvidenceTiming, true, "Ignored: %s", text)
	}
}

// adviceOf returns the next step for a finding.
func adviceOf(f hang.Finding) string {
	switch f.Kind {
	case hang.Device:
		return "Check the kernel log of its node for an Xid and its own log for a CUDA error; remove the GPU from service if there is one"
	case hang.Missing:
		return "Check whether its process is running: if not, look for its exit code and the kernel log (out of memory, Xid); if it is stopped, find out who stopped it"
	case hang.Mismatch, hang.Order:
		return "Compare the stacks of these ranks and of the others (py-spy dump): the usual cause is a branch that depends on the rank or its data"
	case hang.Together:
		return "Test the links between these ranks, and check their nodes for Xids"
	case hang.Circle:
		return "Compare the order of calls on both sides by their stacks (py-spy dump)"
	}
	return "Take its stack before you end it (py-spy dump --pid, gdb): it waits outside communication, so look for a held GIL, a lock, a data loader or a file system"
}
