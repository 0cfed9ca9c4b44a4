package rivals

import (
	"encoding/csv"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"github.com/failslow/falcon/backend/sim/tabletest"
	"github.com/failslow/falcon/docs/proof/evaltest"
)

var (
	jobsFlag = flag.Int("rivals-jobs", 0,
		"generated jobs of each mix, and a quarter as many stories of each kind; 0 = no table")
	seedFlag = flag.Uint64("rivals-seed", 1, "seed of what judges; what tunes has another one")
	outFlag  = flag.String("rivals-out", "", "Markdown file whose part between the rivals marks is replaced")
)

// tuneSeed is that of the data on which settings are chosen.
func tuneSeed() uint64 { return *seedFlag + 1000 }

const seriesLength = 1000

// TestRivals gives all methods the same work and writes their tables.
func TestRivals(t *testing.T) {
	if *jobsFlag == 0 {
		t.Skip("takes minutes: -rivals-jobs 40, or make rivals")
	}
	start := time.Now()
	var out strings.Builder
	section := func(title, text string) {
		if text != "" {
			fmt.Fprintf(&out, "### %s\n\n%s\n", title, text)
			t.Logf("%.0f s: %s\n%s", time.Since(start).Seconds(), title, text)
		}
	}
	jobs := judgeJobs(*jobsFlag)
	section("Jobs' iteration times", SeriesTable(jobs)+jobsNote)
	if own := rowsOf(SeriesMethods()[5], jobs)[0]; own.Score.Accuracy() < 0.98 {
		t.Errorf("%s judges %.3f of the jobs rightly: %v", own.Name, own.Score.Accuracy(), own.Score.Misses)
	}
	section("Levels in normal noise, the change-point models' own kind of data", judgeLevels(jobs))
	section("Undisturbed noise: false alarms per 20,000 iterations", judgeQuiet(t, jobs))
	section("Real records", judgeRecords(t, jobs))
	stories := judgeStories(max(2, *jobsFlag/4))
	section("Ranks and machines (an emulation)", StoryTable(stories)+storiesNote)
	if own := stories[len(stories)-1].All(); 10*own.Right < 9*own.Stories || own.Wrong > 0 {
		t.Errorf("Falcon: %+v", own)
	}
	section("Ranks and machines by kind of story: stories judged rightly", KindTable(stories))
	section(
		"Kernels of every rank, NVRx's and Megatron-LM's own kind of data: tables in which exactly the slow rank is named",
		judgeKernels(*jobsFlag),
	)
	section(
		"Metrics of machines by the second, Minder's own kind of data: streams in which exactly the machine at fault is named",
		judgeStreams(max(2, *jobsFlag/4)),
	)
	section("Real tables of workers: who is named", judgeWorkers(t))
	if *outFlag != "" {
		writePart(t, *outFlag, out.String(), time.Since(start))
	}
}

// inParallel calls do for 0 … n−1 on all processors and waits.
func inParallel(n int, do func(i int)) {
	var next atomic.Int64
	var wait sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	wait.Wait()
}

// cpuOf is the CPU time that this thread spends on do: a machine that others use too
// does not change it much.
func cpuOf(do func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	now := func() int64 {
		var ts unix.Timespec
		if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts) != nil {
			return 0
		}
		return ts.Nano()
	}
	from := now()
	do()
	return time.Duration(now() - from)
}

var mixes = []evaltest.Mix{evaltest.SingleNode(), evaltest.FourNode(), evaltest.AtScale()}

const jobsNote = "\nThe jobs are a third each of the mixes of make eval: a job is judged rightly when a report means a spell of 10 % or more, or when a healthy one has no report. Tuned settings are those with the best mean of the shares of slow and of healthy jobs judged rightly, of as many other jobs. BEAST runs on the whole buffer every 20 iterations with a twelfth of its samples; its cost is that of all its samples. A quarter of the jobs have a lasting change of up to 7 %: Falcon's adaptive verification reports those that noise lets it prove, which counts as false here.\n"

