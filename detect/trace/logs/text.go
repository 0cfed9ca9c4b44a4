package logs

import (
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/failslow/falcon/detect/trace"
	"github.com/failslow/falcon/detect/trace/column"
)

// lineFormat describes the log line of an iteration of one framework.
type lineFormat struct {
	name   string
	family string         // shared by the formats of one framework; "" for the name
	mark   string         // text in such a line
	step   *regexp.Regexp // its first group is the iteration
	value  *regexp.Regexp // its first group is the number
	column string         // name of the column
	role   column.Role
	unit   column.Unit
	mean   bool // over the iterations since the line before
}

// The formats, those with iteration times first. A log that matches several is read
// by the first.
var lineFormats = []lineFormat{
	{
		name:   "Megatron log",
		family: "Megatron",
		mark:   "elapsed time per iteration (ms):",
		step:   regexp.MustCompile(`iteration:?\s+(\d+)\s*/`),
		value:  regexp.MustCompile(`elapsed time per iteration \(ms\):\s*([^\s|/]*)(?:[\s|/]|$)`),
		column: "elapsed time per iteration (ms)",
		role:   column.IterTime,
		unit:   "ms",
		mean:   true,
	},
	{
		name:   "Megatron-DeepSpeed log",
		family: "Megatron",
		mark:   "elapsed time per iteration (s):",
		step:   regexp.MustCompile(`iteration:?\s+(\d+)\s*/`),
		value:  regexp.MustCompile(`elapsed time per iteration \(s\):\s*([^\s|/]*)(?:[\s|/]|$)`),
		column: "elapsed time per iteration (s)",
		role:   column.IterTime,
		unit:   "s",
		mean:   true,
	},
	{
		name:   "NeMo log",
		mark:   "train_step_timing in s",
		step:   regexp.MustCompile(`\|\s*(\d+)/\d+ \[|global_step[:=]\s*(\d+)(?:\.0+)?(?:[\s,|\]]|$)`),
		value:  regexp.MustCompile(`train_step_timing in s[:=]\s*([^\s|,\]]*)(?:[\s|,\]]|$)`),
		column: "train_step_timing in s",
		role:   column.IterTime,
		unit:   "s",
	},
	{
		name:   "nanotron log",
		mark:   "elapsed_time_per_iteration_ms:",
		step:   regexp.MustCompile(`iteration:\s*(\d+)\s*/`),
		value:  regexp.MustCompile(`elapsed_time_per_iteration_ms:\s*([^\s|]*)(?:[\s|]|$)`),
		column: "elapsed_time_per_iteration_ms",
		role:   column.IterTime,
		unit:   "ms",
		mean:   true,
	},
	{
		name:   "DeepSpeed log",
		mark:   "iter time (s):",
		step:   regexp.MustCompile(`steps?[:=]\s*(\d+)`),
		value:  regexp.MustCompile(`iter time \(s\):\s*(\S*)(?:\s|$)`),
		column: "iter time (s)",
		role:   column.IterTime,
		unit:   "s",
		mean:   true,
	},
	{
		name:   "MaxText log",
		mark:   "completed step:",
		step:   regexp.MustCompile(`completed step: (\d+),`),
		value:  regexp.MustCompile(`, seconds:\s*([^\s,]*)(?:,|$)`),
		column: "seconds",
		role:   column.IterTime,
		unit:   "s",
	},
	{
		name:   "nanoGPT log",
		mark:   ", time ",
		step:   regexp.MustCompile(`\biter (\d+): loss`),
		value:  regexp.MustCompile(`, time ([^\s,]*)ms(?:,|\s|$)`),
		column: "time",
		role:   column.IterTime,
		unit:   "ms",
	},
	{
		name:   "llm.c log",
		mark:   " ms | ",
		step:   regexp.MustCompile(`^(?:.*\s)?step\s+(\d+)/\d+ \| .*loss`),
		value:  regexp.MustCompile(`\|\s*([\d.]+) ms \|`),
		column: "ms",
		role:   column.IterTime,
		unit:   "ms",
	},
	{
		name:   "nanochat log",
		mark:   "| dt: ",
		step:   regexp.MustCompile(`\bstep (\d+)/\d+`),
		value:  regexp.MustCompile(`\| dt: ([\d.]+)ms \|`),
		column: "dt",
		role:   column.IterTime,
		unit:   "ms",
	},
	{
		name:   "verl log",
		mark:   "timing_s/step:",
		step:   regexp.MustCompile(`(?:\bstep:|global_step:)(\d+)(?:\s|$)`),
		value:  regexp.MustCompile(`timing_s/step:\s*([\d.]+)(?:\s|$)`),
		column: "timing_s/step",
		role:   column.IterTime,
		unit:   "s",
	},
	{
		name:   "modded-nanogpt log",
		mark:   "train_time:",
		step:   regexp.MustCompile(`\bstep:(\d+)/`),
		value:  regexp.MustCompile(`\btrain_time:([^\s]*)ms(?:\s|$)`),
		column: "train_time",
		role:   column.Elapsed,
		unit:   "ms",
	},
	{
		name:   "torchtitan log",
		mark:   "tps:",
		step:   regexp.MustCompile(`\bstep:\s*(\d+)\s`),
		value:  regexp.MustCompile(`\btps:\s*([\d,.]+)(?:\s|$)`),
		column: "tps",
		role:   column.Items,
		mean:   true,
	},
	{
		name:   "NeMo Automodel log",
		mark:   "| tps ",
		step:   regexp.MustCompile(`\bstep (\d+) \|`),
		value:  regexp.MustCompile(`\| tps ([\d.]+)[\s(|]`),
		column: "tps",
		role:   column.Items,
		mean:   true,
	},
	{
		name:   "DeepSpeed timer log",
		mark:   "CurrSamplesPerSec=",
		step:   regexp.MustCompile(`(?:global_step=| \d+/)(\d+),`),
		value:  regexp.MustCompile(`CurrSamplesPerSec=([\d.]+)(?:,|\s|$)`),
		column: "CurrSamplesPerSec",
		role:   column.Items,
	},
}

