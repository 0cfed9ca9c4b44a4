package kernel

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/failslow/falcon/detect/xidcode"
)

// Kind is what a line of the kernel is about.
type Kind string

// The kinds, by what they mean for a rank.
const (
	Xid      Kind = "xid"      // the GPU's driver reports an error
	Switch   Kind = "nvswitch" // so does an NVSwitch's (SXid)
	OOM      Kind = "oom"      // a process was killed for want of memory
	Crash    Kind = "crash"    // a process or the kernel itself has crashed
	PCIe     Kind = "pcie"     // a bus error
	LinkDown Kind = "link"     // a network port
	Memory   Kind = "memory"   // the host's memory or CPU
	Stuck    Kind = "stuck"    // a task or CPU does not go on
	Storage  Kind = "storage"
)

// Finding is a line that matters to training.
type Finding struct {
	Kind   Kind
	Code   int           // of Xid and Switch
	PCI    string        // address, such as 0000:3b:00; "" = none is named
	PID    int           // process that is named, 0 = none
	Since  time.Duration // boot, of the kernel's clock
	Line   string
	Fatal  bool   // the part does not go on by itself
	Text   string // what it means
	Advice string // what to do
}

// Record is one message of the kernel.
type Record struct {
	Level int // 0 to 7, by syslog
	Since time.Duration
	Text  string
}

// lineMost bounds one message.
const lineMost = 4096

// ParseRecord reads one line of /dev/kmsg, "6,339,5140900,-;text", or of dmesg,
// "[ 5.140900] text". False for what is neither, as the lines that continue a record.
func ParseRecord(line string) (Record, bool) {
	if len(line) > lineMost {
		line = line[:lineMost]
	}
	if strings.HasPrefix(line, "[") {
		return parseDmesg(line)
	}
	head, text, ok := strings.Cut(line, ";")
	if !ok {
		return Record{}, false
	}
	fields := strings.Split(head, ",")
	if len(fields) < 4 {
		return Record{}, false
	}
	level, err := strconv.ParseUint(fields[0], 10, 32)
	us, err2 := strconv.ParseUint(fields[2], 10, 64)
	if err != nil || err2 != nil || us > microsMost {
		return Record{}, false
	}
	return Record{int(level & 7), time.Duration(us) * time.Microsecond, text}, true
}

// microsMost is beyond the uptime of any machine, in microseconds: 100 years.
const microsMost = 100 * 365 * 24 * 3600 * 1_000_000

func parseDmesg(line string) (Record, bool) {
	stamp, text, ok := strings.Cut(line[1:], "]")
	s, err := strconv.ParseFloat(strings.TrimSpace(stamp), 64)
	if !ok || err != nil || !(s >= 0 && s < microsMost/1e6) {
		return Record{}, false
	}
	return Record{6, time.Duration(s * float64(time.Second)), strings.TrimPrefix(text, " ")}, true
}

// rule finds one kind of line. Groups are named: pci, code, pid.
type rule struct {
	kind         Kind
	pattern      *regexp.Regexp
	fatal        bool
	text, advice string
}

const (
	pciAddress = `(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)`
	bareNumber = `(?P<code>\d{1,5})`
)

