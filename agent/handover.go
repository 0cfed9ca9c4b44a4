package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon/agent/act"
	"github.com/failslow/falcon/agent/relay"
	"github.com/failslow/falcon/agent/ship"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/clock"
)

// Bounds of a handover.
const (
	// an older one is of no use: the engine counts the agent's frames from 1 again
	HandoverMax     = 10 * time.Minute
	handoverVersion = 1
	handoverExtra   = 32 << 20 // beside the spool: answers, commands and numbers
	openBytesMax    = 8 << 20  // commands in progress; one more is left out, and answered as expired
	bootBytesMax    = 64
)

const replaced = "the agent was replaced before the work was done"

// handoverHead is followed by so many frames, answers and commands in progress.
type handoverHead struct {
	Version   int       `json:"version"`
	Node      string    `json:"node"`
	Job       string    `json:"job"`
	Machine   string    `json:"machine"` // the kernel's boot, by whose clock it was written
	WrittenNs int64     `json:"written"` // CLOCK_MONOTONIC
	Boot      string    `json:"boot"`
	Next      uint64    `json:"next"`
	Dropped   uint64    `json:"dropped"`
	Lost      uint64    `json:"lost"`
	Frames    int       `json:"frames"`
	Epoch     uint64    `json:"epoch"`
	Floor     uint64    `json:"floor"`
	Answers   int       `json:"answers"`
	LeftMs    []int64   `json:"left_ms"` // of each command in progress
	Readings  []reading `json:"readings"`
}

// reading is how far a process's marks were read, so that no iteration is sent twice.
type reading struct {
	Path   string `json:"path"`
	MadeNs int64  `json:"made"`
	Next   uint64 `json:"next"`
}

// carryover is what this life of the agent has of the one before, and leaves to
// the next.
type carryover struct {
	node, job, path string
	most            int64 // bytes
	monoNs          func() int64
	taken           *handover // until its commands are taken up
	left            act.Memory
	readings        []reading
}

// handover is what one life of an agent has of the one before.
type handover struct {
	stream   ship.Handover
	commands act.Memory
	readings []reading
}

// HandOver writes down what the next life of this agent goes on with; the stream
// is closed by then, and Run has returned.
func (a *Agent) HandOver(stream ship.Handover) error {
	sealed, err := handover{
		stream:   stream,
		commands: a.next.left,
		readings: a.next.readings,
	}.encodeParts(a.next.newHead())
	if err == nil && int64(len(sealed)) > a.next.most {
		err = fmt.Errorf("agent: %d bytes to hand over, at most %d are kept", len(sealed), a.next.most)
	}
	if err == nil {
		err = relay.Save(a.next.path, sealed)
	}
	if err != nil {
		return fmt.Errorf("agent: the next agent starts without what this one leaves: %w", err)
	}
	return nil
}

// newHead begins a handover of this agent, written now.
func (n *carryover) newHead() handoverHead {
	return handoverHead{
		Version:   handoverVersion,
		Node:      n.node,
		Job:       n.job,
		Machine:   clock.BootID(),
		WrittenNs: n.monoNs(),
	}
}

func (h handover) encodeParts(head handoverHead) ([]byte, error) {
	s := h.stream
	head.Boot = s.Boot
	head.Next = s.Next
	head.Dropped = s.Dropped
	head.Lost = s.Lost
	head.Frames = len(s.Frames)
	head.Epoch = h.commands.Epoch
	head.Floor = h.commands.Floor
	head.Answers = len(h.commands.Answers)
	head.Readings = h.readings
	var messages []proto.Message
	for _, f := range s.Frames {
		messages = append(messages, f)
	}
	for _, r := range h.commands.Answers {
		messages = append(messages, r)
	}
	room := openBytesMax
	for _, o := range h.commands.Open {
		if room -= proto.Size(o.Command); room >= 0 {
			messages = append(messages, o.Command)
			head.LeftMs = append(head.LeftMs, o.Left.Milliseconds())
		}
	}
	var parts [][]byte
	for _, m := range messages {
		b, err := proto.Marshal(m)
		if err != nil {
			return nil, fmt.Errorf("agent: %w", err)
		}
		parts = append(parts, b)
	}
	return relay.Encode(head, parts)
}

