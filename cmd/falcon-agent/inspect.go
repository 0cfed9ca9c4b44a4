package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/failslow/falcon/agent/ring"
)

// inspectProcess prints what the hook of one training process reports: the first thing
// to read when a rank is missing in the console. It only reads.
func inspectProcess(args []string, out io.Writer) error {
	flags := newFlagSet("falcon-agent inspect")
	if help, err := parseFlags(flags, args, out); help || err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("%w: name one file, such as /dev/shm/falcon-0/falcon.gpt.4711", errUsage)
	}
	p, err := ring.Open(flags.Arg(0))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf(
			"no such file: %s; list those of living processes with: ls /dev/shm/falcon-*/falcon.* /dev/shm/falcon.*",
			flags.Arg(0),
		)
	}
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }()
	describeProcess(out, p)
	return p.Err()
}

func describeProcess(out io.Writer, p *ring.Process) {
	h := p.Header()
	c := p.Control()
	beat := "never"
	if c.HeartbeatNs > 0 {
		beat = time.Duration(ring.MonoNs() - c.HeartbeatNs).Round(time.Millisecond).String()
	}
	fmt.Fprintf(out, "job %s, process %d, rank %d of %d (local %d), device %q\n",
		h.Job, h.PID, h.Rank, h.World, h.LocalRank, h.Device)
	fmt.Fprintf(out, "heartbeat %s ago, iteration %d, step tag %d, layout tp%d dp%d pp%d, %d micro-batches\n",
		beat, c.Iteration, c.StepTag, c.TP, c.DP, c.PP, c.MicroBatches)
	if c.Mesh != "" {
		fmt.Fprintf(out, "mesh %q, innermost first\n", c.Mesh)
	}
	fmt.Fprintf(out, "seen: %s; lost: %d records, %d timings\n",
		describeCoverage(c.Coverage), c.RecordsLost, c.TimingsLost)
	fmt.Fprintln(out, c.Bound)
	fmt.Fprintln(out, describeWaiting(c, ring.MonoNs()))
	fmt.Fprintf(out, "order %d committed from iteration %d, status %d\n",
		c.CommittedOrder, c.CommittedIteration, c.CommittedStatus)
	fmt.Fprintln(out, describePlacement(p.Place, c))
	fmt.Fprintln(out, describeRecovery(p.Park, p.Rejoined, c))
	fmt.Fprintln(out, describePause(p.Pause(), c, ring.MonoNs()))
	for _, m := range p.Comms(nil) {
		fmt.Fprintf(out, "communicator %016x %q: rank %d of %d, %d calls, %s, state %d\n",
			m.ID, m.Name, m.Rank, m.Size, m.Calls, describeGate(m), m.State)
	}
}

// describeWaiting reports whether the process waits for its peers, and how it ended.
func describeWaiting(c ring.Control, now int64) string {
	var text string
	switch {
	case c.Coverage&ring.CoverWaiting == 0:
		text = "whether it waits for its peers is not known"
	case c.WaitingSinceNs == 0:
		text = "does not wait for its peers"
	default:
		text = fmt.Sprintf("has waited for its peers for %v",
			time.Duration(max(now-c.WaitingSinceNs, 0)).Round(time.Millisecond))
	}
	switch {
	case c.Ended.InOrder() && c.Ended.Status >= 0:
		text += fmt.Sprintf("; ended with status %d", c.Ended.Status)
	case c.Ended.InOrder():
		text += "; has finished its training"
	}
	return text
}

// describePlacement is the rank that the process holds by a placement, which launch started
// it, and where a restart would begin.
func describePlacement(place func() (ring.Place, bool), c ring.Control) string {
	parts := []string{"holds the rank that it was started with"}
	switch at, ok := place(); {
	case !ok:
		parts[0] = "is being placed"
	case at.Order != 0:
		parts[0] = fmt.Sprintf("holds rank %d from iteration %d on by placement %d (%v, %d MB received)",
			at.Rank, at.Iteration, at.Order, time.Duration(at.Spent()).Round(time.Millisecond),
			at.Bytes/1e6)
	}
	if c.Generation != 0 {
		parts = append(parts, fmt.Sprintf("started by launch %d", c.Generation))
	}
	if c.ResumeIteration != 0 {
		parts = append(parts, fmt.Sprintf("its newest ordered checkpoint resumes with iteration %d",
			c.ResumeIteration))
	}
	return strings.Join(parts, "; ")
}

