package standstill

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/trace/hang"
)

// verdict puts the graph's answer into words.
type verdict struct {
	*layout

	cfg      Config
	answered map[falcon.Node]bool
}

// report is the verdict; nil where no rank waits for another.
func (v verdict) report(a hang.Answer) *falcon.Hang {
	if a.Waiting == 0 || len(a.Culprits)+len(a.Candidates) == 0 {
		return nil
	}
	h := &falcon.Hang{Waiting: a.Waiting, World: len(v.job.Seats)}
	if stopped := v.stopped(a); len(stopped) > 0 {
		a.Culprits, a.Candidates = stopped, nil
	}
	culprits, candidates := v.weigh(h, a)
	for _, f := range culprits {
		h.Culprits = append(h.Culprits, v.part(f))
	}
	for _, f := range candidates {
		h.Candidates = append(h.Candidates, v.part(f))
	}
	if silent := v.silentNodes(); silent != "" {
		h.Doubts = append(h.Doubts,
			"The agents of "+silent+" did not answer: the calls of their ranks are not known",
		)
	}
	return h
}

// weigh takes culprits back that too little shows to name, and notes why.
func (v verdict) weigh(h *falcon.Hang, a hang.Answer) (culprits, candidates []hang.Finding) {
	candidates = a.Candidates
	named, frozen := 0, false
	for _, f := range a.Culprits {
		named += len(f.Ranks)
		frozen = frozen || slices.ContainsFunc(f.Ranks, v.isFrozen)
	}
	for _, f := range a.Culprits {
		switch {
		case f.Kind == hang.Device && !v.deviceStopped(f, a), f.Kind == hang.Missing,
			frozen && !slices.ContainsFunc(f.Ranks, v.isFrozen):
			candidates = append(candidates, f)
		case 2*named > h.World && f.Kind == hang.Behind:
			candidates = append(candidates, f)
		default:
			culprits = append(culprits, f)
		}
	}
	switch {
	case 2*named > h.World && len(culprits) == 0 && len(a.Culprits) > 0:
		h.Doubts = append(h.Doubts,
			"More than half of the ranks have not made the call: a common step, such as a checkpoint or an evaluation, is likelier than a fault",
		)
	case len(culprits) == 0 &&
		slices.ContainsFunc(candidates, func(f hang.Finding) bool {
			return f.Kind == hang.Behind && slices.ContainsFunc(f.Ranks, v.isHidden)
		}):
		h.Doubts = append(h.Doubts,
			"The records of these ranks have gaps: they may wait in a call that is not recorded")
	case len(culprits) == 0:
		h.Doubts = append(h.Doubts, "The records are ambiguous, so no rank is named")
	}
	return culprits, candidates
}

func (v verdict) isHidden(r falcon.Rank) bool {
	return v.out.Members[r].Hidden
}

// isFrozen reports whether a rank's hook was silent for longer than beats may be apart.
func (v verdict) isFrozen(r falcon.Rank) bool {
	c := v.calls[r]
	return c != nil && c.HookAgeMs > float64(2*v.cfg.Beat/time.Millisecond)
}

// deviceStopped reports whether a rank's own hook shows that its device has stopped, as
// what has ended on it is not recorded: the process is stopped, or the rank waits though
// its calls have what they need, and nothing else is odd.
func (v verdict) deviceStopped(f hang.Finding, a hang.Answer) bool {
	alone := len(a.Culprits) == 1 && len(a.Candidates) == 0 && len(f.Ranks) == 1
	return slices.ContainsFunc(f.Ranks, v.isFrozen) || alone && v.newest[f.Ranks[0]]
}

// someSilent reports whether a rank's hook was silent for longer than a moment: its
// process may be stopped.
func (v verdict) someSilent() bool {
	for _, c := range v.calls {
		if c.HookAgeMs >= freshMs {
			return true
		}
	}
	return false
}

// stopped finds, where all are in a call and none finishes, the members whose processes
// are stopped: NCCL's own threads stand still with them.
func (v verdict) stopped(a hang.Answer) (out []hang.Finding) {
	if len(a.Culprits) > 0 {
		return nil
	}
	for _, f := range a.Candidates {
		if f.Kind != hang.Together || f.Pair || f.Group < 0 {
			continue
		}
		f.Ranks, f.Waiting = nil, nil
		for _, r := range v.out.Groups[f.Group].Members {
			if v.isFrozen(r) {
				f.Ranks = append(f.Ranks, r)
			} else {
				f.Waiting = append(f.Waiting, r)
			}
		}
		f.Kind = hang.Device
		if len(f.Ranks) > 0 && len(f.Ranks) < len(f.Waiting) {
			out = append(out, f)
		}
	}
	return out
}

