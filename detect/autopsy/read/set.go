package read

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/failslow/falcon/detect/autopsy"
	"github.com/failslow/falcon/detect/peer"
	"github.com/failslow/falcon/detect/trace"
	"github.com/failslow/falcon/detect/trace/column"
	"github.com/failslow/falcon/detect/trace/judge"
	"github.com/failslow/falcon/detect/trace/logs"
)

// Open opens a file from its beginning. It may be called twice.
type Open func() (io.ReadCloser, error)

// Set gathers the facts of files. The zero value is empty.
type Set struct {
	facts   autopsy.Facts
	records trace.Records
	dumps   []int // inputs whose records are judged together
}

// Add reads one file. What can't be read or understood is an input that says so.
func (s *Set) Add(name string, open Open) {
	input := autopsy.Input{Path: name, Who: whoOf(name)}
	if err := s.add(&input, open); err != nil {
		input.Why = err.Error()
	}
	s.facts.Inputs = append(s.facts.Inputs, input)
}

// Refuse notes a file that was not read.
func (s *Set) Refuse(name, why string) {
	s.facts.Inputs = append(s.facts.Inputs, autopsy.Input{
		Path: name,
		Who:  autopsy.Nobody,
		Why:  why,
	})
}

func (s *Set) add(input *autopsy.Input, open Open) error {
	file, err := open()
	if err != nil {
		return err
	}
	defer file.Close()
	in := bufio.NewReaderSize(file, headBytes)
	head, err := in.Peek(headBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading: %w", err)
	}
	if len(bytes.TrimSpace(head)) == 0 {
		return errors.New("the file is empty")
	}
	b := begin{
		head:  head,
		guess: logs.Sniff(head),
		in:    in,
		open:  open,
	}
	for _, f := range formats {
		if f.is(b) {
			return f.read(s, input, b)
		}
	}
	return s.addText(input, in)
}

// structured reports whether a format is one of records, which a line alone does not say.
func structured(g logs.Guess) bool {
	for _, f := range []string{"JSON", "TensorBoard", "MLPerf", "DLLogger"} {
		if strings.Contains(g.Format, f) {
			return true
		}
	}
	return false
}

// addAgain reads as text what the reader of its format could not use.
func (s *Set) addAgain(input *autopsy.Input, open Open) error {
	file, err := open()
	if err != nil {
		return err
	}
	defer file.Close()
	return s.addText(input, file)
}

func isWide(head []byte) bool {
	return bytes.HasPrefix(head, []byte{0xff, 0xfe}) ||
		bytes.HasPrefix(head, []byte{0xfe, 0xff})
}

func firstLine(head []byte) string {
	for raw := range bytes.SplitSeq(head, []byte{'\n'}) {
		if text := logs.Printable(raw); text != "" {
			return clipped(text)
		}
	}
	return ""
}

// comma is where NCCL 2.28 leaves one out between members of an object.
var comma = regexp.MustCompile(`([0-9"\]}el])(\s*\n\s*")`)

const rasBytes = 64 << 20

func (s *Set) addRAS(input *autopsy.Input, in io.Reader) error {
	all, err := io.ReadAll(io.LimitReader(in, rasBytes))
	if err != nil {
		return fmt.Errorf("reading: %w", err)
	}
	input.Kind = "NCCL RAS (JSON)"
	all = comma.ReplaceAllFunc(all, func(m []byte) []byte {
		return append([]byte{m[0], ','}, m[1:]...)
	})
	var records trace.Records
	if err := records.Add(path.Base(input.Path), bytes.NewReader(all)); err != nil {
		return err
	}
	if records.RAS() == nil {
		return errors.New("it names no communicator")
	}
	input.Used = true
	for _, c := range records.RAS().Comms {
		s.addComm(input.Path, c)
	}
	return nil
}

