package rivals

import (
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/failslow/falcon/detect/bocd"
	"github.com/failslow/falcon/detect/trace"
)

// judgeKernels gives tables of kernels to NVRx, Megatron's rule and Falcon's rule for
// tables of workers. Tuned settings are chosen on other tables.
func judgeKernels(each int) string {
	var names []string
	for _, c := range KernelCases() {
		names = append(names, c.Name)
	}
	var rows []CaseRow
	for _, name := range []string{nvrxName, megatronName} {
		m := Method(name)
		best, most := m.Default, -1
		for _, setting := range m.Settings() {
			row := kernelCases(each, tuneSeed(), func(k [][]KernelTimes) []string {
				return KernelNames(m, setting, k)
			})
			if sum := sumOf(row.Right); sum > most {
				best, most = setting, sum
			}
		}
		for _, s := range []struct {
			how   string
			value float64
		}{{"default", m.Default}, {"tuned", best}} {
			r := kernelCases(each, *seedFlag, func(k [][]KernelTimes) []string {
				return KernelNames(m, s.value, k)
			})
			r.Name, r.Setting = name, settingText(m.Setting, s.value, s.how)
			rows = append(rows, r)
		}
	}
	r := kernelCases(each, *seedFlag, KernelWorkers)
	r.Name, r.Setting = "Falcon, table of workers", "default"
	return CaseTable(names, append(rows, r)) +
		"\nFalcon's row is what `falcon detect workers` makes of the sum of each step's compute kernels by rank.\n"
}

// kernelCases counts the tables in which exactly the slow rank is named.
func kernelCases(each int, seed uint64, named func([][]KernelTimes) []string) CaseRow {
	row := CaseRow{Of: each}
	slow := fmt.Sprint(kernelSlow)
	for _, c := range KernelCases() {
		right, wrong := 0, 0
		for n := range uint64(each) {
			got := named(c.Tables(seed<<20 + n))
			if c.Start >= 0 && slices.Equal(got, []string{slow}) ||
				c.Start < 0 && len(got) == 0 {
				right++
			} else if slices.ContainsFunc(got, func(s string) bool {
				return c.Start < 0 || s != slow
			}) {
				wrong++
			}
		}
		row.Right, row.Wrong = append(row.Right, right), append(row.Wrong, wrong)
	}
	return row
}

// judgeStreams gives Minder's own kind of streams to the Minder-like rule.
func judgeStreams(each int) string {
	var names []string
	for _, c := range StreamCases() {
		names = append(names, c.Name)
	}
	m := Method(minderName)
	settings := m.Settings()
	best, most := 0, -1
	for i, row := range streamCases(each, settings, tuneSeed()) {
		if sum := sumOf(row.Right); sum > most {
			best, most = i, sum
		}
	}
	judged := streamCases(each, settings, *seedFlag)
	var rows []CaseRow
	for _, s := range []struct {
		how string
		at  int
	}{{"default", 0}, {"tuned", best}} {
		r := judged[s.at]
		r.Name, r.Setting = minderName, settingText(m.Setting, settings[s.at], s.how)
		rows = append(rows, r)
	}
	none := CaseRow{
		Name:    "Falcon",
		Setting: "default",
		Right:   slices.Repeat([]int{-1}, len(names)),
		Wrong:   make([]int, len(names)),
	}
	return CaseTable(names, append(rows, none)) +
		"\nA fault of two minutes is shorter than the rule's four. Falcon does not read such streams: its counters confirm what timing accuses.\n"
}

func sumOf(counts []int) int {
	sum := 0
	for _, n := range counts {
		sum += n
	}
	return sum
}

// streamCases counts the streams in which a machine at fault, or none, is named, by
// threshold.
func streamCases(each int, thresholds []float64, seed uint64) []CaseRow {
	cases := StreamCases()
	rows := make([]CaseRow, len(thresholds))
	for i := range rows {
		rows[i] = CaseRow{
			Of:    each,
			Right: make([]int, len(cases)),
			Wrong: make([]int, len(cases)),
		}
	}
	var lock sync.Mutex
	inParallel(each*len(cases), func(i int) {
		at := i % len(cases)
		c := cases[at]
		all := StreamNames(
			DefaultMinder(1),
			thresholds,
			c.Samples(seed<<20+uint64(i/len(cases))),
		)
		lock.Lock()
		defer lock.Unlock()
		for k, named := range all {
			right, wrong := len(named) == 0 && c.Faulty == 0, false
			for _, n := range named {
				machine, _ := strconv.Atoi(n)
				right, wrong = right || machine < c.Faulty, wrong || machine >= c.Faulty
			}
			if wrong {
				rows[k].Wrong[at]++
			} else if right {
				rows[k].Right[at]++
			}
		}
	})
	return rows
}