// silentNodes names the nodes whose agents have not answered.
func (v verdict) silentNodes() string {
	var out []string
	for _, s := range v.job.Seats {
		if s.Alive && !v.answered[s.Node] && !slices.Contains(out, string(s.Node)) {
			out = append(out, string(s.Node))
		}
	}
	slices.Sort(out)
	return few(out)
}

func (v verdict) part(f hang.Finding) falcon.HangPart {
	p := falcon.HangPart{
		Kind:    string(f.Kind),
		Ranks:   f.Ranks,
		Waiting: f.Waiting,
		Call:    f.Call,
		Text:    v.textOf(f),
		Advice:  v.adviceOf(f),
	}
	for _, r := range f.Ranks {
		p.Devices = append(p.Devices, v.job.Seats[r].Device)
	}
	if f.Group >= 0 {
		p.Comm = v.out.Groups[f.Group].Name
		p.Members = v.out.Groups[f.Group].Members
	}
	if !f.Pair {
		p.Seq = f.Seq
	}
	return p
}

// doing is what a rank's process does, by its own hook.
type doing uint8

const (
	unknown doing = iota
	frozen        // its hook is silent
	busy          // its device has not finished, or it is within a call
	own           // neither: it is in the program's own code
	gone          // there is no process
	unheard       // its agent has not answered
)

func (v verdict) doing(r falcon.Rank) doing {
	c := v.calls[r]
	switch {
	case !v.job.Seats[r].Alive:
		return gone
	case c == nil:
		return unheard
	case v.isFrozen(r):
		return frozen
	case !c.WaitingKnown:
		return unknown
	case c.WaitingMs > 0:
		return busy
	}
	return own
}

var doingTexts = map[doing]string{
	frozen:  "its process is stopped, as its hook does not beat",
	busy:    "its device has not finished earlier work",
	own:     "it is in the program's own code and waits in no call",
	gone:    "it has no process",
	unheard: "its calls are not known",
	unknown: "its hook does not measure whether it waits",
}

// together is what all ranks of a finding do; unknown where they differ.
func (v verdict) together(ranks []falcon.Rank) doing {
	first := v.doing(ranks[0])
	for _, r := range ranks[1:] {
		if v.doing(r) != first {
			return unknown
		}
	}
	return first
}

// callText names the call that others wait in.
func (v verdict) callText(f hang.Finding) string {
	if f.Group < 0 {
		return "an unknown call"
	}
	g := v.out.Groups[f.Group]
	of := fmt.Sprintf(" of communicator %s (%s)", g.Name, ranksText(g.Members))
	if f.Pair {
		return f.Call + of
	}
	what := f.Call
	if shape := v.shapeIn(f); shape != "" {
		what = shape
	}
	return fmt.Sprintf("collective %d, %s,%s", f.Seq, what, of)
}

// shapeIn is what those who wait call there, where all call the same.
func (v verdict) shapeIn(f hang.Finding) string {
	shape := ""
	for _, r := range f.Waiting {
		s := v.out.Members[r].Calls[hang.Key{Group: f.Group, Seq: f.Seq}].Shape
		if s == "" || shape != "" && s != shape {
			return ""
		}
		shape = s
	}
	return shape
}

// textOf is one sentence on a finding.
func (v verdict) textOf(f hang.Finding) string {
	who := v.subject(f.Ranks)
	call := v.callText(f)
	waiting := waitText(f.Waiting)
	switch f.Kind {
	case hang.Device:
		if v.together(f.Ranks) == frozen {
			return fmt.Sprintf("%s: %s, while %s in %s", who, doingTexts[frozen], waiting, call)
		}
		return fmt.Sprintf(
			"%s: %s is complete on the other members and not here: its device, or its watchdog thread, has stopped",
			who, call,
		)
	case hang.Missing:
		return fmt.Sprintf("%s: %s in %s; %s",
			who, waiting, call, doingTexts[v.together(f.Ranks)])
	case hang.Mismatch:
		return fmt.Sprintf("%s: %s: %s", who, call, shapesText(f))
	case hang.Order:
		return fmt.Sprintf("%s: in another call, while %s in %s: the order of calls differs",
			who, waiting, call)
	case hang.Together:
		return fmt.Sprintf(
			"%s: all members are in %s and none has finished: a network link or a device of the group is blocked, or earlier work",
			who, call,
		)
	case hang.Circle:
		return fmt.Sprintf("%s wait for each other, one side in %s, without a majority on either side",
			who, call)
	}
	text := fmt.Sprintf("%s %s not called %s, in which %s",
		who, verb(f.Ranks, "has", "have"), call, waiting)
	if f.Asked >= 0 && !f.Pair {
		text += fmt.Sprintf("; last call there: %d", f.Asked)
	}
	return text + "; " + doingTexts[v.together(f.Ranks)]
}

