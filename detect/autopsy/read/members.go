package read

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/failslow/falcon/detect/autopsy"
)

// members reads reports that frameworks write of each rank or node.
type members struct {
	file    string
	step    int64  // of the newest line of progress or of a report's head, -1 = none
	report  string // the report whose lines follow, "" = none
	section string // of the report
	round   int64
	device  string   // of nvidia-smi -q
	columns []string // of nvidia-smi dmon
	samples []autopsy.Sample
	named   []autopsy.Named
	failed  []autopsy.Fault // checks of members
}

const (
	samplesMost = 2 << 20
	namedMost   = 1 << 16
)

var (
	nvrxHead   = regexp.MustCompile(`([A-Z]\w+) (relative|individual) performance:`)
	nvrxRank   = regexp.MustCompile(`^Rank=(\d+) Node=(\S+) Score=([\d.]+)`)
	reportStep = regexp.MustCompile(`Straggler Report at Step (\d+)`)
	rankMs     = regexp.MustCompile(`^rank +(\d+): +([\d.]+)(?:ms)?$`)
	section    = regexp.MustCompile(`^([a-zA-Z][\w. -]*):$`)
	dictOf     = regexp.MustCompile(
		`(?:Round (\d+): )?The (?:node )?elapsed time(?: of nodes)? are \{([^}]*)\}`,
	)
	pairOf     = regexp.MustCompile(`(\d+): ([\d.]+)`)
	stragglers = regexp.MustCompile(`(?:stragglers? (?:are|is|ranks?)|[Ss]tragglers?):? ?\[([\d, ]+)\]`)
	slowRanks  = regexp.MustCompile(
		`(?i)(?:affected ranks|(?:straggler|slow|slowest)[a-z ]{0,12}[:=]? *(?:gpu )?ranks?)[ :=#]*[\[{]?(\d+(?:, ?\d+)*)`,
	)
	extreme   = regexp.MustCompile(`(M(?:n|x|in|ax))(\w+)/(?:Rnk|Rank): ([\d.]+)([a-zA-Z]*)/(\d+)`)
	smiGPU    = regexp.MustCompile(`^GPU ([0-9A-Fa-f]{8}:[0-9A-Fa-f:.]+)$`)
	smiReason = regexp.MustCompile(
		`^(HW Slowdown|HW Thermal Slowdown|HW Power Brake Slowdown|SW Thermal Slowdown) +: Active$`,
	)
)

// take reports whether the line is of a report.
func (m *members) take(l *line) bool {
	body := strings.TrimSpace(l.body)
	switch {
	case strings.Contains(body, "/Rnk: "), strings.Contains(body, "/Rank: "):
		return m.extremes(l)
	case strings.Contains(body, "Score="):
		return m.score(l, body)
	case strings.Contains(body, "performance:"):
		return m.head(body)
	case strings.Contains(body, "Straggler Report at Step"):
		if x := reportStep.FindStringSubmatch(body); x != nil {
			m.report, m.step, m.section = "straggler report", whole(x[1], -1), ""
		}
		return true
	case strings.Contains(body, "times across ranks"):
		m.report, m.section = "timers", ""
		return true
	case strings.Contains(body, "node elapsed time"), strings.Contains(body, "elapsed time of nodes"):
		return m.rounds(l)
	case strings.Contains(body, "traggler"), strings.Contains(body, "STRAGGLER"),
		strings.Contains(body, "low rank"), strings.Contains(body, "lowest rank"):
		return m.announced(l)
	case strings.HasPrefix(body, "# gpu"), strings.HasPrefix(body, "#gpu"), m.columns != nil:
		return m.dmon(l, body)
	case m.report != "" && m.inReport(l, body):
		return true
	case strings.HasPrefix(body, "GPU ") || m.device != "":
		return m.smi(l, body)
	}
	return false
}

func (m *members) head(body string) bool {
	x := nvrxHead.FindStringSubmatch(body)
	if x == nil {
		return false
	}
	m.report, m.section = "NVRx", x[1]+" "+x[2]+" performance"
	m.round++
	return true
}

func (m *members) score(l *line, body string) bool {
	x := nvrxRank.FindStringSubmatch(body)
	if x == nil || m.report != "NVRx" {
		return false
	}
	who := autopsy.Who{Rank: int(whole(x[1], -1)), Host: x[2]}
	m.add(l, m.section, autopsy.LessIsSlow, "rank", x[1], who, m.round, x[3])
	return true
}

// inReport reads "  section:" and "    Rank 3: 388.40ms" below a report's head.
func (m *members) inReport(l *line, body string) bool {
	low := strings.ToLower(body)
	if x := rankMs.FindStringSubmatch(low); x != nil && m.section != "" {
		m.add(
			l,
			m.section,
			directionOf(m.section),
			"rank",
			x[1],
			autopsy.Who{Rank: int(whole(x[1], -1))},
			m.step,
			x[2],
		)
		return true
	}
	if x := section.FindStringSubmatch(body); x != nil {
		m.section = x[1]
		return true
	}
	return false
}

func (m *members) rounds(l *line) bool {
	x := dictOf.FindStringSubmatch(l.body)
	if x == nil {
		return false
	}
	if m.round++; x[1] != "" {
		m.round = whole(x[1], m.round)
	}
	for _, pair := range pairOf.FindAllStringSubmatch(x[2], -1) {
		m.add(
			l,
			"time of the node check",
			autopsy.MoreIsSlow,
			"host",
			pair[1],
			autopsy.Who{Rank: -1, Host: pair[1]},
			m.round,
			pair[2],
		)
	}
	return true
}

