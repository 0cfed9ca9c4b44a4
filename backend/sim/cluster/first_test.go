package cluster

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/engine"
	"github.com/failslow/falcon/backend/journal"
	"github.com/failslow/falcon/backend/sim/tabletest"
)

var (
	first      = flag.Uint64("first", 1, "first seed")
	seeds      = flag.Int("seeds", 300, "how many seeds")
	frames     = flag.Bool("frames", false, "log every frame")
	count      = flag.Int("injections", 200, "entries of a schedule")
	only       = flag.String("kinds", "", "only these kinds of harmless injections, by commas")
	share      = flag.Float64("faults", 0.15, "share of real faults")
	keep       = flag.String("keep", "", "write what was found, shrunk, into this directory")
	linesShown = flag.Int("lines", 60, "how many lines of a story are printed")
	stories    = flag.String("stories", "testdata/*.txt", "the stories that TestFound plays")
	hashes     = flag.Bool("hashes", false, "print the hash of every run's trace")
	upset      = flag.String(
		"upsets",
		"",
		"clocks, pauses and journals too: none, all, or only these kinds, by commas; all on three seeds of four by default",
	)
	whole  = flag.Bool("whole", false, "print what was found without shrinking it")
	seeded = flag.String("seeds-kept", "",
		"file to which seeds without a finding are added as a line, so that many may be of several days")
)

// Seeds that a test plays at most; the race detector, which runs with -short,
// makes each of them many times slower.
const (
	seedsShort   = 5
	repeats      = 5 // of TestRepeats, two runs each
	repeatsShort = 1
	storiesShort = 4 // one story of so many
)

// TestMain lets the heap grow further than usual: runs are small, short-lived and
// many.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	m.Run()
}

// seedsMost is how many seeds are played, by the test's flags.
func seedsMost() int {
	if testing.Short() {
		return min(*seeds, seedsShort)
	}
	return *seeds
}

// repeatsMost is how many of them are played twice.
func repeatsMost() int {
	if testing.Short() {
		return min(*seeds, repeatsShort)
	}
	return min(*seeds, repeats)
}

// play runs a story to its end and returns the cluster, closed.
func play(t testing.TB, s story) *Cluster {
	t.Helper()
	c, err := newCluster(s.seed, s.setup)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	c.frames = *frames
	if s.judged {
		c.oracle = newOracle(c)
	}
	over := start
	for _, d := range s.injections {
		c.after(d.at, func() { c.do(d) })
		over = max(over, d.until())
	}
	c.after(start, c.lift)
	c.after(over, c.heal)
	c.run(over + settleLeast)
	if s.seed%8 == 0 || !c.judge.settled() {
		c.run(over + settleMost)
	}
	c.judge.end()
	return c
}

// shrink removes what is not needed for a violation.
func shrink(t testing.TB, s story) story {
	for size := (len(s.injections) + 1) / 2; size > 0; size /= 2 {
		for i := 0; i+size <= len(s.injections); {
			less := s
			less.injections = append(append([]injection{}, s.injections[:i]...), s.injections[i+size:]...)
			if len(play(t, less).bad) > 0 {
				s = less
			} else {
				i += size
			}
		}
	}
	return s
}

func tell(t *testing.T, c *Cluster, most int) {
	t.Helper()
	lines := c.lines[max(0, len(c.lines)-most):]
	t.Log("\n" + strings.Join(lines, "\n"))
}

// drawn is the story of a seed by the test's flags.
func drawn(seed uint64) story {
	p := plan{
		injections: *count,
		every:      4 * time.Second,
		faults:     *share,
		faultGap:   100 * time.Second,
	}
	for _, k := range harmless {
		if *only != "" && strings.Contains(","+*only+",", ","+k.kind+",") {
			p.kinds = append(p.kinds, k)
		}
	}
	s := story{
		seed:       seed,
		exitInfo:   seed%3 != 0,
		injections: schedule(seed, p),
	}
	if kinds := upsetKinds(upsetsOf(seed)); len(kinds) > 0 {
		s.injections = upsetting(seed, kinds, s.injections)
		s.alone = seed%5 == 1
		s.hosted = seed%7 == 2
		s.reuse = seed%2 == 1
	}
	if seed%2 == 0 {
		s.iterations = 200 + int64(seed%7)*100
	}
	return s
}

// upsetsOf names the kinds of upsets of a seed.
func upsetsOf(seed uint64) string {
	if *upset == "" && seed%4 != 0 {
		return "all"
	}
	return *upset
}

// TestSeeds plays random schedules, and judges what is done of the job and what is said of it. A
// seed's run depends on nothing else.
func TestSeeds(t *testing.T) {
	var sum tally
	truths := newTruths()
	began := time.Now()
	t.Run("all", func(t *testing.T) {
		shards := uint64(runtime.GOMAXPROCS(0))
		end := *first + uint64(seedsMost())
		for shard := range shards {
			t.Run(fmt.Sprint(shard), func(t *testing.T) {
				t.Parallel()
				for seed := *first + shard; seed < end; seed += shards {
					s := drawn(seed)
					s.judged = true
					c := play(t, s)
					sum.add(c)
					truths.add(t, c)
					if *hashes {
						t.Logf("seed %d: trace %s", seed, c.hash())
					}
					if len(c.bad) > 0 {
						found(t, s, c)
					}
				}
			})
		}
	})
	t.Logf("%d seeds in %v: %s", seedsMost(), time.Since(began).Round(time.Millisecond), &sum)
	sum.check(t)
	truths.check(t)
	if *seeded != "" && !t.Failed() {
		keepSeeds(t, *seeded, began)
	}
}

