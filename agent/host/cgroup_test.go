package host

import (
	"fmt"
	"testing"
	"time"

	"github.com/failslow/falcon"
)

// The ranks' own cgroups are read, wherever a quota is on their way, on each arrangement of
// hierarchies; what other processes suffer in theirs is none of the ranks' trouble.
func TestReadsTheCgroupsOfTheRanks(t *testing.T) {
	for _, c := range []struct {
		name, lines, quota, pressure, other string
		unit                                string
	}{
		{
			"unified", "0::/job/pod\n", "job/cpu.stat", "job/pod/cpu.pressure", "system/cpu.stat",
			"throttled_usec %d000\n",
		},
		{
			"both", "4:cpu,cpuacct:/a/b\n2:memory:/x\n0::/a/b\n", "cpu,cpuacct/a/b/cpu.stat",
			"unified/a/b/cpu.pressure", "cpu,cpuacct/c/cpu.stat", "throttled_time %d000000\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			proc, root := t.TempDir(), t.TempDir()
			p := New(Config{Proc: proc, Cgroup: root})
			look := func(ms int) falcon.HostReading {
				write(t, proc, "7/cgroup", c.lines)
				write(t, root, c.quota, fmt.Sprintf(c.unit, ms))
				write(t, root, c.other, fmt.Sprintf(c.unit, 100*ms))
				write(t, root, c.pressure, fmt.Sprintf("some avg10=0.00 total=%d\n", 3*ms))
				return p.Read(time.Unix(1, 0), map[falcon.Rank]int{0: 7})
			}
			look(500) // what was before the first look says nothing
			if r := look(540); r.ThrottledUs != 40_000 || r.PressureUs != 120 {
				t.Errorf("throttled for %d µs, waited %d µs", r.ThrottledUs, r.PressureUs)
			}
			// it leaves for the root: nothing holds it there, and the total stays
			c.lines = "0::/\n"
			// and what the root counts is not the ranks'
			write(t, root, "cpu.stat", "throttled_usec 77777777\n")
			if r := look(600); r.ThrottledUs != 40_000 {
				t.Errorf("throttled for %d µs in the root", r.ThrottledUs)
			}
		})
	}
}

// Two cgroups are held at once: the longest counts, not their sum.
func TestGrowthIsTheLargest(t *testing.T) {
	var g growth
	g.add(map[string]uint64{"a": 10, "b": 100})
	if got := g.add(map[string]uint64{"a": 40, "b": 110, "c": 7}); got != 30 {
		t.Errorf("%d", got)
	}
	if got := g.add(map[string]uint64{"a": 5, "c": 9}); got != 32 {
		t.Errorf("%d: one was reset, one went, one has grown by 2", got)
	}
}

func TestStealSinceTheLastReading(t *testing.T) {
	proc := t.TempDir()
	p := New(Config{Proc: proc})
	for _, c := range []struct {
		line string
		want float64
	}{
		{"cpu  100 0 100 800 0 0 0 500 9 9", 0},
		{"cpu  130 0 130 820 0 0 0 520 99 9", 0.2},
		{"cpu  130 0 130 820 0 0 0 520 99 9", 0},
		{"cpu  131 0 130 820 0 0 0 10 9 9", 0},
	} {
		write(t, proc, "stat", c.line+"\ncpu0 1 1\n")
		if got, err := p.stealShare(); err != nil || got != c.want {
			t.Errorf("%q: %v %v, want %v", c.line, got, err, c.want)
		}
	}
}