// judgeJobs gives the mixes to all methods: default, then tuned on other jobs.
func judgeJobs(jobs int) []SeriesRow {
	methods := SeriesMethods()
	total := [2][]Scores{make([]Scores, len(methods)), make([]Scores, len(methods))}
	var lock sync.Mutex
	inParallel(2*len(methods)*len(mixes)*jobs, func(i int) {
		half := i % 2
		m := i / 2 % len(methods)
		mix := i / 2 / len(methods) % len(mixes)
		job := uint64(i / 2 / len(methods) / len(mixes))
		if half == 1 && methods[m].Tries == nil {
			return
		}
		seed := *seedFlag
		if half == 1 {
			seed = tuneSeed()
		}
		s := methods[m].JudgeSeries(mixes[mix], seed, job, job+1, seriesLength)
		lock.Lock()
		defer lock.Unlock()
		if total[half][m] == nil {
			total[half][m] = Scores{}
		}
		total[half][m].Add(s)
	})
	var rows []SeriesRow
	for m, method := range methods {
		ns := seriesCost(method)
		rows = append(rows, SeriesRow{
			method.Name,
			settingText(method.Setting, method.Default, "default"),
			method.Default,
			*total[0][m][method.Default],
			ns,
		})
		if method.Tries != nil {
			best := total[1][m].Best()
			rows = append(rows, SeriesRow{
				method.Name,
				settingText(method.Setting, best, "tuned"),
				best,
				*total[0][m][best],
				ns,
			})
		}
	}
	return rows
}

func settingText(what string, value float64, how string) string {
	if what == "" {
		return how
	}
	return fmt.Sprintf("%s: %s %g", how, what, value)
}

// rowsOf are a method's rows: default, and tuned.
func rowsOf(m SeriesMethod, rows []SeriesRow) []SeriesRow {
	return slices.DeleteFunc(slices.Clone(rows), func(r SeriesRow) bool {
		return r.Name != m.Name
	})
}

// seriesCost is the CPU time of one observation.
func seriesCost(m SeriesMethod) float64 {
	jobs, n := uint64(3), seriesLength
	read := m.Read
	if m.Name == beastName {
		jobs, n = 1, 400
		read = func(ms []float64) func(float64) []evaltest.Report {
			d := DefaultReleased(DefaultBeast(), releasedEvery)
			runs := d.Runs(ms, 1)
			return func(float64) []evaltest.Report { return d.Reports(runs) }
		}
	}
	best := time.Duration(0)
	for job := range jobs {
		ms := evaltest.Generate(evaltest.SingleNode(), tuneSeed(), job, n).Ms
		if took := cpuOf(func() {
			read(ms)(m.Default)
		}); best == 0 || took < best {
			best = took
		}
	}
	return float64(best.Nanoseconds()) / float64(n)
}

// judgeLevels counts changes of levels in normal noise.
func judgeLevels(jobs []SeriesRow) string {
	methods := SeriesMethods()
	rows := make([][]RecordRow, len(methods))
	inParallel(len(methods), func(m int) {
		settings := rowsOf(methods[m], jobs)
		for _, s := range settings {
			rows[m] = append(rows[m], RecordRow{Name: s.Name, Setting: s.Setting})
		}
		for seed := range uint64(max(5, *jobsFlag/2)) {
			ms, changes := LevelSeries(*seedFlag<<20 + seed)
			read := methods[m].Read(ms)
			for i, s := range settings {
				rows[m][i].Take(len(ms), changes, nil, read(s.Value))
			}
		}
	})
	return RecordTable(slices.Concat(rows...))
}

// judgeQuiet counts reports in every class of noise.
func judgeQuiet(t *testing.T, jobs []SeriesRow) string {
	methods, classes := SeriesMethods(), append(evaltest.NoiseClasses(), recordWalks(t)...)
	var names []string
	for _, c := range classes {
		names = append(names, c.Name)
	}
	quiet := make([]map[float64]Quiet, len(methods)*len(classes))
	inParallel(len(quiet), func(i int) {
		m := i / len(classes)
		quiet[i] = methods[m].Listen(
			classes[i%len(classes)],
			*seedFlag,
			max(2, *jobsFlag/4),
			seriesLength,
		)
	})
	var rows []QuietRow
	for m, method := range methods {
		for _, s := range rowsOf(method, jobs) {
			r := QuietRow{Name: s.Name, Setting: s.Setting}
			for c := range classes {
				r.By = append(r.By, quiet[m*len(classes)+c][s.Value])
			}
			rows = append(rows, r)
		}
	}
	return QuietTable(names, rows)
}

