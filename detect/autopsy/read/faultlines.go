package read

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/failslow/falcon/detect/autopsy"
)

// exception is the last line of a Python traceback: a class of errors and what it says.
var exception = regexp.MustCompile(
	`^\s*(?:[\w.-]+: )?([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Timeout))(?::|$)`,
)

// follows are errors of a program that a peer's end explains.
var follows = regexp.MustCompile(
	`monitoredBarrier|mismatch between collectives|DistBackendError|DistNetworkError|DistStoreError|NCCL communicator was aborted|ncclRemoteError|` +
		`Connection (?:closed|reset)|ChildFailedError|Broken pipe|TCPStore|SignalException`,
)

// faults reads the lines that state a fault.
type faults struct {
	file   string
	trace  bool // inside a Python traceback
	raised int
	found  []autopsy.Fault
	more   map[string]int  // of the same kind, that are not kept
	root   *autopsy.Fault  // torchrun's root cause, whose lines follow
	gpu    string          // the newest that the driver named in a line of its own
	plain  map[uint64]bool // shapes of lines that have no needle
}

const (
	perKind    = 64 // faults of one kind that are kept
	tracesMost = 64
)

// take reports whether the line states one.
func (f *faults) take(l *line) bool {
	if f.rootCause(l) || f.traceback(l) {
		return true
	}
	if strings.Contains(l.text, "NVRM: The NVIDIA GPU ") {
		f.gpu = strings.TrimSuffix(driverGPU.FindString(l.text), ".0")
	}
	shape := shapeOf(l.text)
	if f.plain[shape] {
		return false
	}
	plain := true
	for i := range faultLines {
		k := &faultLines[i]
		if !strings.Contains(l.text, k.needle) {
			continue
		}
		plain = false
		m := k.form.FindStringSubmatch(l.text)
		if m == nil {
			continue
		}
		f.add(l, k, m)
		return true
	}
	if plain && len(f.plain) < shapesMost {
		if f.plain == nil {
			f.plain = map[uint64]bool{}
		}
		f.plain[shape] = true
	}
	return false
}

const shapesMost = 1 << 12 // of lines that have no needle: a hostile file may never repeat one

// shapeOf is a hash of a line without the digits of its numbers, which no needle has: lines of
// progress differ in nothing else. A digit that follows a letter is part of a word.
func shapeOf(s string) uint64 {
	h := uint64(offset64)
	letter := false
	for i := range len(s) {
		c := s[i]
		if isDigit(c) && !letter {
			continue
		}
		letter = isWord(c) || letter && isDigit(c)
		h = (h ^ uint64(c)) * prime64
	}
	return h
}

// Of FNV-1a.
const (
	offset64 = 14695981039346656037
	prime64  = 1099511628211
)

var rootField = regexp.MustCompile(`^(host|rank|exitcode|traceback|time|error_file) *: *(.*)`)

// rootCause reads torchrun's list of what failed first.
func (f *faults) rootCause(l *line) bool {
	if strings.Contains(l.body, "Root Cause (first observed failure)") {
		f.root = &autopsy.Fault{
			Kind:   "first_failure",
			Class:  autopsy.Ending,
			Who:    autopsy.Nobody,
			Source: l.source(f.file),
			Text:   "torchrun names the rank that failed first",
			Advice: seeProgram,
		}
		return true
	}
	if f.root == nil {
		return false
	}
	m := rootField.FindStringSubmatch(strings.TrimSpace(l.body))
	if m == nil {
		return strings.HasPrefix(l.body, "[")
	}
	switch word, _, _ := strings.Cut(m[2], " "); m[1] {
	case "host":
		f.root.Who.Host = clipped(word)
	case "rank":
		f.root.Who.Rank = int(whole(word, -1))
	case "exitcode":
		if f.root.Text += ": exit code " + clipped(word); word == "-9" {
			f.root.Text += ", killed from outside (often for memory)"
		}
	case "traceback":
		f.finish()
	}
	return true
}

// finish keeps a root cause that the end of the file cut.
func (f *faults) finish() {
	if f.root != nil {
		f.found = append(f.found, *f.root)
		f.root = nil
	}
}

