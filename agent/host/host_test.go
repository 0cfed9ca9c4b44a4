package host

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon"
)

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const (
	pressureText = "some avg10=0.00 avg60=0.10 avg300=0.02 total=123456\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=999\n"
	statText     = "usage_usec 9\nuser_usec 5\nnr_periods 7\nnr_throttled 3\nthrottled_usec 4567\n"
)

func TestReadsTheKernelsFiles(t *testing.T) {
	proc := t.TempDir()
	group := t.TempDir()
	write(t, group, "cpu.pressure", pressureText)
	write(t, group, "cpu.stat", statText)
	write(t, proc, "loadavg", "3.00 2.00 1.00 2/345 678\n")
	write(t, proc, "41/schedstat", "1000 222 5\n")
	write(t, proc, "stat", "cpu  1 2 3 4 5 6 7 8 0 0\n")
	p := New(Config{Node: "n1", Proc: proc, Cgroup: group})
	p.cpus = 4
	now := time.Unix(50, 0)
	got := p.Read(now, map[falcon.Rank]int{3: 41, 4: 42})
	if got.PressureUs != 123456 ||
		got.ThrottledUs != 4567 ||
		got.LoadPerCPU != 0.75 ||
		got.AtNs != now.UnixNano() ||
		got.Node != "n1" {
		t.Fatalf("reading %+v", got)
	}
	if len(got.RunDelayNs) != 1 ||
		got.RunDelayNs[3] != 222 ||
		got.Err != "" ||
		got.Emulated ||
		got.StealShare != 0 {
		t.Fatalf("reading %+v", got)
	}
}

// Two processes exchange their ranks: each rank's total goes on from where it
// was, whatever the other process had gathered.
func TestRunDelayGoesOnWithTheRank(t *testing.T) {
	dir := t.TempDir()
	p := New(Config{Proc: dir})
	look := func(a, b string, pids map[falcon.Rank]int, want0, want1 uint64) {
		t.Helper()
		write(t, dir, "7/schedstat", "1 "+a+" 3\n")
		write(t, dir, "8/schedstat", "1 "+b+" 3\n")
		got, err := p.runDelays(pids)
		if err != nil || got[0] != want0 || got[1] != want1 {
			t.Fatalf("run delays %v, %v", got, err)
		}
	}
	look("1000", "5", map[falcon.Rank]int{0: 7, 1: 8}, 1000, 5)
	look("1010", "6", map[falcon.Rank]int{0: 7, 1: 8}, 1010, 6)
	look("1040", "9", map[falcon.Rank]int{0: 8, 1: 7}, 1013, 36)
	look(
		"40",
		"10",
		map[falcon.Rank]int{0: 8, 1: 7},
		1014,
		36,
	) // the number was used again
	look("50", "10", map[falcon.Rank]int{0: 8, 1: 7}, 1014, 46)
}

func TestOldHierarchyCountsNanoseconds(t *testing.T) {
	group := t.TempDir()
	write(t, group, "cpu.stat", "nr_periods 7\nnr_throttled 3\nthrottled_time 4567000\n")
	if us, err := New(Config{}).throttled(group); us != 4567 || err != nil {
		t.Fatalf("%d %v", us, err)
	}
}

// What the kernel does not offer is named: zero would say "no trouble".
func TestAbsentFilesAreNamed(t *testing.T) {
	got := New(Config{
		Proc:     t.TempDir(),
		Cgroup:   t.TempDir(),
		LabState: "/nonexistent",
	}).Read(time.Unix(1, 0), map[falcon.Rank]int{0: 1})
	for _, say := range []string{
		"cpu.pressure: absent", "cpu.stat: absent", "loadavg: absent", "run delay", "lab state",
	} {
		if !strings.Contains(got.Err, say) {
			t.Errorf("%q lacks %q", got.Err, say)
		}
	}
	if got.Emulated || got.RunDelayNs != nil {
		t.Fatalf("reading %+v", got)
	}
}