// record is one real series with the changes that its job's schedule has.
type record struct {
	File    string `json:"file"`
	Column  string `json:"column"`
	Changes []int  `json:"changes_10pct"`
	Small   []int  `json:"changes_small"`
}

// realRecords are the labelled and the undisturbed series; nil where there are none.
func realRecords(t *testing.T) (labelled, undisturbed []record) {
	raw, err := os.ReadFile(filepath.Join(dataDir(), "iterations.json"))
	if err != nil {
		t.Logf("no real records: set FALCON_DATA to their folder: %v", err)
		return nil, nil
	}
	var all []record
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if len(r.Changes)+len(r.Small) > 0 {
			labelled = append(labelled, r)
		} else {
			undisturbed = append(undisturbed, r)
		}
	}
	return labelled, undisturbed
}

// recordWalks is noise read from the undisturbed records with an even number, on which
// the other classes are fitted.
func recordWalks(t *testing.T) []evaltest.Noise {
	_, undisturbed := realRecords(t)
	var even [][]float64
	for i := 0; i < len(undisturbed); i += 2 {
		ms := column(
			t,
			filepath.Join(dataDir(), undisturbed[i].File),
			undisturbed[i].Column,
		)
		floats.Scale(1/stat.Mean(ms, nil), ms)
		even = append(even, ms)
	}
	if even == nil {
		return nil
	}
	return []evaltest.Noise{{Name: "walks through records", Draw: evaltest.Walks(even)}}
}

// judgeRecords takes the labelled series, and of the undisturbed ones those with an odd
// number.
func judgeRecords(t *testing.T, jobs []SeriesRow) string {
	used, undisturbed := realRecords(t)
	if used == nil {
		return ""
	}
	for i := 1; i < len(undisturbed); i += 2 {
		used = append(used, undisturbed[i])
	}
	methods := SeriesMethods()
	rows := make([][]RecordRow, len(methods))
	for m := range methods {
		for _, s := range rowsOf(methods[m], jobs) {
			rows[m] = append(rows[m], RecordRow{Name: s.Name, Setting: s.Setting})
		}
	}
	series := make([][]float64, len(used))
	for i, r := range used {
		series[i] = column(t, filepath.Join(dataDir(), r.File), r.Column)
	}
	var lock sync.Mutex
	inParallel(len(methods)*len(used), func(i int) {
		m, k := i%len(methods), i/len(methods)
		read := methods[m].Read(series[k])
		for n, s := range rowsOf(methods[m], jobs) {
			reports := read(s.Value)
			lock.Lock()
			rows[m][n].Take(len(series[k]), used[k].Changes, used[k].Small, reports)
			lock.Unlock()
		}
	})
	return RecordTable(slices.Concat(rows...))
}