// addComm makes calls of what RAS says of a communicator: each operation is counted by itself.
func (s *Set) addComm(file string, c trace.RASComm) {
	ops := map[string]bool{}
	for _, r := range c.Ranks {
		for op := range r.Counts {
			ops[op] = true
		}
	}
	call := func(r trace.RASRank, op string, seq int64, text string) {
		s.facts.Calls = append(s.facts.Calls, autopsy.Call{
			Rank:    r.Rank,
			Host:    r.Host,
			Group:   c.Hash,
			Op:      op,
			Seq:     seq,
			N:       1,
			Counted: op != "",
			Source:  autopsy.Source{File: file, Text: text},
		})
	}
	for op := range ops {
		for _, r := range c.Ranks {
			call(r, op, r.Counts[op], fmt.Sprintf("rank %d has launched %d of %s",
				r.Rank, r.Counts[op], op))
		}
	}
	for _, r := range c.Missing {
		call(r, "", gone, fmt.Sprintf("rank %d on %s does not answer", r.Rank, r.Host))
	}
}

func (s *Set) addRecord(input *autopsy.Input, guess logs.Guess, in io.Reader) error {
	input.Kind = guess.Format
	if err := s.records.Add(path.Base(input.Path), in); err != nil {
		return err
	}
	input.Used = true
	s.dumps = append(s.dumps, len(s.facts.Inputs))
	return nil
}

// addSeries reads a table or records of iterations. Where several columns may be meant each is a series, and
// where a unit is not given only ratios are reported.
func (s *Set) addSeries(input *autopsy.Input, open Open, head []byte) error {
	guess := logs.Sniff(head)
	input.Kind = guess.Format
	series, err := readSeries(open, logs.Want{})
	if err == nil {
		s.takeSeries(input, series, "")
		return nil
	}
	_, names, ok := headers(string(head))
	if !ok {
		return plain(err)
	}
	var taken []string
	for _, name := range names {
		m := column.Read(name)
		if m.Role != column.IterTime && m.Role != column.Time && m.Role != column.Elapsed ||
			column.Bound(name) ||
			len(taken) >= columnsMost {
			continue
		}
		want := logs.Want{Column: name}
		unit := ""
		if m.Unit == "" {
			want.Unit, unit = "s", "none"
		}
		if series, err := readSeries(open, want); err == nil {
			taken = append(taken, name)
			s.takeSeries(input, series, unit)
		}
	}
	if len(taken) == 0 {
		return plain(err)
	}
	input.Notes = append(input.Notes,
		"several columns may be meant, or one has no unit: read were "+strings.Join(taken, ", "),
	)
	return nil
}

const columnsMost = 4 // of a table that does not say which has the times

func plain(err error) error {
	text := strings.TrimPrefix(err.Error(), trace.ErrMalformed.Error()+": ")
	return errors.New(strings.TrimPrefix(text, "trace: "))
}

func readSeries(open Open, want logs.Want) (logs.Series, error) {
	file, err := open()
	if err != nil {
		return logs.Series{}, err
	}
	defer file.Close()
	return logs.Read(file, want)
}

// takeSeries makes facts of a series; unit is "none" where the file does not give one.
func (s *Set) takeSeries(input *autopsy.Input, series logs.Series, unit string) {
	input.Kind = series.Format
	input.Used = len(series.Ms) > 0
	input.Lines = len(series.Ms)
	input.Notes = series.Notes
	out := autopsy.Series{
		File: input.Path,
		Name: series.Column,
		Unit: "ms",
		Why:  series.Why,
		Who:  input.Who,
	}
	// W&B names the run
	if run, _, ok := strings.Cut(series.Column, " - "); ok && memberName.MatchString(run) {
		out.Who = autopsy.Who{Rank: -1, Host: clipped(run)}
	}
	if unit == "none" || series.Unit == "" || series.Unit == "/s" {
		out.Unit = ""
	}
	for i, v := range series.Ms {
		at := int64(-1)
		if i < len(series.Steps) {
			at = series.Steps[i]
		}
		if v > 0 {
			out.Points = append(out.Points, autopsy.Point{
				Value:     v,
				Iteration: at,
				Line:      i + 2,
			})
		}
	}
	s.facts.Series = append(s.facts.Series, out)
}

// memberName is a name that a person gives to a node.
var memberName = regexp.MustCompile(`(?i)^(?:node|host|gpu|worker)[-_.]?\w+$`)

// Facts are those of all files; the set is not used after it.
func (s *Set) Facts() *autopsy.Facts {
	s.judgeRecords()
	return &s.facts
}

