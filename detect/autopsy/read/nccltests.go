package read

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/failslow/falcon/detect/autopsy"
)

// ncclTests reads the output of nccl-tests: who took part, the bandwidth of the largest
// message, wrong results.
type ncclTests struct {
	file  string
	hosts []string
	op    string
	best  autopsy.Bandwidth
	found []autopsy.Bandwidth
	wrong []autopsy.Fault
}

var (
	testHost = regexp.MustCompile(`^#? *Rank +\d+ (?:Group +\d+ )?Pid +\d+ on +(\S+) device`)
	testOp   = regexp.MustCompile(`Collective test starting: (\w+)`)
	testEnd  = regexp.MustCompile(`^# *Avg bus bandwidth`)
)

// take reports whether the line is of a test.
func (t *ncclTests) take(l *line) bool {
	body := strings.TrimSpace(l.body)
	if body == "" || body[0] != '#' && !isDigit(body[0]) && !strings.HasPrefix(body, "Rank") {
		return false
	}
	if x := testHost.FindStringSubmatch(body); x != nil {
		if host := clipped(x[1]); !slices.Contains(t.hosts, host) {
			t.hosts = append(t.hosts, host)
		}
		return true
	}
	if x := testOp.FindStringSubmatch(body); x != nil {
		t.op = x[1]
		return true
	}
	if len(t.hosts) == 0 {
		return false
	}
	if testEnd.MatchString(body) {
		t.finish()
		return true
	}
	return t.row(l, body)
}

// testCells are those that end each row: time, both bandwidths and wrong results, out of place and
// in place. What stands before them (operation, root) differs between tests.
const testCells = 8

func (t *ncclTests) row(l *line, body string) bool {
	cells := strings.Fields(body)
	if len(cells) < testCells+3 || !isDigit(body[0]) {
		return false
	}
	out := cells[len(cells)-testCells:]
	size, bus, wrong := whole(cells[0], 0), out[2], out[3]
	bandwidth, err := strconv.ParseFloat(bus, 64)
	if err != nil {
		return false
	}
	if size >= t.best.Bytes {
		t.best = autopsy.Bandwidth{
			Metric: strings.TrimSpace("bus bandwidth " + t.op),
			Hosts:  t.hosts,
			Bytes:  size,
			GBs:    bandwidth,
			Source: l.source(t.file),
		}
	}
	if n := whole(wrong, 0); n > 0 && len(t.wrong) < perKind {
		t.wrong = append(t.wrong, autopsy.Fault{
			Kind:   "wrong_results",
			Class:  autopsy.Hardware,
			Who:    autopsy.Nobody,
			Source: l.source(t.file),
			Text:   fmt.Sprintf("%d results of a collective are wrong: data is corrupted", n),
			Advice: "Test the GPUs and links of these nodes one by one (dcgmi diag -r 3); take out the one that goes wrong.",
		})
	}
	return true
}

// finish keeps the test that ended.
func (t *ncclTests) finish() {
	if t.best.Bytes > 0 && len(t.found) < itemsMost {
		t.found = append(t.found, t.best)
	}
	t.best = autopsy.Bandwidth{}
	t.hosts = nil
}