var (
	rankPrefix = regexp.MustCompile(
		`^\s*(?:\[(?:default|rank)(\d+)\]:?|\[[\d :-]+\]\[rank-(\d+)/\d+\]|\[\d+,(\d+)\]<\w+>:?|(\d{1,6}):\s|\[(\d{1,6})\]:?\s)`,
	)
	lineDate = regexp.MustCompile(`\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d(?:[.,](\d{1,9}))?`)
)

// rankOfLine reads the rank from the prefix that launchers add to lines:
// torchrun's [default7]:, torchtitan's [rank0]:, srun's 7:, mpirun's [1,3]<stdout>:,
// Primus' [date][rank-7/8].
func rankOfLine(text string) int {
	m := rankPrefix.FindStringSubmatch(text)
	if m == nil {
		return noRank
	}
	n, err := strconv.Atoi(firstGroup(m))
	if err != nil || n >= trace.MaxWorld {
		return noRank
	}
	return n
}

func firstGroup(m []string) string {
	for _, g := range m[1:] {
		if g != "" {
			return g
		}
	}
	return ""
}

// text reads a log of any of the frameworks.
type text struct {
	frames map[string]*frame // by family
	bars   bars
	dicts  int // lines with a dictionary with a loss, as printed by Hugging Face's trainer
	last   *frame
	whole  bool
}

func readText(r io.Reader) (*frame, error) {
	t := text{frames: map[string]*frame{}, whole: true}
	if err := scanLines(r, t.addLine); err != nil {
		return nil, err
	}
	if !t.whole && t.last != nil && len(t.last.lines) > 1 {
		t.last.dropLast()
	}
	for i := range lineFormats {
		if f := t.frames[lineFormats[i].key()]; f != nil {
			f.settleRanks()
			return f, nil
		}
	}
	if f, err := t.bars.frame(); f != nil || err != nil {
		return f, err
	}
	if t.dicts > 0 {
		return nil, trace.Malformed(
			0,
			"the trainer's lines {'loss': …} have no times; keep the progress bar (10/50 [00:17<01:06, 1.67s/it]) in the log, or log the step time",
		)
	}
	return nil, trace.Malformed(
		0,
		"no line has an iteration time; give a CSV with a header, or a log with lines such as: iteration 10/ 100 | elapsed time per iteration (ms): 1234.5 |",
	)
}

func (t *text) addLine(l line) error {
	t.whole = l.whole
	t.last = nil
	for i := range lineFormats {
		if strings.Contains(l.text, lineFormats[i].mark) {
			if found, err := t.addIteration(i, l); found || err != nil {
				return err
			}
		}
	}
	if strings.HasPrefix(l.text, "{'loss'") {
		t.dicts++
	}
	return t.bars.addLine(l)
}

// addIteration reads a line in one format; found is false if it does not match.
func (t *text) addIteration(i int, l line) (found bool, err error) {
	form := &lineFormats[i]
	value := form.value.FindStringSubmatch(l.text)
	step := form.step.FindStringSubmatch(l.text)
	if value == nil || step == nil && form.role != column.IterTime {
		return false, nil
	}
	f := t.frames[form.key()]
	if f == nil {
		f = newFrame(form.name)
		f.garbles = true
		t.frames[form.key()] = f
	}
	t.last = f
	row := f.addRow(l.number, rankOfLine(l.text))
	s := f.presetColumn(form.column, form.role, form.unit)
	s.mean = form.mean
	number := value[1]
	if form.role == column.Items {
		number = strings.ReplaceAll(number, ",", "") // torchtitan's thousands separators
	}
	if err := f.setText(s, row, number, false); err != nil {
		return true, err
	}
	if step != nil {
		if err := f.setText(
			f.presetColumn("iteration", column.Step, ""),
			row,
			firstGroup(step),
			false,
		); err != nil {
			return true, err
		}
	}
	if form.role == column.Items {
		return true, f.setDate(
			f.presetColumn("date of the line", column.Clock, "s"),
			row,
			l.text,
		)
	}
	return true, nil
}

func (f *lineFormat) key() string {
	if f.family != "" {
		return f.family
	}
	return f.name
}

// setDate reads the date of a line and its resolution.
func (f *frame) setDate(s *series, row int, text string) error {
	m := lineDate.FindStringSubmatch(text)
	if m == nil {
		return nil
	}
	t, ok := readDate(m[0])
	if !ok {
		return nil
	}
	s.tick = 1
	for range m[1] {
		s.tick /= 10
	}
	s.texts++
	return f.setCell(s, row, t)
}

// settleRanks accepts numbers before lines as ranks only if they repeat: those of
// grep -n never do.
func (f *frame) settleRanks() {
	seen := map[int32]bool{}
	for _, r := range f.ranks {
		seen[r] = true
	}
	if len(seen) > 1 && len(seen) > len(f.ranks)/2 && len(f.ranks) > 2 {
		for i := range f.ranks {
			f.ranks[i] = noRank
		}
	}
}
