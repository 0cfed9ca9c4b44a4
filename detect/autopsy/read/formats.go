package read

import (
	"bufio"
	"bytes"
	"errors"

	"github.com/failslow/falcon/detect/autopsy"
	"github.com/failslow/falcon/detect/trace"
	"github.com/failslow/falcon/detect/trace/logs"
)

// begin is the beginning of a file.
type begin struct {
	head  []byte
	guess logs.Guess
	in    *bufio.Reader // from the beginning
	open  Open
}

// format is one kind of file that is read as a whole. The first that a file's beginning shows reads it.
type format struct {
	what  string // for people; "" = not listed
	facts string
	is    func(b begin) bool
	read  func(s *Set, input *autopsy.Input, b begin) error
}

var formats = []format{
	{
		what:  "NCCL's RAS as JSON, with the comma that 2.28.9 leaves out",
		facts: "calls",
		is: func(b begin) bool {
			return bytes.Contains(b.head, []byte(`"nccl_version"`)) &&
				bytes.Contains(b.head, []byte(`"communicators"`))
		},
		read: func(s *Set, input *autopsy.Input, b begin) error {
			return s.addRAS(input, b.in)
		},
	},
	{
		is: func(b begin) bool {
			return bytes.Contains(b.head, []byte(`"engine_id"`)) ||
				bytes.Contains(b.head, []byte("by falcon collect.\n"))
		},
		read: func(_ *Set, input *autopsy.Input, _ begin) error {
			input.Kind = "falcon collect: for people"
			return errors.New("it says what the engine showed: the answer is made from the other files")
		},
	},
	{
		what:  "PyTorch's flight recorder (JSON, pickle), Chrome and Kineto traces",
		facts: "as `falcon detect trace` judges them",
		is: func(b begin) bool {
			return b.guess.Kind == logs.Trace && !trace.LooksLikeStacks(b.head)
		},
		read: func(s *Set, input *autopsy.Input, b begin) error {
			return s.addRecord(input, b.guess, b.in)
		},
	},
	{
		what:  "NCCL Inspector's records of collectives",
		facts: "times of ranks: the last to arrive waits least",
		is:    func(b begin) bool { return b.guess.Kind == logs.Collectives },
		read: func(s *Set, input *autopsy.Input, b begin) error {
			return s.addCollectives(input, b.in)
		},
	},
	{
		what:  "dcgm-exporter's metrics, dcgmi dmon",
		facts: "clocks of GPUs, Xid",
		is:    func(b begin) bool { return b.guess.Kind == logs.Counters },
		read: func(s *Set, input *autopsy.Input, b begin) error {
			return s.addCounters(input, b.in)
		},
	},
	{
		what:  "profile windows",
		facts: "as `falcon detect profile` judges them",
		is:    func(b begin) bool { return b.guess.Kind == logs.Profile },
		read: func(s *Set, input *autopsy.Input, b begin) error {
			return s.addProfile(input, b.in)
		},
	},
	{
		is: func(b begin) bool {
			return b.guess.Kind == logs.Calls && b.guess.Sure
		},
		read: func(_ *Set, input *autopsy.Input, b begin) error {
			input.Kind = b.guess.Format
			return errors.New(
				"calls of one rank give the period of iterations alone: falcon detect calls FILE",
			)
		},
	},
	{
		is: func(b begin) bool { return isWide(b.head) },
		read: func(s *Set, input *autopsy.Input, b begin) error {
			return s.addText(input, b.in)
		},
	},
	{
		is: func(b begin) bool { return b.guess.Kind == logs.Nothing },
		read: func(_ *Set, input *autopsy.Input, b begin) error {
			input.First = firstLine(b.head)
			return errors.New(b.guess.Why)
		},
	},
	{
		what:  "tables (CSV, TSV) with a column of ranks, nodes, GPUs or ports",
		facts: "values of members, by step; reasons of throttling",
		is: func(b begin) bool {
			_, names, ok := headers(string(b.head))
			return ok && newTable("", names, nil) != nil
		},
		read: (*Set).addTable,
	},
	{
		what:  "tables of iterations, W&B's exports",
		facts: "a series: where several columns may be meant, each",
		is: func(b begin) bool {
			_, _, ok := headers(string(b.head))
			return ok
		},
		read: func(s *Set, input *autopsy.Input, b begin) error {
			return s.addSeries(input, b.open, b.head)
		},
	},
	{
		what:  "JSON reports in which an object has a value for each rank or node, or a list has an object for each",
		facts: "values of members",
		is:    func(b begin) bool { return looksLikeReport(b.head) },
		read: func(s *Set, input *autopsy.Input, b begin) error {
			if err := s.addReport(input, b.in); err == nil {
				return nil
			}
			if err := s.addSeries(input, b.open, b.head); err == nil {
				return nil
			}
			return s.addAgain(input, b.open)
		},
	},
	{
		what:  "JSON lines, TensorBoard, MLPerf and DLLogger records",
		facts: "a series",
		is:    func(b begin) bool { return structured(b.guess) },
		read: func(s *Set, input *autopsy.Input, b begin) error {
			if err := s.addSeries(input, b.open, b.head); err == nil {
				return nil
			}
			return s.addAgain(input, b.open)
		},
	},
}