// judgeRecords lets the judge of traces and dumps have the files of those kinds.
func (s *Set) judgeRecords() {
	if len(s.dumps) == 0 {
		return
	}
	file := s.facts.Inputs[s.dumps[0]].Path
	if len(s.dumps) > 1 {
		file = path.Dir(file)
	}
	source := autopsy.Source{File: file}
	timeline, ok, err := s.records.Timeline(trace.Shape{})
	switch dumps := s.records.Dumps(); {
	case err != nil:
		s.facts.Inputs[s.dumps[0]].Why = err.Error()
	case ok:
		s.facts.Verdicts = append(s.facts.Verdicts, verdictOf(
			judge.Timeline(timeline, peer.Rules{}.WithDefaults()),
			source,
		))
	case len(dumps) > 0:
		r := judge.DumpsWith(
			dumps,
			judge.Extra{Stacks: s.records.Stacks()},
			peer.Rules{}.WithDefaults(),
		)
		s.facts.Verdicts = append(s.facts.Verdicts, verdictOf(r, source))
	}
}

// verdictOf is what the judge of traces and dumps says, as a fact.
func verdictOf(r judge.TraceReport, at autopsy.Source) autopsy.Verdict {
	v := autopsy.Verdict{
		Kind:       autopsy.KindUnknown,
		Confidence: r.Confidence,
		Source:     at,
	}
	switch {
	case r.Hang != nil:
		v.Kind = autopsy.KindHang
	case len(r.Ranks) > 0:
		v.Kind = autopsy.KindSlow
	case r.Severity == 0:
		v.Kind = autopsy.KindHealthy
	}
	for _, rank := range r.Ranks {
		v.Ranks = append(v.Ranks, int(rank))
	}
	for _, e := range r.Evidence {
		if e.Against {
			v.Against = append(v.Against, e.Text)
		} else {
			v.Text = append(v.Text, e.Text)
		}
	}
	return v
}

// addText reads a text line by line: every reader of lines sees each of them.
func (s *Set) addText(input *autopsy.Input, in io.Reader) error {
	t := text{
		input:    input,
		progress: progress{file: input.Path, stepAt: -1},
		faults:   faults{file: input.Path},
		calls:    calls{file: input.Path, seq: -1},
		members:  members{file: input.Path, step: -1},
		absent:   absent{file: input.Path},
		stacks:   stacks{file: input.Path, who: input.Who},
		tests:    ncclTests{file: input.Path},
		comms:    comms{file: input.Path},
	}
	t.smi = smiTable{m: &t.members, host: input.Who.Host}
	t.rows = rows{m: &t.members}
	lines, err := eachLine(in, t.take)
	input.Lines = lines
	t.finish()
	s.takeText(input, &t)
	if err == nil && !input.Used {
		input.First = t.first
		return errors.New("no line is of a known kind")
	}
	return err
}

// text is a text that is being read.
type text struct {
	input    *autopsy.Input
	progress progress
	faults   faults
	calls    calls
	members  members
	absent   absent
	stacks   stacks
	tests    ncclTests
	comms    comms
	smi      smiTable
	rows     rows
	first    string
	quiet    time.Time // of the first line with a time since the newest of progress
}

func (t *text) take(l *line) {
	if t.first == "" {
		t.first = clipped(l.text)
	}
	if l.who.Rank < 0 {
		l.who.Rank = t.input.Who.Rank
	}
	if l.who.Host == "" {
		l.who.Host = t.input.Who.Host
	}
	if !l.time.IsZero() && t.sameClock(l.time) {
		if t.input.From.IsZero() {
			t.input.From = l.time
		}
		t.input.To = l.time
		if t.quiet.IsZero() {
			t.quiet = l.time
		}
	}
	taken := false
	for i := range lineReaders {
		if r := &lineReaders[i]; !taken || r.always {
			taken = r.take(t, l) || taken
		}
	}
}

// iteration takes a line of progress: reports that follow it are of its step.
func (t *text) iteration(l *line) bool {
	took := t.progress.take(l)
	if t.ofRank(l); !took {
		return false
	}
	t.quiet = time.Time{}
	if t.sameClock(l.time) {
		t.quiet = l.time
	}
	if t.progress.at >= 0 {
		t.members.step = t.progress.at
	}
	return true
}