// told reads "stragglers are: [1]".
func (m *members) announced(l *line) bool {
	x := stragglers.FindStringSubmatch(l.body)
	if x == nil {
		x = slowRanks.FindStringSubmatch(l.body)
	}
	if x == nil {
		return false
	}
	low := strings.ToLower(l.body)
	nodes := strings.Contains(low, "node") && !strings.Contains(low, "rank")
	for id := range strings.SplitSeq(x[1], ",") {
		id = strings.TrimSpace(id)
		who := autopsy.Who{Rank: int(whole(id, -1))}
		if nodes {
			who = autopsy.Who{Rank: -1, Host: id}
		}
		m.name(autopsy.Named{
			Kind:   autopsy.KindSlow,
			Metric: "straggler",
			Who:    who,
			Step:   m.step,
			Strong: true,
			Source: l.source(m.file),
		})
	}
	return true
}

// badEnds are the values of which the largest ('x') or the smallest ('n') one is bad.
var badEnds = map[string]byte{
	"Rtt":           'x',
	"FLrtt":         'x',
	"Clk":           'n',
	"RoundTripTime": 'x',
	"Clock":         'n',
	"Throughput":    'n',
}

// extremes reads Megatron's "MxRtt/Rnk: 1569.83ms/30": the rank of the least and the largest value of all.
func (m *members) extremes(l *line) bool {
	found := extreme.FindAllStringSubmatch(l.body, -1)
	good := map[string]float64{} // the other end, where the line has it
	for _, x := range found {
		v, err := strconv.ParseFloat(x[3], 64)
		if err == nil && badEnds[x[2]] != x[1][len(x[1])-1] {
			good[x[2]] = v
		}
	}
	for _, x := range found {
		v, err := strconv.ParseFloat(x[3], 64)
		if err != nil || badEnds[x[2]] != x[1][len(x[1])-1] {
			continue
		}
		m.name(autopsy.Named{
			Kind:   autopsy.KindSlow,
			Metric: x[2],
			Who:    autopsy.Who{Rank: int(whole(x[5], -1))},
			Step:   m.step,
			Value:  v,
			Other:  good[x[2]],
			Source: l.source(m.file),
		})
	}
	return true
}

func (m *members) smi(l *line, body string) bool {
	if x := smiGPU.FindStringSubmatch(body); x != nil {
		m.device = x[1]
		return true
	}
	x := smiReason.FindStringSubmatch(body)
	if x == nil {
		return false
	}
	m.name(autopsy.Named{
		Kind:   autopsy.KindSlow,
		Metric: x[1],
		Who:    autopsy.Who{Rank: -1, Device: m.device},
		Step:   -1,
		Strong: true,
		Source: l.source(m.file),
	})
	return true
}

// dmon reads nvidia-smi dmon: rows of numbers below "# gpu   pwr  …  mclk  pclk".
func (m *members) dmon(l *line, body string) bool {
	if strings.HasPrefix(body, "#") {
		names := strings.Fields(strings.TrimPrefix(body, "#"))
		if len(names) > 0 && names[0] == "gpu" {
			m.columns = names
		}
		return true
	}
	row := strings.Fields(body)
	if len(row) != len(m.columns) || !isDigit(row[0][0]) {
		return false
	}
	if row[0] == "0" {
		m.round++
	}
	for i, name := range m.columns {
		if name == "tviol" && row[i] == "1" {
			m.name(autopsy.Named{
				Kind:   autopsy.KindSlow,
				Metric: "thermal violation",
				Who:    autopsy.Who{Rank: -1, Device: row[0]},
				Step:   -1,
				Strong: true,
				Source: l.source(m.file),
			})
		}
		if name == "pclk" || name == "mclk" {
			m.add(
				l,
				name,
				autopsy.LessIsSlow,
				"device",
				row[0],
				autopsy.Who{Rank: -1, Device: row[0]},
				m.round,
				row[i],
			)
		}
	}
	return true
}

func (m *members) name(n autopsy.Named) {
	if len(m.named) < namedMost {
		m.named = append(m.named, n)
	}
}

func (m *members) add(
	l *line,
	metric string,
	d autopsy.Direction,
	by, key string,
	who autopsy.Who,
	at int64,
	value string,
) {
	v, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return
	}
	m.put(l, metric, d, by, key, who, at, v)
}

func (m *members) put(
	l *line,
	metric string,
	d autopsy.Direction,
	by, key string,
	who autopsy.Who,
	at int64,
	v float64,
) {
	if len(m.samples) >= samplesMost {
		return
	}
	m.samples = append(m.samples, autopsy.Sample{
		Metric:    metric,
		Direction: d,
		By:        by,
		Key:       key,
		Who:       who,
		Step:      at,
		Value:     v,
		Source:    l.source(m.file),
	})
}

// waits are words of times in which a rank waits for others: the last to arrive waits least.
var waits = []string{
	"recv", "send", "all-reduce", "allreduce", "all_reduce", "reduce-scatter", "reduce_scatter",
	"all-gather", "allgather",
	"all_gather", "barrier", "wait", "sync", "comm", "nccl", "broadcast",
}

// directionOf says which values of a metric are bad, by its name.
func directionOf(name string) autopsy.Direction {
	low := strings.ToLower(name)
	for _, w := range waits {
		if strings.Contains(low, w) {
			return autopsy.LeastWaits
		}
	}
	for _, w := range []string{
		"clock", "score", "throughput", "tflops", "bandwidth", "busbw", "algbw", "per_sec", "/s",
		"freq", "clk", "tps",
	} {
		if strings.Contains(low, w) {
			return autopsy.LessIsSlow
		}
	}
	return autopsy.MoreIsSlow
}