// TakeOver is what the life before has left for the stream, nil for nothing; the
// rest is taken up by Run. A file that can't be used is ignored with a warning.
// It is taken once.
func (a *Agent) TakeOver() *ship.Handover {
	var head handoverHead
	parts, err := relay.Load(a.next.path, a.next.most, &head)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var h handover
	if err == nil {
		h, err = head.decodeParts(parts)
	}
	if now := a.next.newHead(); err == nil {
		err = head.checkAgent(now)
		h.age(time.Duration(now.WrittenNs - head.WrittenNs))
	}
	if gone := os.Remove(a.next.path); gone != nil { // it would be taken twice
		err = errors.Join(err, gone)
	}
	if err != nil {
		a.log.Warn("ignored what the agent before has left", slog.Any("err", err))
		return nil
	}
	a.next.taken = &h
	a.log.Info(
		"took over from the agent before",
		slog.Int("frames", len(h.stream.Frames)),
		slog.Int("commands", len(h.commands.Open)),
	)
	return &h.stream
}

var errHandover = errors.New("agent: it is not for this agent")

// checkAgent returns why a handover is not for the agent that now describes.
func (head handoverHead) checkAgent(now handoverHead) error {
	switch age := time.Duration(now.WrittenNs - head.WrittenNs); {
	case head.Version != now.Version:
		return fmt.Errorf("%w: version %d, this agent reads %d", errHandover, head.Version, now.Version)
	case head.Node != now.Node || head.Job != now.Job:
		return fmt.Errorf("%w: it is of node %q and job %q", errHandover, head.Node, head.Job)
	case head.Machine != now.Machine || age < 0 || age > HandoverMax:
		return fmt.Errorf("%w: it was written more than %v ago", errHandover, HandoverMax)
	}
	return nil
}

// decodeParts reads the parts.
func (head handoverHead) decodeParts(parts [][]byte) (h handover, err error) {
	nf, na := head.Frames, head.Answers
	if nf < 0 ||
		na < 0 ||
		nf > len(parts) ||
		na > len(parts)-nf ||
		len(parts)-nf-na != len(head.LeftMs) ||
		len(head.Boot) > bootBytesMax {
		return h, fmt.Errorf("%w: its parts do not add up", relay.ErrDamaged)
	}
	h.readings = head.Readings
	h.stream = ship.Handover{
		Boot:    head.Boot,
		Next:    head.Next,
		Dropped: head.Dropped,
		Lost:    head.Lost,
	}
	h.commands = act.Memory{Epoch: head.Epoch, Floor: head.Floor}
	for i, b := range parts {
		var bad error
		switch {
		case i < nf:
			h.stream.Frames, bad = unmarshalNext(
				h.stream.Frames,
				b,
				&falconv1.AgentFrame{},
			)
		case i < nf+na:
			h.commands.Answers, bad = unmarshalNext(
				h.commands.Answers,
				b,
				&falconv1.CommandResult{},
			)
		default:
			left := time.Duration(min(max(head.LeftMs[i-nf-na], -1), act.LifeMax.Milliseconds())) *
				time.Millisecond
			cmd := &falconv1.Command{}
			bad = proto.Unmarshal(b, cmd)
			h.commands.Open = append(h.commands.Open, act.Open{
				Command: cmd,
				Left:    left,
			})
		}
		err = errors.Join(err, bad)
	}
	if err = errors.Join(err, h.stream.Check()); err != nil {
		return handover{}, fmt.Errorf("%w: %w", relay.ErrDamaged, err)
	}
	return h, nil
}

func unmarshalNext[M proto.Message](list []M, b []byte, m M) ([]M, error) {
	return append(list, m), proto.Unmarshal(b, m)
}

// age takes into account what has passed between the two agents.
func (h *handover) age(by time.Duration) {
	for i := range h.commands.Open {
		h.commands.Open[i].Left -= by
	}
	for _, f := range h.stream.Frames {
		f.KeptMs += uint64(max(0, by).Milliseconds())
	}
}

// importCommands resumes the commands of the life before.
func (a *Agent) importCommands(now time.Time) {
	if a.next.taken == nil {
		return
	}
	a.executor.Import(a.next.taken.commands, now, a.replayRefusal)
	a.next.taken = nil
}

// exportWork keeps what is handed over, as the loop ends. Commands that were not taken
// up by then are not answered: the engine sends them again.
func (a *Agent) exportWork(now time.Time) {
	a.next.left = a.executor.Export(now)
	for _, p := range a.processes.allProcesses() {
		if p.iterations.nextMark > 0 && !p.dead {
			a.next.readings = append(a.next.readings, reading{
				Path:   p.path,
				MadeNs: p.header.StartMonoNs,
				Next:   p.iterations.nextMark,
			})
		}
	}
}

// resumeMarks goes on with a process's marks where the life before has stopped: with
// the last that it read, which begins the next iteration.
func (n *carryover) resumeMarks(p *process) {
	if n.taken == nil {
		return
	}
	for _, r := range n.taken.readings {
		if r.Path == p.path && r.MadeNs == p.header.StartMonoNs {
			p.iterations.nextMark = max(r.Next, 1) - 1
		}
	}
}
