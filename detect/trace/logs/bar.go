package logs

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/failslow/falcon/detect/trace/column"
)

var (
	barLine  = regexp.MustCompile(`(\d+)/(\d+) \[[\d:]+<[\d:?]+,\s*([\d.]+)(s/it|it/s)(?:[\],]|$)`)
	barEpoch = regexp.MustCompile(`(?i)\bepoch\s+(\d+)`)
)

// bars are the progress bars of a log (tqdm, Lightning), one frame for each total.
type bars struct {
	byTotal map[string]*bar
	order   []*bar
}

type bar struct {
	*frame
	total  int64
	losses int   // lines that show a loss
	epoch  int64 // of the line before, in Lightning's bars
	fallen int   // number of times the count decreased within an epoch
	count  int64
}

// addLine reads all bars of a line. Piped terminal output can have several.
func (b *bars) addLine(l line) error {
	if !strings.Contains(l.text, "s/it") && !strings.Contains(l.text, "it/s") {
		return nil
	}
	for _, at := range barLine.FindAllStringSubmatchIndex(l.text, -1) {
		m := []string{l.text[at[2]:at[3]], l.text[at[4]:at[5]], l.text[at[6]:at[7]], l.text[at[8]:at[9]]}
		if err := b.addBar(l, l.text[:at[0]], m); err != nil {
			return err
		}
	}
	return nil
}

const maxBars = 1024

func (b *bars) addBar(l line, before string, m []string) error {
	count, err1 := strconv.ParseInt(m[0], 10, 32)
	total, err2 := strconv.ParseInt(m[1], 10, 32)
	rate, err3 := strconv.ParseFloat(m[2], 64)
	if err1 != nil || err2 != nil || err3 != nil || rate <= 0 || count == 0 {
		return nil
	}
	one := b.byTotal[m[1]]
	if one == nil {
		if len(b.order) >= maxBars {
			return nil
		}
		one = newBar(total)
		if b.byTotal == nil {
			b.byTotal = map[string]*bar{}
		}
		b.byTotal[m[1]] = one
		b.order = append(b.order, one)
	}
	epoch := int64(0)
	if e := barEpoch.FindStringSubmatch(before); e != nil {
		epoch, _ = strconv.ParseInt(e[1], 10, 32)
	}
	if strings.Contains(l.text, "loss") && !strings.Contains(l.text, "eval_loss") {
		one.losses++
	}
	if epoch == one.epoch && count < one.count {
		one.fallen++
	}
	one.epoch, one.count = epoch, count
	if m[3] == "it/s" {
		rate = 1 / rate
	}
	row := one.addRow(l.number, rankOfLine(l.text))
	if err := one.setCell(one.cols[0], row, rate); err != nil {
		return err
	}
	return one.setCell(one.cols[1], row, float64(epoch*total+count))
}

func newBar(total int64) *bar {
	f := newFrame("progress bar")
	f.presetColumn(fmt.Sprintf("rate of the bar of %d", total), column.IterTime, "s")
	f.presetColumn("iteration", column.Step, "")
	f.note("the bar's rate is smoothed over about ten iterations, so changes appear late and smaller")
	return &bar{frame: f, total: total}
}

// frame is the bar of the training: the one that shows losses, or the only one
// that does not restart.
func (b *bars) frame() (*frame, error) {
	if len(b.order) == 0 {
		return nil, nil
	}
	for _, pick := range []func(*bar) bool{
		func(one *bar) bool { return one.losses > 0 },
		func(one *bar) bool { return one.fallen == 0 },
		func(*bar) bool { return true },
	} {
		var found []*bar
		for _, one := range b.order {
			if pick(one) {
				found = append(found, one)
			}
		}
		if len(found) == 1 {
			found[0].settleRanks()
			return found[0].frame, nil
		}
		if len(found) > 1 {
			if one := longestBar(found); one != nil {
				one.settleRanks()
				return one.frame, nil
			}
			return b.merged(found), nil
		}
	}
	return nil, nil
}

// longestBar is the bar that is far longer than all others, such as the training's
// among those of loading; nil if there is none.
func longestBar(bars []*bar) *bar {
	const far = 5
	sorted := slices.SortedFunc(slices.Values(bars), func(a, c *bar) int {
		return len(c.lines) - len(a.lines)
	})
	if len(sorted[0].lines) < far*len(sorted[1].lines) {
		return nil
	}
	sorted[0].note(fmt.Sprintf("%d shorter bars are left out, the longest of %d",
		len(sorted)-1, sorted[1].total))
	return sorted[0]
}

// merged combines ambiguous bars into one frame, so that a column must be chosen.
func (b *bars) merged(found []*bar) *frame {
	out := newFrame("log with progress bars")
	slices.SortFunc(found, func(a, c *bar) int {
		return int(c.total - a.total)
	})
	step := out.presetColumn("iteration", column.Step, "")
	for _, one := range found {
		s := out.presetColumn(one.cols[0].name, column.IterTime, "s")
		for row := range one.lines {
			to := out.addRow(int(one.lines[row]), int(one.ranks[row]))
			if out.setCell(s, to, one.cols[0].values[row]) != nil ||
				out.setCell(step, to, one.cols[1].values[row]) != nil {
				return out
			}
		}
	}
	out.notes = append(out.notes, found[0].notes...)
	return out
}
