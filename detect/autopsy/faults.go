package autopsy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

const (
	survivedPoints = 3 // of progress after a fault in its file: the job went on
	sureOfHardware = 0.9
	sureOfProgram  = 0.7
	sureOfWatchdog = 0.75
	sureOfLost     = 0.5
	sureOfEffect   = 0.4
	shownOfKind    = 3 // lines of a kind of fault
)

// judgeFaults finds the first cause among lines that state a fault.
func judgeFaults(f *Facts) opinion {
	faults := slices.Clone(f.Faults)
	slices.SortStableFunc(faults, func(a, b Fault) int {
		if a.Class != b.Class {
			return cmp.Compare(a.Class, b.Class)
		}
		if a.Time.IsZero() || b.Time.IsZero() {
			return 0 // the order of the files, and of lines within them
		}
		return a.Time.Compare(b.Time)
	})
	var out opinion
	seen := map[string]int{}
	for _, x := range faults {
		went := x.wentOn(f)
		seen[x.Kind]++
		text := x.Text
		if went {
			text += "; the job went on after it"
		}
		if seen[x.Kind] <= shownOfKind && len(out.findings) < listed/2 {
			out.findings = append(out.findings, finding(x.Kind, x.Who, x.Time, x.Source, text))
		}
		if out.kind == "" && !went {
			out.cause(x)
		}
	}
	for i, x := range out.findings {
		if more := seen[x.Kind] - shownOfKind; more > 0 {
			out.findings[i].Text += fmt.Sprintf(" (%d more lines say this)", more)
			seen[x.Kind] = 0
		}
	}
	if out.kind == "" {
		out.effect(f, faults)
	}
	if out.kind == "" {
		return opinion{findings: out.findings}
	}
	out.where(f)
	if named := names(out.who); named != "" {
		out.summary = named + ": " + out.summary
	}
	return out
}

// cause takes a fault for what happened, where its class can be one.
func (o *opinion) cause(x Fault) {
	switch x.Class {
	case Hardware:
		o.kind = KindFailed
		o.rank = orderHardware
		o.confidence = sureOfHardware
	case Memory, Program:
		o.kind = KindFailed
		o.rank = orderFailed
		o.confidence = sureOfProgram
	case Watchdog:
		o.kind = KindHang
		o.rank = orderHang
		o.confidence = sureOfWatchdog
	case Network, Storage:
		o.kind = KindFailed
		o.rank = orderLost
		o.confidence = sureOfLost
	default:
		return
	}
	o.summary = x.Text
	o.next = append(o.next, x.Advice)
	switch {
	case x.Class == Watchdog: // whoever reports it waits; it says nothing of whom
	case x.Class == Network && x.Who.Device == "": // one of two ends reports it
	case x.Who != Nobody:
		o.who = append(o.who, x.Who)
	default: // another line of this kind may name somebody
		o.fault = x.Kind
	}
}

// effect takes what follows from a cause that nothing names: the report of an end before what its
// peers saw, one that names somebody before one that does not.
func (o *opinion) effect(f *Facts, faults []Fault) {
	var best *Fault
	for i := range faults {
		x := &faults[i]
		if x.sign() && !x.wentOn(f) && (best == nil || x.tells() < best.tells()) {
			best = x
		}
	}
	if best == nil {
		return
	}
	o.kind = KindFailed
	o.rank = orderLost
	o.confidence = sureOfEffect
	o.summary = best.Text + ", and nothing that was given says why"
	o.next = []string{best.Advice, "give the output of all ranks and the kernel logs of their nodes"}
	if best.Who != Nobody {
		o.who = append(o.who, best.Who)
	}
}

// sign reports whether a fault shows that the job failed, although it is no cause.
func (x Fault) sign() bool {
	switch x.Kind {
	case "time_limit", "preempted", "cancelled":
		return false
	case "xid":
		return true
	}
	return x.Class == Ending || x.Class == Consequence
}

// tells orders signs by how much they say.
func (x Fault) tells() int {
	n := 4
	switch {
	case x.Kind == "first_failure":
		return 0
	case x.Kind == "xid":
		n = 2
	case x.Class == Ending && x.Kind != "local_rank_ended":
		n = 0
	case x.Class == Ending:
		n = 1
	}
	if x.Who == Nobody {
		n++
	}
	return 2*n + 1
}

// where takes what a cause does not name of itself from lines that say the same, or from the task that ended.
func (o *opinion) where(f *Facts) {
	if o.kind != KindFailed {
		return
	}
	for _, x := range f.Faults {
		switch {
		case len(o.who) == 0 && x.Kind == o.fault && x.Who != Nobody:
			o.who = append(o.who, x.Who)
		case x.Kind != "task_ended":
		case len(o.who) == 0:
			o.who = append(o.who, Who{Rank: x.Who.Rank, Host: x.Who.Host})
		case len(o.who) == 1 &&
			o.who[0].Host == "" &&
			o.who[0].Rank >= 0 &&
			o.who[0].Rank == x.Who.Rank:
			o.who[0].Host = x.Who.Host
		}
	}
}