// column reads a column of a CSV; times since the start become differences.
func column(t *testing.T, path, name string) []float64 {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(string(raw))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	at := slices.Index(rows[0], name)
	var out []float64
	for _, row := range rows[1:] {
		v, err := strconv.ParseFloat(row[at], 64)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	if name == "ms" {
		return out
	}
	for i := len(out) - 1; i > 0; i-- {
		out[i] -= out[i-1]
	}
	return out[1:]
}

const storiesNote = "\nA name is right when it is a device, node or link of a fault: each method names what it can. Falcon was developed on this emulation, with other seeds; the rivals were not. Tuned settings are those with which most of as many other stories are judged rightly.\n"

// judgeStories plays stories to the rivals and to Falcon.
func judgeStories(each int) []StoryRow {
	methods := RankMethods()
	judged, tuning := rivalOutcomes(methods, each, uint64(0)), rivalOutcomes(methods, each, uint64(500))
	var rows []StoryRow
	cost := storyCosts(methods)
	for m, method := range methods {
		best := 0
		for i := range method.Settings() {
			if better(tuning[m][i], tuning[m][best]) {
				best = i
			}
		}
		rows = append(rows,
			StoryRow{
				method.Name,
				settingText(method.Setting, method.Default, "default"),
				method.Input,
				judged[m][0],
				cost[m],
			},
			StoryRow{
				method.Name,
				settingText(method.Setting, method.Settings()[best], "tuned"),
				method.Input,
				judged[m][best],
				cost[m],
			},
		)
	}
	for i, name := range []string{"Falcon, timing alone", "Falcon"} {
		input := "samples, and calls in windows that it asks for"
		if i == 1 {
			input += "; counters and tests"
		}
		rows = append(rows, StoryRow{
			name,
			"default",
			input,
			falconOutcomes(each, i == 1),
			falconCost(i == 1),
		})
	}
	return rows
}

// better reports whether an outcome has more stories judged rightly, or as many with
// fewer wrong and false names.
func better(a, b map[string]Outcome) bool {
	x, y := StoryRow{ByKind: a}, StoryRow{ByKind: b}
	p, q := x.All(), y.All()
	if p.Good() != q.Good() {
		return p.Good() > q.Good()
	}
	return p.Wrong+p.False < q.Wrong+q.False
}

// rivalOutcomes is by method, setting and kind.
func rivalOutcomes(methods []RankMethod, each int, from uint64) [][]map[string]Outcome {
	out := make([][]map[string]Outcome, len(methods))
	for m := range methods {
		for range methods[m].Settings() {
			out[m] = append(out[m], map[string]Outcome{})
		}
	}
	var lock sync.Mutex
	inParallel(each*len(Kinds()), func(i int) {
		kind := Kinds()[i%len(Kinds())]
		s := NewStory(kind, from+uint64(i/len(Kinds())), *seedFlag)
		named := s.PlayTo(methods)
		lock.Lock()
		defer lock.Unlock()
		for m := range methods {
			for k := range methods[m].Settings() {
				o := out[m][k][kind]
				o.Take(s, named[m][k])
				out[m][k][kind] = o
			}
		}
	})
	return out
}

func falconOutcomes(each int, counters bool) map[string]Outcome {
	out := map[string]Outcome{}
	var lock sync.Mutex
	inParallel(each*len(Kinds()), func(i int) {
		kind := Kinds()[i%len(Kinds())]
		s := NewStory(kind, uint64(i/len(Kinds())), *seedFlag)
		named := s.Falcon(counters)
		lock.Lock()
		defer lock.Unlock()
		o := out[kind]
		o.Take(s, named)
		out[kind] = o
	})
	return out
}

// storyCosts are the rivals' CPU times of one rank and iteration.
func storyCosts(methods []RankMethod) []float64 {
	s := NewStory(SlowGPU, 3, tuneSeed())
	var all []*Seen
	s.Play(func(_ int, seen *Seen) { all = append(all, seen) })
	var out []float64
	for _, m := range methods {
		take, _ := m.Watch(s, m.Default)
		took := cpuOf(func() {
			for i, seen := range all {
				take(i, seen)
			}
		})
		out = append(out, float64(took.Nanoseconds())/float64(len(all)*s.Layout.World()))
	}
	return out
}

func falconCost(counters bool) float64 {
	s := NewStory(SlowGPU, 3, tuneSeed())
	total := time.Duration(0)
	s.Meter = func(do func()) { total += cpuOf(do) }
	s.Falcon(counters)
	return float64(total.Nanoseconds()) / float64(s.To*s.Layout.World())
}

// writePart writes the part of the page that is about rivals.
func writePart(t *testing.T, path, tables string, took time.Duration) {
	t.Helper()
	stamp, err := tabletest.Stamp("../../..", "results/benchmarks.md", "rivals")
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(
		"## Detection beside the rules of others\n\n`go -C docs/proof test ./rivals -run TestRivals -rivals-jobs %d -rivals-seed %d` (`make rivals`), %.0f s on %d cores of %s, %s, commit %s, %s. The rivals are implementations of ours after their authors' words and code; `go -C docs/proof doc ./rivals` has the sources and what is simplified. All methods get the same work. Delays are in iterations; costs are CPU time of one thread. %s\n\n%s",
		*jobsFlag, *seedFlag, took.Seconds(), runtime.GOMAXPROCS(0), tabletest.Processor(),
		runtime.Version(), tabletest.Commit(), time.Now().UTC().Format(time.DateOnly), stamp,
		tables,
	)
	if err := tabletest.WritePart(path, "rivals", "make rivals", text); err != nil {
		t.Fatal(err)
	}
}