func TestStrangeFilesAreNamed(t *testing.T) {
	for name, text := range map[string]string{
		"cpu.pressure": "some avg10=0.00 total=many\n", "cpu.stat": "usage_usec 4\n",
		"loadavg": "high\n", "stat": "intr 5\n", "7/schedstat": "1\n",
	} {
		dir := t.TempDir()
		write(t, dir, name, text)
		p := New(Config{Proc: dir, Cgroup: dir})
		var err error
		switch name {
		case "cpu.pressure":
			_, err = p.cgroupPressure(dir)
		case "cpu.stat":
			_, err = p.throttled(dir)
		case "stat":
			_, err = p.stealShare()
		case "loadavg":
			_, err = p.loadPerCPU()
		default:
			_, err = p.runDelayOf(7)
		}
		if !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// labFile is a state file of 2 nodes with 2 GPUs each and these host shares.
func labFile(t *testing.T, shares map[int]float64) string {
	t.Helper()
	b := make([]byte, gpuOffset+nodesMax*gpusMax*gpuBytes)
	le := binary.LittleEndian
	le.PutUint64(b, stateMagic)
	le.PutUint32(b[8:], stateVersion)
	le.PutUint32(b[12:], 2)
	le.PutUint32(b[16:], 2)
	for node := range 2 {
		for gpu := range 2 {
			share, ok := shares[10*node+gpu]
			if !ok {
				share = 1
			}
			le.PutUint64(b[gpuOffset+(node*8+gpu)*256+8:], math.Float64bits(share))
		}
	}
	path := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLabSteal(t *testing.T) {
	path := labFile(t, map[int]float64{11: 0.25})
	for _, c := range []struct {
		node, gpus int
		want       float64
	}{{0, 0, 0}, {1, 0, 0.75}, {1, 1, 0}, {1, 2, 0.75}} {
		if got, err := LabSteal(path, c.node, c.gpus); err != nil || got != c.want {
			t.Errorf("node %d, %d GPUs: %v %v, want %v", c.node, c.gpus, got, err, c.want)
		}
	}
	got := New(Config{LabState: path, LabNode: 1}).Read(time.Unix(1, 0), nil)
	if !got.Emulated || got.StealShare != 0.75 {
		t.Fatalf("reading %+v", got)
	}
}

func TestBadLabFiles(t *testing.T) {
	good := labFile(t, nil)
	short := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(short, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, try := range map[string]func() (float64, error){
		"absent":     func() (float64, error) { return LabSteal("/nonexistent", 0, 0) },
		"short":      func() (float64, error) { return LabSteal(short, 0, 0) },
		"wrong node": func() (float64, error) { return LabSteal(good, 2, 0) },
		"below zero": func() (float64, error) { return LabSteal(good, -1, 0) },
		"wrong share": func() (float64, error) {
			return LabSteal(labFile(t, map[int]float64{0: math.NaN()}), 0, 0)
		},
	} {
		if _, err := try(); !errors.Is(err, ErrLab) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzHostFiles(f *testing.F) {
	f.Add(pressureText)
	f.Add(statText)
	f.Add("0.5 1 2\n")
	f.Add("NaN 1 2\n")
	f.Fuzz(func(t *testing.T, text string) {
		dir := t.TempDir()
		for _, name := range []string{"cpu.pressure", "cpu.stat", "loadavg", "1/schedstat"} {
			write(t, dir, name, text)
		}
		got := New(Config{Proc: dir, Cgroup: dir}).Read(time.Unix(1, 0), map[falcon.Rank]int{0: 1})
		if got.LoadPerCPU < 0 || math.IsNaN(got.LoadPerCPU) {
			t.Fatalf("load %v of %q", got.LoadPerCPU, text)
		}
	})
}

func FuzzLabSteal(f *testing.F) {
	f.Add([]byte("short"), 0)
	head := make([]byte, 64)
	binary.LittleEndian.PutUint64(head, stateMagic)
	binary.LittleEndian.PutUint32(head[8:], stateVersion)
	binary.LittleEndian.PutUint32(head[12:], 64)
	binary.LittleEndian.PutUint32(head[16:], 8)
	f.Add(head, 63)
	f.Fuzz(func(t *testing.T, head []byte, node int) {
		b := make([]byte, gpuOffset+nodesMax*gpusMax*gpuBytes)
		copy(b, head)
		path := filepath.Join(t.TempDir(), "state")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := LabSteal(path, node, 0)
		if err != nil && !errors.Is(err, ErrLab) {
			t.Fatalf("error %v", err)
		}
		if err == nil && !(got >= 0 && got <= 1) {
			t.Fatalf("steal %v", got)
		}
	})
}