// wentOn reports whether the fault's file has progress after it.
func (x Fault) wentOn(f *Facts) bool {
	for _, s := range f.Series {
		if s.File != x.Source.File || len(s.Points) < survivedPoints {
			continue
		}
		if s.Points[len(s.Points)-survivedPoints].Line > x.Source.Line {
			return true
		}
	}
	return false
}

// judgeSilence finds a log whose progress stopped while it went on.
func judgeSilence(f *Facts) opinion {
	for _, s := range f.Silences {
		quiet := s.To.Sub(s.From)
		if s.From.IsZero() ||
			s.Usual <= 0 ||
			quiet < max(silentTimes*s.Usual, silentLeast) {
			continue
		}
		text := fmt.Sprintf("no iteration for %s, usually one in %s, while the log went on",
			roundDuration(quiet), roundDuration(s.Usual))
		return opinion{
			kind:       KindHang,
			rank:       orderHang,
			confidence: sureOfSilence,
			summary:    text,
			costS:      quiet.Seconds(),
			findings: []Finding{finding(
				"silence",
				Nobody,
				s.From,
				s.Last,
				"the last line of progress: "+text,
			)},
			next: []string{
				"if it still stands: take stacks of all ranks (py-spy dump) and NCCL's flight recorder before it is ended",
			},
		}
	}
	return opinion{}
}

// judgeStacks finds the processes that are in no call while the others are.
func judgeStacks(f *Facts) opinion {
	stacks := f.Stacks
	if len(stacks) == 0 {
		return opinion{}
	}
	ranked(stacks)
	var out []Stack
	in := 0
	for _, s := range stacks {
		if inCall(s.Frames) {
			in++
		} else {
			out = append(out, s)
		}
	}
	o := opinion{
		kind:       KindHang,
		rank:       orderHang,
		confidence: sureOfStacks,
		judged:     true,
	}
	switch {
	case in == 0 || len(stacks) < 2:
		return alone(stacks)
	case len(out) == 0:
		o.confidence = sureOfLost
		o.summary = fmt.Sprintf("all %d processes are in a collective or wait for a peer", len(stacks))
		o.next = []string{
			"give the flight recorder's dumps, or ncclras -f json: they say which call each rank is in",
		}
		return o
	case 2*len(out) > len(stacks):
		return opinion{judged: true}
	}
	for _, s := range out {
		o.who = append(o.who, Who{Rank: s.Who.Rank, Host: s.Who.Host})
		o.findings = append(o.findings, finding(
			"stack",
			s.Who,
			zero,
			s.Source,
			"it is not in a collective: "+few(s.Frames[:min(3, len(s.Frames))]),
		))
	}
	o.summary = fmt.Sprintf("%s is in no collective, %d others wait in one", names(o.who), in)
	o.next = []string{"look at what " + names(o.who) + " does: " + out[0].Frames[0]}
	return o
}

// alone gives evidence of stacks that can't be compared.
func alone(stacks []Stack) opinion {
	var o opinion
	for _, s := range stacks[:min(fewMost, len(stacks))] {
		o.findings = append(o.findings, finding(
			"stack",
			s.Who,
			zero,
			s.Source,
			few(s.Frames[:min(3, len(s.Frames))]),
		))
	}
	return o
}

// ranked gives processes without a rank the place in the order of nodes and pids, as launchers start them.
func ranked(stacks []Stack) {
	if slices.ContainsFunc(stacks, func(s Stack) bool {
		return s.Who.Rank >= 0 && s.Who.Host == ""
	}) {
		return
	}
	sorted := make([]*Stack, len(stacks))
	for i := range stacks {
		sorted[i] = &stacks[i]
	}
	slices.SortStableFunc(sorted, func(a, b *Stack) int {
		return cmp.Or(
			strings.Compare(a.Who.Host, b.Who.Host),
			strings.Compare(a.Source.File, b.Source.File),
			cmp.Compare(a.Pid, b.Pid),
		)
	})
	for i, s := range sorted {
		s.Who.Rank = i
	}
}

// callWords are in the innermost frames of a process that is in a collective, a send or a receive.
var callWords = []string{
	"distributed_c10d", "torch/distributed", "c10d", "nccl", "gloo", "all_reduce", "allreduce",
	"all_gather", "reduce_scatter", "broadcast",
	"barrier", "p2p.py", "recv", "send", "wait_tensor", "batch_isend_irecv", "synchronize at cuda", "horovod",
}

// looked is how many frames from the innermost one are looked at: below are those of the training loop.
const looked = 3

func inCall(frames []string) bool {
	for _, frame := range frames[:min(looked, len(frames))] {
		low := strings.ToLower(frame)
		if slices.ContainsFunc(callWords, func(w string) bool {
			return strings.Contains(low, w)
		}) {
			return true
		}
	}
	return false
}