var rules = []rule{
	{
		kind: Xid,
		pattern: regexp.MustCompile(
			`NVRM: Xid \((?:PCI:)?` + pciAddress + `\): ` + bareNumber + `(?:, pid='?(?P<pid>\d+))?`,
		),
	},
	{
		kind:    Switch,
		pattern: regexp.MustCompile(`SXid \(PCI:` + pciAddress + `\): ` + bareNumber + `, Fatal`),
		fatal:   true,
		text:    "the NVSwitch reports a fatal error",
		advice:  "All GPUs of the node are affected: drain it, restart the fabric manager or reboot.",
	},
	{
		kind:    Switch,
		pattern: regexp.MustCompile(`SXid \(PCI:` + pciAddress + `\): ` + bareNumber),
		text:    "the NVSwitch reports an error that it has corrected or contained",
		advice:  "Watch it; have the switch and its links checked where it comes again.",
	},
	{
		kind: OOM,
		pattern: regexp.MustCompile(
			`(?:Out of memory|Memory cgroup out of memory): Kill(?:ed)? process (?P<pid>\d+)`,
		),
		text:   "a process was killed for want of memory of the host",
		advice: "Look for what used the memory: data workers, pinned buffers, a checkpoint; raise the limit of the job's cgroup or use fewer workers.",
	},
	{
		kind: Crash,
		pattern: regexp.MustCompile(
			`\[(?P<pid>\d+)\]: segfault at|traps: \S+\[(?P<pid>\d+)\] (?:trap|general protection)`,
		),
		text:   "a process has crashed",
		advice: "Look at its last lines and its core file.",
	},
	{
		kind:    Crash,
		pattern: regexp.MustCompile(`Kernel panic|BUG: unable to handle|Oops:|general protection fault`),
		fatal:   true,
		text:    "the kernel has crashed",
		advice:  "Take the node out and keep its crash dump.",
	},
	{
		kind: PCIe,
		pattern: regexp.MustCompile(
			`AER:.*(?:Uncorrect\w*|[Ff]atal).*?` + pciAddress + `|` + pciAddress +
				`: PCIe Bus Error: severity=Uncorrect`,
		),
		text:   "an uncorrected PCIe error",
		advice: "Check seating, cables and risers of the device; take the node out where it comes again.",
	},
	{
		kind: PCIe,
		pattern: regexp.MustCompile(
			`AER:.*Correct\w* error.*?` + pciAddress + `|` + pciAddress +
				`: PCIe Bus Error: severity=Correct`,
		),
		text:   "a corrected PCIe error: the bus sent again",
		advice: "Many of them make a device slow: check its link's width and speed (lspci -vv), and its seating.",
	},
	{
		kind: PCIe,
		pattern: regexp.MustCompile(
			pciAddress + `:? .*(?:limited by|link is degraded|Slot\(.*\): Link Down|surprise down)`,
		),
		text:   "a device's PCIe link went down or is narrower than it could be",
		advice: "Check its seating; compare lspci -vv with another node.",
	},
	{
		kind: LinkDown,
		pattern: regexp.MustCompile(
			`(?i)(?:mlx[45]|bnxt|i40e|ice|ena|ib|efa|irdma|ionic)\w*.*(?:link (?:is )?down|cable unplugged|port module event.*error|health compromised|device's health|fatal error)`,
		),
		text:   "a network port went down or its card reports an error",
		advice: "Check cable, transceiver and the switch's port.",
	},
	{
		kind:    LinkDown,
		pattern: regexp.MustCompile(`(?i)NIC link is down|\bLink is Down\b`),
		text:    "a network port went down",
		advice:  "Check cable, transceiver and the switch's port.",
	},
	{
		kind: Memory,
		pattern: regexp.MustCompile(
			`EDAC .*\bUE\b|mce: \[Hardware Error\]|Hardware Error.*[Uu]ncorrected|Machine Check Exception`,
		),
		text:   "a hardware error of the host's memory or CPU",
		advice: "Take the node out at the next stop; replace the memory module that the line names.",
	},
	{
		kind:    Memory,
		pattern: regexp.MustCompile(`EDAC .*\bCE\b`),
		text:    "a corrected error of the host's memory",
		advice:  "Watch it; replace the module where errors are many.",
	},
	{
		kind:    Stuck,
		pattern: regexp.MustCompile(`INFO: task \S+:(?P<pid>\d+) blocked for more than`),
		text:    "a process waits in the kernel for minutes, most often for a file system",
		advice:  "Look at storage and at the process's stack.",
	},
	{
		kind:    Stuck,
		pattern: regexp.MustCompile(`soft lockup|hard LOCKUP|rcu: INFO: rcu_\w+ (?:self-)?detected stall`),
		text:    "a CPU did not go on for seconds",
		advice:  "Look for firmware, virtual machine or driver trouble of the node.",
	},
	{
		kind: Storage,
		pattern: regexp.MustCompile(
			`I/O error, dev|nfs: server \S+ not responding|LustreError|nvme\S*: .*(?:controller is down|timeout)`,
		),
		text:   "storage does not answer or reports an error",
		advice: "Checkpoints and data may hang: look at the storage.",
	},
}

// Classify reports whether a message matters to training, and what it means.
func Classify(r Record) (Finding, bool) {
	for i := range rules {
		m := rules[i].pattern.FindStringSubmatch(r.Text)
		if m == nil {
			continue
		}
		f := Finding{
			Kind:   rules[i].kind,
			Since:  r.Since,
			Line:   r.Text,
			Fatal:  rules[i].fatal,
			Text:   rules[i].text,
			Advice: rules[i].advice,
		}
		for g, name := range rules[i].pattern.SubexpNames() {
			f.take(name, m[g])
		}
		if f.Kind == Xid {
			x := xidcode.Of(f.Code)
			f.Fatal = x.Fatal
			f.Text = "Xid " + strconv.Itoa(f.Code) + ": " + x.Text
			f.Advice = x.Advice
		}
		return f, true
	}
	return Finding{}, false
}

// take takes a group of a pattern; of several of one name the one that matched.
func (f *Finding) take(name, value string) {
	if value == "" {
		return
	}
	n, _ := strconv.ParseInt(value, 10, 32) // out of range: 0
	switch name {
	case "pci":
		f.PCI = strings.ToLower(value)
	case "code":
		f.Code = int(n)
	case "pid":
		f.PID = int(n)
	}
}
