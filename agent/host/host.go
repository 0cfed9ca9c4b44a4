// Package host reads the CPU side of one node: pressure and throttling of
// the ranks' cgroups, the run delay of each rank, the CPU time that a hypervisor
// withholds, and the load. The cgroups are those that the ranks' processes name, on
// either hierarchy, or both side by side.
//
// All are totals that only grow, in units of time, so that a reader's
// difference over a stretch is a share of it: PSI "some" (waiting for a CPU, at
// least one task), throttled_usec (held by the cgroup's quota; the number of
// throttled periods beside it says nothing of their length), and the time that
// a rank's main thread was runnable and did not run. Load and steal are the exceptions:
// the kernel's average over a minute, and the share since the last reading.
//
// It guarantees that what a kernel does not offer is named in
// HostReading.Err and never passed off as zero trouble. In a lab the node's
// emulated host share is read from the lab's state file instead of being
// inferred, and the reading says so. A rank's total goes on where another
// process takes the rank over: only what was added since the last reading counts.
// It starts no goroutines, belongs to one, and must not judge.
package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/failslow/falcon"
)

// fileBytesMax bounds what is read of one kernel file.
const fileBytesMax = 64 << 10

// loadMax is beyond any load: more is a broken file.
const loadMax = 1e9

// ErrFormat is wrapped where a kernel file is not as documented.
var ErrFormat = errors.New("host: unexpected format")

// Config is what to read; the roots are settings so that tests and
// containers can point elsewhere.
type Config struct {
	Node     falcon.Node
	Proc     string // procfs, normally /proc
	Cgroup   string // where cgroups are mounted; else the ranks' cgroup itself
	LabState string // the lab's state file; empty on a real node
	LabNode  int    // this node's index in it
	LabGPUs  int    // GPUs of this node that ranks use; 0 = all that the lab has
}

// Prober reads one node.
type Prober struct {
	cfg  Config
	cpus int

	held, waited  growth // of the ranks' cgroups
	stolen, ticks uint64 // of /proc/stat at the last reading

	delays map[int]uint64         // run delay by process at the last reading
	totals map[falcon.Rank]uint64 // run delay by rank
}

// New remembers what to read.
func New(cfg Config) *Prober {
	return &Prober{
		cfg:    cfg,
		cpus:   runtime.NumCPU(),
		delays: map[int]uint64{},
		totals: map[falcon.Rank]uint64{},
	}
}

// Read takes one reading. pids are the node's training processes by rank.
func (p *Prober) Read(now time.Time, pids map[falcon.Rank]int) falcon.HostReading {
	r := falcon.HostReading{Node: p.cfg.Node, AtNs: now.UnixNano()}
	var absent []string
	note := func(err error) {
		if err != nil {
			absent = append(absent, err.Error())
		}
	}
	var err error
	quota, groups := p.rankGroups(pids)
	r.PressureUs, err = p.ranksPressure(groups)
	note(err)
	r.ThrottledUs, err = p.ranksThrottled(quota)
	note(err)
	r.LoadPerCPU, err = p.loadPerCPU()
	note(err)
	r.RunDelayNs, err = p.runDelays(pids)
	note(err)
	if p.cfg.LabState != "" {
		r.StealShare, err = LabSteal(p.cfg.LabState, p.cfg.LabNode, p.cfg.LabGPUs)
		r.Emulated = err == nil
		note(err)
	} else {
		r.StealShare, err = p.stealShare()
		note(err)
	}
	r.Err = strings.Join(absent, "; ")
	return r
}

// cgroupPressure is a cgroup's PSI "some" total in µs: the time in which at least
// one task waited for a CPU. The system-wide file is no substitute.
func (p *Prober) cgroupPressure(dir string) (uint64, error) {
	text, err := p.readAll(dir, "cpu.pressure")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "some" {
			return parseNumber("cpu.pressure", strings.TrimPrefix(f[len(f)-1], "total="))
		}
	}
	return 0, fmt.Errorf("%w: cpu.pressure has no line \"some\"", ErrFormat)
}

// throttled is the time that a cgroup's CPU quota held its tasks, in µs:
// throttled_usec, or throttled_time (ns) on the older hierarchy.
func (p *Prober) throttled(dir string) (uint64, error) {
	text, err := p.readAll(dir, "cpu.stat")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch key {
		case "throttled_usec":
			return parseNumber("cpu.stat", value)
		case "throttled_time":
			ns, err := parseNumber("cpu.stat", value)
			return ns / 1000, err
		}
	}
	return 0, fmt.Errorf("%w: cpu.stat has no throttled time (no CPU controller here)", ErrFormat)
}

// loadPerCPU is the one-minute load over the CPUs.
func (p *Prober) loadPerCPU() (float64, error) {
	text, err := p.readAll(p.cfg.Proc, "loadavg")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(text, " ")
	v, err := strconv.ParseFloat(first, 64)
	if err != nil || !(v >= 0 && v < loadMax) {
		return 0, fmt.Errorf("%w: loadavg %q", ErrFormat, first)
	}
	return v / float64(p.cpus), nil
}

// runDelays is, per rank, how long its main thread was runnable and did not
// run, in ns. A rank whose file is gone is left out.
func (p *Prober) runDelays(pids map[falcon.Rank]int) (map[falcon.Rank]uint64, error) {
	out := make(map[falcon.Rank]uint64, len(pids))
	delays := make(map[int]uint64, len(pids))
	for rank, pid := range pids {
		if ns, err := p.runDelayOf(pid); err == nil {
			out[rank] = p.addDelay(rank, pid, ns)
			delays[pid] = ns
		}
	}
	p.delays, p.totals = delays, out
	if len(out) == 0 && len(pids) > 0 {
		return nil, errors.New("run delay: no rank's schedstat can be read")
	}
	return out, nil
}

// addDelay adds what a process was delayed since the last reading to its rank's.
func (p *Prober) addDelay(rank falcon.Rank, pid int, ns uint64) uint64 {
	sum, known := p.totals[rank]
	if !known {
		return ns
	}
	if was, seen := p.delays[pid]; seen && ns >= was {
		sum += ns - was
	}
	return sum
}

func (p *Prober) runDelayOf(pid int) (uint64, error) {
	text, err := p.readAll(p.cfg.Proc, filepath.Join(strconv.Itoa(pid), "schedstat"))
	if err != nil {
		return 0, err
	}
	f := strings.Fields(text)
	if len(f) < 2 {
		return 0, fmt.Errorf("%w: schedstat %q", ErrFormat, text)
	}
	return parseNumber("schedstat", f[1])
}

func (p *Prober) readAll(root, name string) (string, error) {
	f, err := os.Open(filepath.Join(root, name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s: absent here", filepath.Base(name))
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, fileBytesMax)
	n, err := f.Read(b)
	if n == 0 && err != nil {
		return "", fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	return string(b[:n]), nil
}

func parseNumber(what, s string) (uint64, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %s has %q where a number belongs", ErrFormat, what, s)
	}
	return n, nil
}