// What these seeds once had the console say was false: the job runs, by samples that had waited
// in the spool of an agent, in the hook's ring or in an engine that learns, or by the first beat
// of a new agent (628, 663, 894, 1009, 1824); it is finished, where its processes had left for a
// restart or for a recovery (1544, 1738, 1834), or where half of its ranks were never heard of
// again (2158, 3949); no one is asked for anything, beside a text that
// asks for a spare (1311, 1486); a person is asked about the end of processes behind what a
// recovery already says (676, 1832), or behind that the job recovers (3152). One fenced a node for a
// report of its GPU that an old journal took for new (5694).
var falseOnce = []uint64{663, 676, 894, 1009, 1311, 1544, 1738, 2158, 3152, 3949, 5694}

func TestFalseOnce(t *testing.T) {
	list := falseOnce
	if testing.Short() {
		list = list[:1]
	}
	for _, seed := range list {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s := drawn(seed)
			s.judged = true
			c := play(t, s)
			for what, text := range c.oracle.false {
				t.Errorf("%s: %s", what, text)
			}
			if len(c.bad) > 0 {
				t.Error(c.bad)
			}
		})
	}
}

// keepSeeds adds a line: which seeds, of which kinds, the commit, the day, how long they took.
func keepSeeds(t *testing.T, path string, began time.Time) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0) // a page that exists
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, "| %d to %d | %s | %s | %s | %.0f | none |\n",
		*first,
		*first+uint64(seedsMost())-1,
		cmp.Or(*upset, "drawn"),
		tabletest.Commit(),
		began.UTC().Format(time.DateOnly),
		time.Since(began).Minutes(),
	)
	if err != nil {
		t.Fatal(err)
	}
}

// tally is what all runs together have met: a test that meets nothing proves
// nothing.
type tally struct {
	mu         sync.Mutex
	time       time.Duration
	finished   int
	gaveUp     int
	resumed    int
	fences     int
	orders     map[falcon.OrderKind]int
	injections map[string]int
	struck     map[string]int // engines killed, by point
}

func (y *tally) add(c *Cluster) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.orders == nil {
		y.orders = map[falcon.OrderKind]int{}
		y.injections = map[string]int{}
		y.struck = map[string]int{}
	}
	y.time += c.now
	y.resumed += c.judge.resumed
	y.fences += c.judge.fences
	if c.job.finished {
		y.finished++
	}
	y.gaveUp += c.judge.gaveUp
	for kind, n := range c.job.orders {
		y.orders[kind] += n
	}
	for kind, n := range c.did {
		y.injections[kind] += n
	}
	for point, n := range c.struck {
		y.struck[point] += n
	}
}

func (y *tally) String() string {
	return fmt.Sprintf(
		"%.1f h of the jobs' time, %d recoveries with success, %d fences, %d jobs finished, %d given up with a sentence, orders carried out %v, injections %v, engines killed %v",
		y.time.Hours(), y.resumed, y.fences, y.finished, y.gaveUp, y.orders, y.injections, y.struck,
	)
}

// check wants every kind of injection and of order to have been met in 300 runs or more:
// fewer can miss a rare one by chance.
func (y *tally) check(t *testing.T) {
	t.Helper()
	if seedsMost() < 300 || *only != "" {
		return
	}
	for _, k := range append(slices.Clone(harmless), faulty...) {
		if y.injections[k.kind] == 0 {
			t.Errorf("no %s was met", k.kind)
		}
	}
	for _, point := range append(journal.Points(),
		engine.PointBeforeWrite,
		engine.PointAfterWrite,
		engine.PointAfterSend,
	) {
		if y.struck[point] == 0 {
			t.Errorf("no engine was killed %s", point)
		}
	}
	if y.resumed == 0 ||
		y.finished == 0 ||
		y.orders[falcon.OrderMicroBatches] == 0 ||
		y.orders[falcon.OrderPlacement] == 0 ||
		y.orders[falcon.OrderCheckpoint] == 0 {
		t.Errorf("something was never met: %s", y)
	}
}

// found prints the story of a failing seed and how to play it again.
func found(t *testing.T, s story, c *Cluster) {
	t.Helper()
	t.Errorf("seed %d: %v", s.seed, c.bad)
	if !*whole {
		s = shrink(t, s)
		c = play(t, s)
	}
	if *keep != "" {
		name := filepath.Join(*keep, fmt.Sprintf("seed%d.txt", s.seed))
		if err := os.WriteFile(
			name,
			[]byte("# "+strings.Join(c.bad, "; ")+"\n"+s.String()),
			0o600,
		); err != nil {
			t.Error(err)
		}
	}
	t.Log("\n" + s.String())
	tell(t, c, *linesShown)
	t.Logf("again: go test ./backend/sim/cluster -run TestSeeds -v -first %d -seeds 1", s.seed)
}

// TestRepeats plays seeds twice and compares the hashes of their traces.
func TestRepeats(t *testing.T) {
	for seed := *first; seed < *first+uint64(repeatsMost()); seed++ {
		s := drawn(seed)
		a := play(t, s)
		b := play(t, s)
		if a.hash() == b.hash() {
			continue
		}
		for i := range a.lines {
			if i >= len(b.lines) || a.lines[i] != b.lines[i] {
				t.Errorf("seed %d: line %d: %s\n%s",
					seed, i, a.lines[i], b.lines[min(i, len(b.lines)-1)])
				break
			}
		}
	}
}