// traceback follows a Python traceback to the line that says what was raised.
func (f *faults) traceback(l *line) bool {
	if strings.Contains(l.body, "Traceback (most recent call last)") {
		f.trace = true
		return true
	}
	if !f.trace {
		return false
	}
	m := exception.FindStringSubmatch(l.body)
	if m == nil {
		return strings.HasPrefix(l.body, "File ") || strings.Contains(l.text, `  File "`)
	}
	f.trace = false
	for i := range faultLines { // an error of CUDA, of memory or of NCCL has its own kind
		k := &faultLines[i]
		if k.class <= autopsy.Memory &&
			strings.Contains(l.text, k.needle) &&
			k.form.MatchString(l.text) {
			f.add(l, k, k.form.FindStringSubmatch(l.text))
			return true
		}
	}
	class := autopsy.Program
	if follows.MatchString(l.text) {
		class = autopsy.Consequence
	}
	if f.raised++; f.raised <= tracesMost {
		f.found = append(f.found, autopsy.Fault{
			Kind:   "exception",
			Class:  class,
			Who:    l.who,
			Time:   l.time,
			Source: l.source(f.file),
			Text:   "the program raised " + m[1],
			Advice: seeProgram,
		})
	}
	return true
}

func (f *faults) add(l *line, k *faultLine, m []string) {
	if f.more == nil {
		f.more = map[string]int{}
	}
	if f.more[k.kind]++; f.more[k.kind] > perKind {
		return
	}
	x := autopsy.Fault{
		Kind:   k.kind,
		Class:  k.class,
		Who:    l.who,
		Time:   l.time,
		Text:   k.text,
		Advice: k.advice,
		Source: l.source(f.file),
	}
	switch k.kind {
	case "xid":
		device := strings.TrimSuffix(m[1], ".0")
		if x.Who.Device = device; len(m) > 2 {
			y := xidFault(device, int(whole(m[2], 0)), x.Source)
			y.Who, y.Time = x.Who, x.Time
			x = y
		}
	case "ib_completion", "link_down":
		if i := strings.LastIndex(l.text, "hca "); k.kind == "ib_completion" && i >= 0 {
			x.Who.Device = strings.Fields(l.text[i+4:])[0]
		} else if k.kind == "link_down" {
			x.Who.Device = m[1]
		}
		x.Who.Host = ncclHost(l.text)
	case "task_ended", "task_killed", "crash", "host_oom":
		if len(m) > 2 && m[1] != "" {
			x.Who.Host = m[1]
			if n, err := strconv.Atoi(m[2]); err == nil {
				x.Who.Rank = n
			}
		}
	case "local_rank_ended": // the number within its node: the rank itself where there is one node
		x.Text = fmt.Sprintf("torchrun reports the end of local rank %s of its node, exit code %s",
			clipped(m[2]), clipped(m[1]))
		x.Who.Rank = int(whole(m[2], -1))
	case "launcher":
		if len(m) > 2 {
			x.Text = fmt.Sprintf("%s, exit code %s", x.Text, clipped(m[2]))
			x.Who.Rank = int(whole(m[1], -1))
		}
	case "node_failure": // the line of the end names the node of the script, not the one that failed
		if len(m) > 1 {
			x.Who.Host = m[1]
		}
	case "bus":
		x.Who.Device = f.gpu
	case "nvswitch", "pcie", "adapter", "amd_gpu":
		x.Who.Device = strings.TrimRight(m[1], ".:")
	case "dcgm_diag":
		x.Text += " (" + m[1] + ")"
		x.Who.Device = strings.TrimSpace(m[2])
	}
	if x.Who.Rank < 0 {
		x.Who.Rank = rankIn(l.text)
	}
	f.found = append(f.found, x)
}

var driverGPU = regexp.MustCompile(`[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d`)

// ncclHost is the host at the beginning of NCCL's "host:pid:tid [device]".
func ncclHost(s string) string {
	m := ncclLine.FindStringSubmatch(s)
	if m == nil {
		return ""
	}
	return m[1]
}

var (
	ncclLine  = regexp.MustCompile(`^(?:\S+: )?([\w.-]+):\d+:\d+ \[\d+\]`)
	rankWords = regexp.MustCompile(`\[(?:[^\]]* )?[Rr]ank ?(\d+)\]`)
)

// rankIn is the rank that a line itself names as "[Rank 3]" or "[PG ID 0 … Rank 3]", -1 = none.
func rankIn(s string) int {
	m := rankWords.FindStringSubmatch(s)
	if m == nil {
		return -1
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		return -1
	}
	return n
}