// ofRank takes the values of a line that names its rank for that rank's.
func (t *text) ofRank(l *line) {
	rank := l.rank()
	if rank < 0 || len(t.members.samples) >= lineSamples {
		return
	}
	who := autopsy.Who{Rank: rank}
	for _, v := range t.progress.words.found {
		if v.what == step ||
			v.what == elapsed ||
			v.what == meanTime ||
			v.what == meanItems {
			continue
		}
		d := directionOf(v.name)
		if v.what == stepRate || v.what == items || v.what == partRate {
			d = autopsy.LessIsSlow
		}
		t.members.put(
			l,
			v.name,
			d,
			"rank",
			decimal(int64(rank)),
			who,
			t.progress.newest,
			v.value,
		)
	}
}

const lineSamples = 200_000 // values of ranks that are kept of the lines of a text

// finish ends what the readers have begun.
func (t *text) finish() {
	t.stacks.finish()
	t.faults.finish()
	t.rows.finish()
	t.tests.finish()
	t.faults.found = append(t.faults.found, t.tests.wrong...)
	t.faults.found = append(t.faults.found, t.smi.ecc...)
	t.faults.found = append(t.faults.found, t.smi.lost...)
}

// sameClock reports whether a time has a year where the first one has: others are of another clock.
func (t *text) sameClock(at time.Time) bool {
	first := t.input.From
	return first.IsZero() ||
		(first.Year() == yearless) == (at.Year() == yearless) && at.Sub(first).Abs() < logLasts
}

const logLasts = 60 * 24 * time.Hour // longer ago is a time that the line speaks of, not its own

// added adds to the facts what was found, and its kind to those of the input.
func added[T any](kinds []string, kind string, facts *[]T, found []T) []string {
	if len(found) == 0 {
		return kinds
	}
	*facts = append(*facts, found...)
	return append(kinds, kind)
}

func (s *Set) takeText(input *autopsy.Input, t *text) {
	var kinds []string
	if series, ok := t.progress.result(); ok {
		series.Who = input.Who
		s.facts.Series = append(s.facts.Series, series)
		kinds = append(kinds, "a training log")
		s.facts.Silences = append(s.facts.Silences, autopsy.Silence{
			Last:  t.progress.last,
			From:  t.quiet,
			To:    input.To,
			Usual: usual(series),
		})
	}
	kinds = added(kinds, "calls of ranks", &s.facts.Calls, t.calls.found)
	if t.calls.goOn > 0 {
		kinds = append(kinds, "calls of ranks that go on")
	}
	kinds = added(kinds, "stacks", &s.facts.Stacks, t.stacks.found)
	kinds = added(kinds, "fault lines", &s.facts.Faults, t.faults.found)
	kinds = added(kinds, "nccl-tests", &s.facts.Tests, t.tests.found)
	kinds = added(kinds, "DeepSpeed's table of collectives", &s.facts.Waits, t.comms.found)
	input.Kind = strings.Join(kinds, ", ")
	input.Used = len(kinds) > 0
	t.members.named = append(t.members.named, t.absent.named...)
	s.takeMembers(input, &t.members)
}

func (s *Set) takeMembers(input *autopsy.Input, m *members) {
	s.facts.Faults = append(s.facts.Faults, m.failed...)
	if len(m.samples)+len(m.named)+len(m.failed) == 0 {
		return
	}
	s.facts.Samples = append(s.facts.Samples, m.samples...)
	s.facts.Named = append(s.facts.Named, m.named...)
	if input.Used = true; input.Kind == "" {
		input.Kind = "a report of members"
	} else if !strings.HasPrefix(input.Kind, "a table") {
		input.Kind += ", a report of members"
	}
}

// usual is the time between two lines of progress.
func usual(s autopsy.Series) time.Duration {
	var between []time.Duration
	for i := 1; i < len(s.Points); i++ {
		d := s.Points[i].Time.Sub(s.Points[i-1].Time)
		if d > 0 && !s.Points[i-1].Time.IsZero() {
			between = append(between, d)
		}
	}
	if len(between) > 0 {
		return medianOf(between)
	}
	if s.Unit != "ms" || len(s.Points) == 0 {
		return 0
	}
	last := s.Points[len(s.Points)/2]
	return time.Duration(last.Value * float64(max(1, s.Every)) * float64(time.Millisecond))
}
