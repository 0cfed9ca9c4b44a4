package read

import (
	"regexp"
	"strings"

	"github.com/failslow/falcon/detect/autopsy"
)

// absent reads who did not come to a call of the others, where a report names them itself.
type absent struct {
	file    string
	stalled bool // Horovod's list of ranks follows
	tasks   bool // JAX's list of tasks follows
	gone    bool // NCCL's RAS lists processes that do not answer
	named   []autopsy.Named
}

var (
	horovodRank  = regexp.MustCompile(`(?:^|>:) *(\d+): ?\[`) // of the text: srun's prefix looks the same
	missingList  = regexp.MustCompile(`[Mm]issing ranks: ?[\[{]?([\d, ]+)`)
	readyList    = regexp.MustCompile(`\[ready ranks: ?([\d, ]+)\]`)
	barrierList  = regexp.MustCompile(`[Rr]anks? ([\d, ]+) failed to (?:pass|reach) monitoredBarrier`)
	aroundRank   = regexp.MustCompile(`collective calls at and around rank (\d+)`)
	culprit      = regexp.MustCompile(`Culprit rank (\d+)`)
	remoteRank   = regexp.MustCompile(`Notify record from remote rank:? \[(\d{1,6})\]`)
	taskName     = regexp.MustCompile(`^/job:\w+/replica:\d+/task:(\d+)`)
	goneProcess  = regexp.MustCompile(`^Process \d+ on node (\S+) managing GPU (\S+)`)
	inconsistent = regexp.MustCompile(`Rank (\d+) is running inconsistent collective`)
	anyNumber    = regexp.MustCompile(`\d+`)
)

// take reports whether the line names somebody.
func (a *absent) take(l *line) bool {
	switch {
	case a.stalled, strings.Contains(l.text, "tensors were submitted"),
		strings.Contains(l.text, "issing ranks"):
		return a.horovod(l)
	case a.tasks, strings.Contains(l.text, "imed out task names:"):
		return a.jax(l)
	case a.gone, strings.Contains(l.text, "considered dead"),
		strings.Contains(l.text, "Missing communicator data"):
		return a.ras(l)
	case strings.Contains(l.text, "Culprit rank"):
		return a.by(l, culprit, "the collective as the others did (PyTorch's flight recorder compared them)")
	case strings.Contains(l.text, "Notify record"):
		return a.by(l, remoteRank, "a collective of HCCL")
	case strings.Contains(l.text, "monitoredBarrier"):
		return a.by(l, barrierList, "a barrier")
	case strings.Contains(l.text, "Mismatched collective"):
		return a.by(l, aroundRank, "the collective of the others: NCCL found another one at it")
	case strings.Contains(l.text, "inconsistent collective"):
		return a.by(l, inconsistent, "the collective of the others")
	}
	return false
}

func (a *absent) by(l *line, form *regexp.Regexp, what string) bool {
	x := form.FindStringSubmatch(l.text)
	if x != nil {
		a.add(l, what, anyNumber.FindAllString(x[1], -1))
	}
	return x != nil
}

// horovod reads whom its stall inspector waits for.
func (a *absent) horovod(l *line) bool {
	body := strings.TrimSpace(l.body)
	if lists := readyList.FindAllStringSubmatch(body, -1); lists != nil {
		return a.notReady(l, lists)
	}
	if x := missingList.FindStringSubmatch(body); x != nil {
		a.add(l, "a tensor of the others", anyNumber.FindAllString(x[1], -1))
		return true
	}
	switch {
	case strings.Contains(body, "tensors were submitted"),
		strings.HasPrefix(body, "Missing ranks"), strings.HasPrefix(body, "Stalled ranks"):
		a.stalled = true
		return strings.Contains(body, "anks:")
	case a.stalled:
		if x := horovodRank.FindStringSubmatch(l.text); x != nil {
			a.add(l, "tensors of the others", x[1:2])
			return true
		}
		a.stalled = false
	}
	return false
}

// notReady reads the older form, which lists who is there: of the ranks up to the highest that the line names
// the others are missing, where they are fewer.
func (a *absent) notReady(l *line, lists [][]string) bool {
	highest := int64(0)
	for _, list := range lists {
		for _, r := range anyNumber.FindAllString(list[1], -1) {
			highest = max(highest, whole(r, 0))
		}
	}
	for _, list := range lists {
		ready := map[string]bool{}
		for _, r := range anyNumber.FindAllString(list[1], -1) {
			ready[r] = true
		}
		if 2*int64(len(ready)) <= highest+1 || highest >= worldMost {
			continue
		}
		var missing []string
		for r := range highest + 1 {
			if text := decimal(r); !ready[text] {
				missing = append(missing, text)
			}
		}
		a.add(l, "a tensor of the others", missing)
	}
	return true
}

const worldMost = 1 << 16 // ranks that a line may speak of

// jax reads the tasks that did not come to a barrier of JAX's coordination service.
func (a *absent) jax(l *line) bool {
	if !a.tasks {
		a.tasks = true
		return true
	}
	x := taskName.FindStringSubmatch(strings.TrimSpace(l.body))
	if x == nil {
		a.tasks = false
		return false
	}
	a.add(l, "a barrier of JAX", x[1:2])
	return true
}

// ras reads the processes that NCCL's RAS can't reach.
func (a *absent) ras(l *line) bool {
	x := goneProcess.FindStringSubmatch(strings.TrimSpace(l.body))
	if x != nil && len(a.named) < namedMost {
		a.named = append(a.named, autopsy.Named{
			Kind:   autopsy.KindHang,
			Metric: "NCCL's RAS can't reach its process",
			Who: autopsy.Who{
				Rank:   -1,
				Host:   clipped(x[1]),
				Device: clipped(x[2]),
			},
			Step:   -1,
			Strong: true,
			Gone:   true,
			Source: l.source(a.file),
		})
		return true
	}
	a.gone = strings.Contains(l.text, "considered dead") ||
		strings.Contains(l.text, "Missing communicator data")
	return a.gone
}

func (a *absent) add(l *line, what string, ranks []string) {
	for _, r := range ranks {
		if len(a.named) >= namedMost {
			return
		}
		a.named = append(a.named, autopsy.Named{
			Kind:   autopsy.KindHang,
			Metric: "it did not come to " + what,
			Who:    autopsy.Who{Rank: int(whole(r, -1))},
			Step:   -1,
			Strong: true,
			Source: l.source(a.file),
		})
	}
}