// workersFile is a real table of workers' times and who is slow in it.
type workersFile struct {
	file    string
	truth   string
	key     []string // columns of a worker's name
	values  []string
	report  int     // rows to a report
	seconds float64 // of a row
}

var workersFiles = []workersFile{
	{
		"bytedance_AR.csv",
		"dp0/pp0, slowed on purpose",
		[]string{"dp", "pp"},
		[]string{"fwd_compute_ms", "bwd_compute_ms"},
		10,
		46,
	},
	{"pai_job_2.csv", "none", []string{"worker"}, []string{"batch_time_norm"}, 50, 10},
	{"pai_job_3.csv", "6, 7, 8 and 9, near the end", []string{"worker"}, []string{"batch_time_norm"}, 50, 10},
}

// judgeWorkers lists whom each method names in the real tables.
func judgeWorkers(t *testing.T) string {
	var b strings.Builder
	b.WriteString("| method |")
	for _, f := range workersFiles {
		fmt.Fprintf(&b, " %s: %s |", f.file, f.truth)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(workersFiles)) + "\n")
	for i, line := range []string{
		"NVRx, 0.75",
		"Megatron --log-straggler, 0.9",
		"Minder-like, 3",
		"Falcon, table of workers",
	} {
		fmt.Fprintf(&b, "| %s |", line)
		for _, f := range workersFiles {
			raw, err := os.ReadFile(filepath.Join(dataDir(), "workers", f.file))
			if err != nil {
				t.Logf("no real tables of workers: %v", err)
				return ""
			}
			fmt.Fprintf(&b, " %s |", cellOf(f.named(t, i, string(raw))))
		}
		b.WriteString("\n")
	}
	return b.String() +
		"\nA report is 10 steps of bytedance_AR and 50 rows of the others; for Minder's four minutes a step is the 46 s that it takes, and a row, whose length is not published, 10 s.\n"
}

// named is whom a method of judgeWorkers names.
func (f workersFile) named(t *testing.T, method int, raw string) []string {
	table := f.read(t, raw)
	switch method {
	case 0:
		return table.Names(Method(nvrxName), NvrxThreshold, f.report)
	case 1:
		return table.Names(Method(megatronName), DefaultStraggler().Below, f.report)
	case 2:
		return table.StreamNames(DefaultMinder(f.seconds))
	}
	watch := bocd.NewWorkers(bocd.DefaultTrackerConfig())
	if _, err := trace.Workers(strings.NewReader(raw), "", "", watch.Observe); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, flag := range watch.Flagged() {
		out = append(out, flag.Worker)
	}
	return out
}

func cellOf(named []string) string {
	if len(named) == 0 {
		return "none"
	}
	return strings.Join(slices.Compact(named), ", ")
}

// read reads a table by worker.
func (f workersFile) read(t *testing.T, raw string) (table WorkerTable) {
	t.Helper()
	all, err := csv.NewReader(strings.NewReader(raw)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range all[1:] {
		var name []string
		for _, k := range f.key {
			prefix := k
			if k == "worker" {
				prefix = ""
			}
			name = append(name, prefix+row[slices.Index(all[0], k)])
		}
		var values []float64
		for _, c := range f.values {
			v, err := strconv.ParseFloat(row[slices.Index(all[0], c)], 64)
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, v)
		}
		w := slices.Index(table.Workers, strings.Join(name, "/"))
		if w < 0 {
			w = len(table.Workers)
			table.Workers = append(table.Workers, strings.Join(name, "/"))
			table.Rows = append(table.Rows, nil)
		}
		table.Rows[w] = append(table.Rows[w], values)
	}
	return table
}