// shapesText says who disagrees on a call.
func shapesText(f hang.Finding) string {
	var odd, rest []string
	for shape, n := range f.Shapes {
		if f.Odd[shape] {
			odd = append(odd, shape)
		} else {
			rest = append(rest, fmt.Sprintf("%s by %d", shape, n))
		}
	}
	slices.Sort(odd)
	slices.Sort(rest)
	if len(odd) == 0 {
		return "the calls of the members differ without a majority, " + strings.Join(rest, ", ")
	}
	return fmt.Sprintf("called here: %s; by the others: %s: the program is not the same on all ranks",
		strings.Join(odd, ", "), strings.Join(rest, ", "))
}

// adviceOf is what to do next.
func (v verdict) adviceOf(f hang.Finding) string {
	r := f.Ranks[0]
	seat := v.job.Seats[r]
	stack := fmt.Sprintf("On %s: py-spy dump --pid %d, or gdb -p %d", seat.Node, seat.Pid, seat.Pid)
	switch {
	case f.Kind == hang.Device && v.together(f.Ranks) != frozen:
		return fmt.Sprintf("Check the kernel log of %s for an Xid; if there is one, falcon recover --node %s",
			seat.Node, seat.Node)
	case f.Kind == hang.Mismatch || f.Kind == hang.Order:
		return stack +
			", and the same of a rank that waits: the usual cause is a branch that depends on the rank or its data"
	case f.Kind == hang.Together:
		return "Test the links between these ranks (falcon validate --links), and check their nodes for Xids"
	case f.Kind == hang.Circle:
		return stack + ", and of one rank of the other side: compare the order of calls"
	}
	switch v.together(f.Ranks) {
	case frozen:
		return fmt.Sprintf(
			"On %s: see State in /proc/%d/status (T: stopped, D: in the kernel); a recovery replaces it where policy allows it",
			seat.Node, seat.Pid,
		)
	case busy:
		return fmt.Sprintf(
			"Check the kernel log of %s for an Xid, and the program for a kernel that does not end; falcon recover --rank %d replaces the process",
			seat.Node, r,
		)
	case gone, unheard:
		return fmt.Sprintf("Check whether %s and its agent are running", seat.Node)
	}
	return fmt.Sprintf(
		"%s: look for a data loader, a lock or a file system; if it does not go on, falcon recover --rank %d",
		stack, r,
	)
}

// subject names ranks with their place and process.
func (v verdict) subject(ranks []falcon.Rank) string {
	const most = 3
	if len(ranks) > most {
		return "R" + ranksText(ranks)[1:]
	}
	var out []string
	for _, r := range ranks {
		s := v.job.Seats[r]
		out = append(out, fmt.Sprintf("rank %d (%s, process %d)", r, s.Device, s.Pid))
	}
	text := strings.Join(out, ", ")
	return "R" + text[1:]
}

// ranksText writes ranks as "ranks 0-3, 7".
func ranksText(ranks []falcon.Rank) string {
	var parts []string
	for i := 0; i < len(ranks); {
		j := i
		for j+1 < len(ranks) && ranks[j+1] == ranks[j]+1 {
			j++
		}
		switch j {
		case i:
			parts = append(parts, fmt.Sprint(ranks[i]))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", ranks[i], ranks[j]))
		}
		i = j + 1
	}
	if len(ranks) == 1 {
		return "rank " + parts[0]
	}
	return "ranks " + few(parts)
}

// verb is the form for one or several ranks.
func verb(ranks []falcon.Rank, one, several string) string {
	if len(ranks) == 1 {
		return one
	}
	return several
}

// waitText says that ranks wait.
func waitText(ranks []falcon.Rank) string {
	return ranksText(ranks) + " " + verb(ranks, "waits", "wait")
}

// few joins names, and counts those beyond some.
func few(parts []string) string {
	const most = 8
	if len(parts) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(parts[:most], ", "), len(parts)-most)
	}
	return strings.Join(parts, ", ")
}
