package read

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/failslow/falcon/detect/autopsy"
)

// calls reads what PyTorch's watchdog and NCCL's RAS say of the calls that ranks are in.
type calls struct {
	file  string
	found []autopsy.Call
	group string // of RAS text: the communicator that is spoken of
	op    string
	seq   int64  // of RAS text: up to which the ranks that are listed next have launched
	goOn  int    // ranks that an agent saw go on
	begun string // a line of the watchdog that a tool broke, and goes on in the next one
}

const callsMost = 1 << 16

var (
	timedOut = regexp.MustCompile(
		`Watchdog caught collective operation timeout: WorkNCCL\((?:SeqNum=(\d+), )?OpType=(\w+)` +
			`(?:, NumelIn=(\d+), NumelOut=(\d+))?.*?\) ran for (\d+) milliseconds`,
	)
	byWatchdog = regexp.MustCompile(`detected by watchdog at work(?: sequence id)?: (\d+)`)
	lastAsked  = regexp.MustCompile(`[Ll]ast enqueued (?:NCCL )?work: (\d+)`)
	groupWords = regexp.MustCompile(`\[PG (?:ID )?(\w+)`)

	rasComm = regexp.MustCompile(`^#?(\d+-\d+) \((\w+)\) (MISMATCH|TIMEOUT|INCOMPLETE|ERROR)`)
	rasOp   = regexp.MustCompile(`ranks have different (\w+) operation counts`)
	rasSome = regexp.MustCompile(`^(\d+) ranks? ha(?:ve|s) launched up to operation (\d+)`)
	rasOne  = regexp.MustCompile(
		`^Rank (\d+) has launched up to operation (\d+)(?: -- GPU (\S+) managed by process (\d+) on node (\S+))?`,
	)
	rasName = regexp.MustCompile(`^Rank (\d+) -- GPU (\S+) managed by process (\d+) on node (\S+)`)
	rasDead = regexp.MustCompile(
		`^(?:The following )?(\d+) ranks? (?:is|are) (?:missing|unresponsive|considered dead)`,
	)
	bareRank = regexp.MustCompile(`^Rank (\d+)\b`)
)

// brokenAfter are ends of lines that some launchers' filters break in two.
var brokenAfter = []string{"collective operation timeout:", "(either an error or timeout) detected"}

// join joins a line with the part before it that was broken off, at a blank or at a terminal's width.
func (c *calls) join(l *line) *line {
	if c.begun == "" {
		return l
	}
	joined := *l
	joined.text = c.begun + strings.TrimRight(l.text, " ")
	if broken(c.begun) {
		joined.text = c.begun + " " + strings.TrimSpace(l.text)
	}
	c.begun = ""
	if timedOut.MatchString(joined.text) || byWatchdog.MatchString(joined.text) {
		return &joined
	}
	return l
}

func broken(s string) bool {
	return slices.ContainsFunc(brokenAfter, func(end string) bool {
		return strings.HasSuffix(s, end)
	})
}

// take reports whether the line says something of a call.
func (c *calls) take(l *line) bool {
	l = c.join(l)
	text := strings.TrimRight(l.text, " ")
	if broken(text) ||
		strings.Contains(text, "Watchdog caught collective") &&
			!strings.Contains(text, " before timing out") {
		c.begun = text
	}
	switch {
	case strings.Contains(l.text, "since its newest call"):
		return c.standing(l)
	case strings.Contains(l.text, "is running collective"):
		return c.fingerprints(l)
	case strings.Contains(l.text, "ProcessGroupNCCL"), strings.Contains(l.text, "atchdog"):
		return c.watchdog(l)
	case c.group != "" || strings.HasPrefix(l.body, "#"):
		return c.ras(l)
	}
	return false
}

func (c *calls) watchdog(l *line) bool {
	rank := rankIn(l.text)
	if rank < 0 {
		rank = l.who.Rank
	}
	call := autopsy.Call{
		Rank:   rank,
		Seq:    -1,
		N:      1,
		Source: l.source(c.file),
	}
	if m := groupWords.FindStringSubmatch(l.text); m != nil {
		call.Group = m[1]
	}
	if m := timedOut.FindStringSubmatch(l.text); m != nil {
		call.Op = m[2]
		call.Seq = whole(m[1], -1)
		call.Size = whole(m[3], 0)
		call.TimedMs = float64(whole(m[5], 0))
		return c.add(call)
	}
	if m := byWatchdog.FindStringSubmatch(l.text); m != nil {
		call.Seq = whole(m[1], -1)
	}
	if m := lastAsked.FindStringSubmatch(l.text); m != nil {
		call.Seq = max(call.Seq, whole(m[1], -1))
	}
	return call.Seq >= 0 && c.add(call)
}