// addTable reads a table with a row for each member.
func (s *Set) addTable(input *autopsy.Input, b begin) error {
	comma, names, _ := headers(string(b.head))
	m := &members{file: input.Path, step: -1}
	t := newTable(input.Path, names, m)
	rows, err := t.read(b.in, comma)
	input.Lines, input.Kind = rows, "a table by "+t.by
	s.takeMembers(input, m)
	if series, ok := t.series(); ok {
		s.facts.Series = append(s.facts.Series, series)
	}
	return err
}

// lineReader is one kind of line of a text. A line goes to each until one takes it, and to those
// that are always asked.
type lineReader struct {
	what   string
	facts  string
	always bool
	take   func(t *text, l *line) bool
}

var lineReaders = []lineReader{
	{
		what:   "PyTorch's watchdog and its check of collectives, NCCL's RAS as text, falcon collect's calls",
		facts:  "calls that ranks are in",
		always: true,
		take:   func(t *text, l *line) bool { return t.calls.take(l) },
	},
	{
		what:   "Horovod's stall inspector, PyTorch's monitored barrier, NCCL's mismatched collectives",
		facts:  "who did not come",
		always: true,
		take:   func(t *text, l *line) bool { return t.absent.take(l) },
	},
	{
		what:   "lines that state a fault, Python tracebacks, torchrun's first failure (below)",
		facts:  "faults",
		always: true,
		take:   func(t *text, l *line) bool { return t.faults.take(l) },
	},
	{
		what:  "py-spy dumps, faulthandler's tracebacks",
		facts: "stacks of main threads",
		take:  func(t *text, l *line) bool { return t.stacks.take(l) },
	},
	{
		what: "Megatron's timers of all ranks and its `MxRtt/Rnk` lines, NVRx's scores, FlagScale's straggler reports, " +
			"DLRover's node check, nvidia-smi -q and dmon",
		facts: "values of members, whom a report names",
		take:  func(t *text, l *line) bool { return t.members.take(l) },
	},
	{
		what:  "nccl-tests",
		facts: "bandwidth between nodes, wrong results",
		take:  func(t *text, l *line) bool { return t.tests.take(l) },
	},
	{
		what:  "DeepSpeed's table of collectives with stragglers",
		facts: "how long ranks wait for each other",
		take:  func(t *text, l *line) bool { return t.comms.take(l) },
	},
	{
		what:  "the table of nvidia-smi",
		facts: "GPUs that idle beside busy ones, memory errors",
		take:  func(t *text, l *line) bool { return t.smi.take(l) },
	},
	{
		what: "training logs of any framework: a number whose name or unit says that it is the time of an iteration, " +
			"iterations or items per second, or the time since the start, beside a step; else the times of the lines that have a step; " +
			"else parts of iterations",
		facts: "a series, silence at its end",
		take:  func(t *text, l *line) bool { return t.iteration(l) },
	},
	{
		what:  "tables inside a text that begin with a rank, node or GPU, and lists such as `node04: 190.5 GB/s`",
		facts: "values of members",
		take:  func(t *text, l *line) bool { return t.rows.take(l) },
	},
}

// Understood is one thing that is understood, for the page about it.
type Understood struct {
	What  string
	Facts string
}

// Understands lists the formats and lines that are read.
func Understands() []Understood {
	var out []Understood
	for _, f := range formats {
		if f.what != "" {
			out = append(out, Understood{f.what, f.facts})
		}
	}
	for _, r := range lineReaders {
		out = append(out, Understood{r.what, r.facts})
	}
	return out
}

// Stated is a kind of fault that lines state.
type Stated struct {
	Kind   string
	Class  autopsy.Class
	Text   string
	Advice string
}

// States lists the faults that lines state, each kind and text once.
func States() []Stated {
	var out []Stated
	seen := map[string]bool{}
	for _, f := range faultLines {
		if key := f.kind + f.text; f.text != "" && !seen[key] {
			seen[key] = true
			out = append(out, Stated{f.kind, f.class, f.text, f.advice})
		}
	}
	return out
}