// describeRecovery is the process's state in a recovery: what it was ordered, whether
// it has left training, and which steps of its shard it holds.
func describeRecovery(
	park func() (ring.Park, bool),
	rejoined func() (ring.Rejoined, bool),
	c ring.Control,
) string {
	parts := []string{fmt.Sprintf("communicators of generation %d", c.GenerationNow)}
	if c.SuspendWanted != 0 {
		parts = append(parts, fmt.Sprintf("suspended for generation %d, obeyed up to %d",
			c.SuspendWanted, c.Suspended))
	}
	switch at, ok := park(); {
	case !ok:
		parts = append(parts, "is parking")
	case at.On && at.Status == ring.ParkJoin:
		parts = append(parts, fmt.Sprintf("replaced, parked in generation %d", at.Generation))
	case at.On:
		parts = append(parts, fmt.Sprintf("parked in generation %d with step tag %d, holds steps %v",
			at.Generation, at.Tag, at.Hold.Steps))
	default:
		parts = append(parts, "not parked")
	}
	if at, ok := rejoined(); ok && at.Generation != 0 {
		parts = append(parts, fmt.Sprintf(
			"rejoined in generation %d at iteration %d, status %d (groups %v, state %v)",
			at.Generation, at.Iteration, at.Status,
			time.Duration(at.GroupsNs).Round(time.Millisecond),
			time.Duration(at.StateNs).Round(time.Millisecond),
		))
	}
	return strings.Join(parts, "; ")
}

// describePause is the state of the process's newest pause, and what it has
// for active tests.
func describePause(s ring.Pause, c ring.Control, now int64) string {
	var parts []string
	switch {
	case s.Wanted != 0:
		parts = append(parts, fmt.Sprintf("pause %d in force, ends in %v at the latest",
			s.Wanted, timeLeft(s.UntilNs, now)))
	case s.Seen != 0:
		parts = append(parts, "no pause in force")
	default:
		parts = append(parts, "never paused")
	}
	if s.Seen != 0 {
		text := fmt.Sprintf("pause %d is %s, held %v",
			s.Seen, s.State, time.Duration(s.HeldNs(now)).Round(time.Millisecond))
		if why := s.Reason.String(); why != "" {
			text += " (" + why + ")"
		}
		parts = append(parts, text)
	}
	parts = append(parts, fmt.Sprintf("held %v in all",
		time.Duration(c.PausedNs).Round(time.Millisecond)))
	if c.TestWorkspace == 0 {
		parts = append(parts, "no memory for tests")
	} else {
		parts = append(parts, fmt.Sprintf("%d MiB for tests", c.TestWorkspace>>20))
	}
	return strings.Join(parts, "; ")
}

// timeLeft is the time to a deadline, which another process wrote: none is longer
// than a pause may be.
func timeLeft(untilNs, now int64) time.Duration {
	if untilNs <= now {
		return 0
	}
	return min(time.Duration(untilNs-now), ring.PauseMax).Round(time.Millisecond)
}

func describeGate(m ring.Comm) string {
	if !m.Armed {
		return "gate open"
	}
	return fmt.Sprintf("gate lets %d more through", m.Cut-m.Calls)
}

// coverageBits are the names of enum falcon_coverage, by bit.
var coverageBits = []string{
	"init", "collectives", "send/recv", "groups", "adapter", "NCCL NOT HOOKED",
	"NCCL HAS UNKNOWN FUNCTIONS", "waiting", "by the profiler plug-in",
	"ADAPTER WITHOUT RECOVERIES",
}

func describeCoverage(bits uint32) string {
	var names []string
	for i, n := range coverageBits {
		if bits>>i&1 == 1 {
			names = append(names, n)
		}
	}
	if len(names) == 0 {
		return "no NCCL call yet"
	}
	return strings.Join(names, ", ")
}
