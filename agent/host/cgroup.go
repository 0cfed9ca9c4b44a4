package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/failslow/falcon"
)

// growth adds up how much the largest of several counters has grown, where which
// counters there are changes from reading to reading: ranks move between cgroups.
type growth struct {
	last map[string]uint64
	sum  uint64
}

// add takes the counters' newest values. One that is new, or was reset, says nothing yet.
func (g *growth) add(now map[string]uint64) uint64 {
	most := uint64(0)
	for dir, v := range now {
		if was, seen := g.last[dir]; seen && v > was {
			most = max(most, v-was)
		}
	}
	g.last = now
	g.sum += most
	return g.sum
}

// rankGroups are the cgroups that the ranks run in, below the hierarchies' mounts: those
// that count CPU quotas, with all above them, as a quota may be on any, and those that
// count pressure. Roots of hierarchies are left out: they have no quota, and
// their pressure is the machine's.
func (p *Prober) rankGroups(pids map[falcon.Rank]int) (quota, pressure map[string]bool) {
	quota = map[string]bool{}
	pressure = map[string]bool{}
	for _, pid := range pids {
		text, err := p.readAll(p.cfg.Proc, filepath.Join(strconv.Itoa(pid), "cgroup"))
		if err != nil {
			continue // it has just ended
		}
		for line := range strings.Lines(text) {
			f := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if len(f) != 3 || !isCPUHierarchy(f[0], f[1]) {
				continue
			}
			mount := p.mountOf(f[1])
			dir := filepath.Join(mount, f[2])
			if f[1] == "" && dir != mount {
				pressure[dir] = true
			}
			for ; len(dir) > len(mount); dir = filepath.Dir(dir) {
				quota[dir] = true
			}
		}
	}
	return quota, pressure
}

// isCPUHierarchy reports whether a line of /proc/PID/cgroup is of the unified hierarchy, or of
// the older one's CPU controller.
func isCPUHierarchy(id, controllers string) bool {
	if controllers == "" {
		return id == "0"
	}
	for c := range strings.SplitSeq(controllers, ",") {
		if c == "cpu" {
			return true
		}
	}
	return false
}

// mountOf is where a hierarchy is mounted: the unified one alone, or beside the
// older ones.
func (p *Prober) mountOf(controllers string) string {
	if controllers != "" {
		return filepath.Join(p.cfg.Cgroup, controllers)
	}
	if beside := filepath.Join(p.cfg.Cgroup, "unified"); isDir(beside) {
		return beside
	}
	return p.cfg.Cgroup
}

func isDir(path string) bool {
	s, err := os.Stat(path)
	return err == nil && s.IsDir()
}

// counters reads one counter of each directory that has it.
func counters(dirs map[string]bool, read func(dir string) (uint64, error)) map[string]uint64 {
	out := map[string]uint64{}
	for dir := range dirs {
		if v, err := read(dir); err == nil {
			out[dir] = v
		}
	}
	return out
}

// ranksThrottled is for how long quotas have held the ranks, in µs: of each
// stretch that of the cgroup held longest. As long as no rank was seen in a cgroup
// below the configured one it is that one's own.
func (p *Prober) ranksThrottled(quota map[string]bool) (uint64, error) {
	if now := counters(quota, p.throttled); len(now) > 0 || p.held.last != nil {
		return p.held.add(now), nil
	}
	return p.throttled(p.cfg.Cgroup)
}

// ranksPressure is for how long a task of the ranks' cgroups waited for a CPU, in µs, likewise.
func (p *Prober) ranksPressure(groups map[string]bool) (uint64, error) {
	now := counters(groups, p.cgroupPressure)
	if len(now) > 0 || p.waited.last != nil {
		return p.waited.add(now), nil
	}
	return p.cgroupPressure(p.cfg.Cgroup)
}

// stealShare is the share of all CPUs' time since the last reading that the hypervisor
// gave to other machines.
func (p *Prober) stealShare() (float64, error) {
	text, err := p.readAll(p.cfg.Proc, "stat")
	if err != nil {
		return 0, err
	}
	stolen, all, err := stolenTicks(text)
	if err != nil {
		return 0, err
	}
	wasStolen, was := p.stolen, p.ticks
	p.stolen, p.ticks = stolen, all
	if was == 0 || all <= was || stolen < wasStolen {
		return 0, nil
	}
	return float64(stolen-wasStolen) / float64(all-was), nil
}

// stolenTicks are the stolen and all ticks in the first line of /proc/stat. Guests' time
// is in their hosts' user time already.
func stolenTicks(text string) (stolen, all uint64, err error) {
	const steal = 8
	line, _, _ := strings.Cut(text, "\n")
	f := strings.Fields(line)
	if len(f) <= steal || f[0] != "cpu" {
		return 0, 0, fmt.Errorf("%w: stat begins with %q", ErrFormat, line)
	}
	for i := 1; i <= steal; i++ {
		n, err := parseNumber("stat", f[i])
		if err != nil {
			return 0, 0, err
		}
		all += n
		stolen = n
	}
	return stolen, all, nil
}