var standingLine = regexp.MustCompile(
	`^rank (\d+) process \d+ communicator (\w+): collective (\d+), \d+ inside, ([\d.]+) s since its newest call$`,
)

// standing reads where Falcon's agents saw ranks stand: of those that go on it says nothing.
func (c *calls) standing(l *line) bool {
	m := standingLine.FindStringSubmatch(l.text)
	if m == nil {
		return false
	}
	if idle, err := strconv.ParseFloat(m[4], 64); err != nil || idle < standsFrom {
		c.goOn++
	} else {
		c.add(autopsy.Call{
			Rank:   int(whole(m[1], -1)),
			Group:  m[2],
			Seq:    whole(m[3], -1),
			N:      1,
			Source: l.source(c.file),
		})
	}
	return true
}

const standsFrom = 60 // seconds without a call: iterations of some jobs last that long

var fingerprint = regexp.MustCompile(
	`Rank (\d+) is running collective: CollectiveFingerPrint\((?:SequenceNumber=(\d+), ?)?OpType=(\w+)` +
		`(?:, ?TensorShape=\[([\d, ]*)\])?`,
)

// fingerprints reads PyTorch's check of collectives (TORCH_DISTRIBUTED_DEBUG=DETAIL).
func (c *calls) fingerprints(l *line) bool {
	found := false
	for _, m := range fingerprint.FindAllStringSubmatch(l.text, -1) {
		call := autopsy.Call{
			Rank:   int(whole(m[1], -1)),
			Seq:    whole(m[2], -1),
			Op:     m[3],
			N:      1,
			Source: l.source(c.file),
		}
		if m[4] != "" {
			call.Size = 1
			for d := range strings.SplitSeq(m[4], ",") {
				call.Size *= max(1, whole(strings.TrimSpace(d), 1))
			}
		}
		found = c.add(call) || found
	}
	return found
}

func (c *calls) add(call autopsy.Call) bool {
	if call.Rank >= 0 && len(c.found) < callsMost {
		c.found = append(c.found, call)
	}
	return call.Rank >= 0
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

func whole(s string, otherwise int64) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return otherwise
	}
	return n
}

// ras reads the text of ncclras.
func (c *calls) ras(l *line) bool {
	if m := rasComm.FindStringSubmatch(l.body); m != nil {
		c.group = m[1] + " (" + m[2] + ")"
		c.op = ""
		c.seq = -1
		return true
	}
	if m := rasOp.FindStringSubmatch(l.body); m != nil {
		c.op = m[1]
		return true
	}
	call := autopsy.Call{
		Rank:    -1,
		Group:   c.group,
		Op:      c.op,
		Counted: c.op != "",
		Source:  l.source(c.file),
	}
	if m := rasSome.FindStringSubmatch(l.body); m != nil {
		c.seq = whole(m[2], -1)
		call.Seq, call.N = c.seq, int(whole(m[1], 0))
		c.found = append(c.found, call)
		return true
	}
	if m := rasOne.FindStringSubmatch(l.body); m != nil {
		call.Rank, call.Seq, call.N, call.Host = int(whole(m[1], -1)), whole(m[2], -1), 1, m[5]
		return c.add(call)
	}
	if m := rasName.FindStringSubmatch(l.body); m != nil && c.seq >= 0 { // one of those just counted
		call.Rank, call.Seq, call.Host = int(whole(m[1], -1)), c.seq, m[4]
		return c.add(call)
	}
	if m := rasDead.FindStringSubmatch(l.body); m != nil {
		c.seq, c.op = gone, ""
		return true
	}
	if m := bareRank.FindStringSubmatch(l.body); m != nil && c.seq == gone {
		call.Rank = int(whole(m[1], -1))
		call.Seq = gone
		return c.add(call)
	}
	return false
}

// gone is the place in the order of calls of a rank that does not answer.
const gone = -2
