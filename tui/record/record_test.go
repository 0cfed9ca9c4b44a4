package record

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon/backend/api/columns"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

var start = time.Date(2026, 11, 21, 14, 0, 0, 0, time.UTC)

// job makes the pictures of a job whose ranks differ a little in every
// iteration, as real ones do.
type job struct {
	rng   *rand.Rand
	ranks []*falconv1.RankView
	iter  int64
	lines []*falconv1.EventLine
}

func newJob(ranks int) *job {
	j := &job{rng: rand.New(rand.NewPCG(1, 2))}
	for r := range ranks {
		j.ranks = append(j.ranks, &falconv1.RankView{
			Rank:       int32(r),
			Device:     fmt.Sprintf("n%d.g%d", r/8, r%8),
			Health:     falconv1.RankHealth_RANK_HEALTH_OK,
			SmClockMhz: 1980,
		})
	}
	return j
}

// next is the picture an iteration later.
func (j *job) next(at time.Time) *feed.State {
	j.iter++
	ranks := make([]*falconv1.RankView, len(j.ranks))
	for r, was := range j.ranks {
		v := proto.CloneOf(was)
		v.Ms = 2000 * (1 + 0.01*j.rng.NormFloat64())
		v.Slowdown, v.Iteration, v.Probability = v.Ms/2000-1, j.iter, 0.002*j.rng.Float64()
		v.TemperatureC = uint32(60 + j.rng.IntN(3))
		ranks[r] = v
	}
	j.ranks = ranks
	if j.iter%10 == 0 {
		j.lines = append(append([]*falconv1.EventLine(nil), j.lines...), &falconv1.EventLine{
			Seq:       uint64(j.iter),
			Kind:      "agent",
			Text:      "n1 attached",
			Iteration: j.iter,
		})
	}
	table := columns.Of(len(ranks), ranks)
	s := &falconv1.SnapshotReply{
		Version:  uint64(j.iter),
		EngineId: "e",
		AtUnixNs: at.UnixNano(),
		Series:   j.series(),
		Job: &falconv1.Job{
			Name:        "gpt",
			World:       int32(len(ranks)),
			Dp:          int32(len(ranks)),
			Iteration:   j.iter,
			IterationMs: 2000 + j.rng.Float64(),
			State:       "steady",
		},
	}
	for n := range (len(ranks) + 7) / 8 {
		s.Nodes = append(s.Nodes, &falconv1.NodeView{
			Node:      fmt.Sprintf("n%d", n),
			Connected: true,
			AgeMs:     int64(j.rng.IntN(1000)),
		})
	}
	if j.iter >= 30 {
		s.Incidents = []*falconv1.Incident{{Id: "INC-0001", State: "verified"}}
		s.Ladder = &falconv1.Ladder{Incident: "INC-0001", ImpactMs: float64(j.iter)}
	}
	out := &feed.State{
		Snap:     s,
		Columns:  table,
		Events:   j.lines,
		Conn:     feed.Live,
		Since:    start,
		Received: at,
	}
	for n := j.iter / 20; n > 0; n-- {
		out.Validations = append(out.Validations, &falconv1.Validation{
			Id:    fmt.Sprintf("VAL-%04d", n),
			State: "done",
		})
	}
	return out
}

func (j *job) series() *falconv1.Series {
	const columns, rows = 60, 32
	s := &falconv1.Series{
		FirstIteration: max(0, j.iter-columns+1),
		RunLengths:     rows,
		Threshold:      0.9,
	}
	for i := s.FirstIteration; i <= j.iter; i++ {
		s.Ms = append(s.Ms, float32(2000+i%7))
		s.Probability = append(s.Probability, 0.01)
		s.MapRunLength = append(s.MapRunLength, int32(i))
		for r := range rows {
			s.Posterior = append(s.Posterior, float32(r)/float32(i+1))
		}
	}
	return s
}

// recorded writes n pictures of a job, a second apart, and returns them.
func recorded(t testing.TB, path string, o Options, j *job, n int) ([]*feed.State, Sum) {
	t.Helper()
	at := start
	o.Now = func() time.Time { return at }
	w, err := Create(path, o)
	if err != nil {
		t.Fatal(err)
	}
	var live []*feed.State
	for range n {
		at = at.Add(time.Second)
		live = append(live, j.next(at))
		w.Record(live[len(live)-1])
		for len(w.queue) > 0 { // the clock is the writer's too
			time.Sleep(time.Microsecond)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return live, w.Sum()
}

// alike compares all but the chances exactly.
func alike(t *testing.T, got, want *feed.State) {
	t.Helper()
	a := feed.Shallow(got.Snap)
	b := feed.Shallow(want.Snap)
	a.Ranks = nil
	b.Ranks = nil
	a.Events = nil
	b.Events = nil
	if b.Series != nil {
		all := levelsOf(b.Series)
		b.Series = feed.Shallow(b.Series)
		b.Series.Probability = nil
		b.Series.MapRunLength = nil
		b.Series.Posterior = nil
		setLevels(b.Series, all)
	}
	if !proto.Equal(a, b) {
		t.Fatalf("played\n%v\nlive\n%v", a, b)
	}
	if len(got.Events) != len(want.Events) ||
		got.Conn != want.Conn ||
		!got.Received.Equal(want.Received) {
		t.Fatalf("played %+v, live %+v", got, want)
	}
	if !sameMessages(got.Validations, want.Validations) {
		t.Fatalf("played the tests %v, live %v", got.Validations, want.Validations)
	}
	if a, b := got.Columns.Views(), want.Columns.Views(); !sameMessages(a, b) {
		t.Fatalf("played the ranks\n%v\nlive\n%v", a, b)
	}
}

func TestPlaysWhatWasRecordedInAnyOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r")
	live, sum := recorded(
		t,
		path,
		Options{Version: "v", From: "test"},
		newJob(64),
		400,
	)
	r, err := Open(path)
	if err != nil ||
		r.Cut != "" ||
		len(r.Moments) != 400 ||
		sum.Frames != 400 ||
		r.From != "test" {
		t.Fatalf("%v, %d moments, cut %q", err, len(r.Moments), r.Cut)
	}
	if info, _ := os.Stat(path); info.Mode() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	whole := 0
	for _, m := range r.Moments {
		if m.whole {
			whole++
		}
	}
	if whole < 2 {
		t.Errorf("%d whole frames: a seek reads everything", whole)
	}
	c := r.cursor()
	for _, i := range []int{0, 1, 399, 17, 18, 250, 249, 300} {
		s, err := c.moveTo(i)
		if err != nil {
			t.Fatal(err)
		}
		alike(t, s, live[i])
	}
}

// A file that was cut anywhere plays as far as it goes, and says so.
func TestCutAnywhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r")
	live, _ := recorded(t, path, Options{flushEach: true}, newJob(8), 60)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	most := 0
	for n := 0; n < len(b); n += 53 {
		r, err := Read(bytes.NewReader(b[:n]))
		if err != nil {
			if !errors.Is(err, ErrFormat) && !errors.Is(err, ErrEmpty) {
				t.Fatalf("cut at %d: %v", n, err)
			}
			continue
		}
		last := len(r.Moments) - 1
		s, err := r.cursor().moveTo(last)
		if err != nil {
			t.Fatalf("cut at %d: %v", n, err)
		}
		alike(t, s, live[last])
		most = max(most, last+1)
	}
	if most < 30 {
		t.Errorf("a cut leaves %d of 60 pictures at most", most)
	}
}

// What was cut is gone on with: the old pictures stay, new ones follow.
func TestResumeAfterACut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r")
	recorded(t, path, Options{flushEach: true}, newJob(8), 40)
	if _, err := Create(path, Options{}); !errors.Is(err, ErrExists) {
		t.Errorf("an existing file was not refused: %v", err)
	}
	b, _ := os.ReadFile(path)
	if err := os.WriteFile(path, b[:len(b)-40], 0o600); err != nil {
		t.Fatal(err)
	}
	cut, err := Open(path)
	if err != nil || cut.Cut == "" {
		t.Fatalf("%v, cut %q", err, cut.Cut)
	}
	live, _ := recorded(t, path, Options{Resume: true}, newJob(8), 5)
	r, err := Open(path)
	if err != nil || r.Cut != "" || len(r.Moments) != len(cut.Moments)+5 {
		t.Fatalf("%v, cut %q, %d moments", err, r.Cut, len(r.Moments))
	}
	s, err := r.cursor().moveTo(len(r.Moments) - 1)
	if err != nil {
		t.Fatal(err)
	}
	alike(t, s, live[4])
}

func TestStopsAtItsLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r")
	_, sum := recorded(t, path, Options{Limit: 20_000}, newJob(512), 900)
	info, _ := os.Stat(path)
	if !sum.Full || info.Size() > 400_000 || sum.Frames >= 900 {
		t.Errorf("%v, %d bytes", sum, info.Size())
	}
	r, err := Open(path)
	if err != nil || r.Cut != "" || len(r.Moments) != sum.Frames {
		t.Errorf("%v, %v", err, sum)
	}
}

// Take never waits: what doesn't fit is counted, and the gap is marked.
func TestDropsAreMarked(t *testing.T) {
	j := newJob(4)
	w := &Writer{
		opts:    Options{Now: time.Now},
		queue:   make(chan picture, 1),
		closing: make(chan struct{}),
		scene:   newScene(),
	}
	for range 5 {
		w.Take(j.next(start))
	}
	if w.dropped.Load() != 4 {
		t.Fatalf("%d dropped", w.dropped.Load())
	}
	var out bytes.Buffer
	w.count = &counter{w: &out}
	w.opts.Limit = DefaultLimit
	if err := w.openStream(nil); err != nil {
		t.Fatal(err)
	}
	w.writeState(<-w.queue)
	w.Take(j.next(start))
	w.writeState(<-w.queue)
	if err := w.zip.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := Read(&out)
	if err != nil || r.Moments[0].Dropped != 0 || r.Moments[1].Dropped != 4 {
		t.Errorf("%v, %+v", err, r.Moments)
	}
}

func TestPlayerRunsByItsOwnClock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r")
	recorded(t, path, Options{}, newJob(4), 60)
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		p, err := NewPlayer(r, PlayerOptions{Speed: 4})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		at := func(frame int, after string) {
			t.Helper()
			synctest.Wait()
			if s := p.Status(); s.Frame != frame {
				t.Errorf("%s: picture %d, want %d", after, s.Frame, frame)
			}
		}
		do := func(c Command) {
			p.Do(c)
			synctest.Wait()
		}
		time.Sleep(2600 * time.Millisecond)
		at(10, "2.6 s at four times")
		if got := p.Now().Sub(start); got != 11*time.Second+400*time.Millisecond {
			t.Errorf("the clock stands at %v", got)
		}
		do(Toggle())
		time.Sleep(time.Minute)
		at(10, "a minute's pause")
		do(StepFrame(-1))
		at(9, "a step back")
		do(StepIncident(+1))
		at(29, "the incident")
		do(StepEvent(+1))
		at(39, "the next event")
		to, err := p.Find("20")
		if err != nil {
			t.Fatal(err)
		}
		do(Seek(to))
		at(19, "iteration 20")
		do(Toggle())
		time.Sleep(time.Hour)
		at(59, "the end")
		if s := p.Status(); !s.Over || p.Latest().Snap.Job.Iteration != 60 {
			t.Errorf("%+v", s)
		}
		if _, err := p.Decide(context.Background(), nil); !errors.Is(err, ErrRecording) {
			t.Errorf("a decision was not refused: %v", err)
		}
		got, err := p.Incidents(context.Background(), "INC-0001")
		if err != nil || len(got.Incidents) != 1 || got.Ladders[0].ImpactMs != 60 {
			t.Errorf("%v, %v", got, err)
		}
	})
}

func TestPlaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r")
	recorded(t, path, Options{}, newJob(4), 60)
	r, _ := Open(path)
	for text, want := range map[string]int{
		"": 0, "start": 0, "end": 59, "30": 29, "14:00:05": 4, "14:00:05Z": 4, "event:2": 19,
		"incident": 29,
	} {
		p, err := ParsePlace(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := r.Find(p); err != nil || got != want {
			t.Errorf("%q is picture %d (%v), want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"61", "event:99", "15:00:00", "yesterday", "-3", "event:0"} {
		p, err := ParsePlace(text)
		if err == nil {
			_, err = r.Find(p)
		}
		if !errors.Is(err, ErrPlace) {
			t.Errorf("%q was found: %v", text, err)
		}
	}
}

// A list is made of the rows that changed, in whatever way it did.
func TestRowsThatChanged(t *testing.T) {
	node := func(name string, age int64) *falconv1.NodeView {
		return &falconv1.NodeView{Node: name, AgeMs: age}
	}
	var was, played []*falconv1.NodeView
	for _, now := range [][]*falconv1.NodeView{
		{node("n0", 1), node("n1", 1)},
		{node("n0", 1), node("n1", 2), node("n2", 1)},
		{node("n0", 1), node("n1", 2), node("n2", 1)},
		{node("n0", 3)},
		nil,
		{node("n5", 1), node("n6", 1)},
	} {
		changed, rows := diffRows(was, now)
		got, err := applyRows(played, changed, rows)
		if err != nil || !sameMessages(got, now) {
			t.Fatalf("%v is played as %v: %v", now, got, err)
		}
		was, played = now, got
	}
	if changed, rows := diffRows(was, was); changed != nil || rows != nil {
		t.Errorf("nothing has changed and %v is kept", changed)
	}
	for name, d := range map[string]*falconv1.RecordRows{
		"too many":            {Rows: rowsMost + 1},
		"fewer than none":     {Rows: -1},
		"beyond the end":      {Rows: 1, Gaps: []uint32{1}},
		"a gap without a row": {Rows: 2, Gaps: []uint32{0, 0}},
		"a hole":              {Rows: 9, Gaps: []uint32{5}},
	} {
		if got, err := applyRows(was, was[:1], d); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// What another version recorded is refused as such.
func TestRecordingsOfOtherVersions(t *testing.T) {
	for text, want := range map[string]error{
		"falcon recording 2\n": ErrVersion,
		"falcon recorders 3\n": ErrFormat,
		"":                     ErrFormat,
		magic:                  ErrEmpty,
	} {
		_, err := Read(bytes.NewReader([]byte(text)))
		if !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", text, err, want)
		}
	}
}

// FuzzRead feeds files: nothing may panic, and what opens plays.
func FuzzRead(f *testing.F) {
	path := filepath.Join(f.TempDir(), "r")
	recorded(f, path, Options{}, newJob(3), 12)
	b, _ := os.ReadFile(path)
	f.Add(b)
	f.Add(b[:len(b)/2])
	f.Add([]byte(magic))
	f.Fuzz(func(_ *testing.T, b []byte) {
		r, err := Read(bytes.NewReader(b))
		if err != nil {
			return
		}
		_ = r.All(func(Moment, *feed.State) bool { return true })
	})
}

// FuzzFrames feeds frames past the compression, where the decoder's own
// checks are.
func FuzzFrames(f *testing.F) {
	c := newScene()
	j := newJob(3)
	for range 3 {
		b, _ := proto.Marshal(c.recordState(j.next(start), start))
		f.Add(b, b)
	}
	f.Fuzz(func(_ *testing.T, a, b []byte) {
		c := newScene()
		for _, raw := range [][]byte{a, b} {
			fr := &falconv1.RecordFrame{}
			if proto.Unmarshal(raw, fr) != nil ||
				fr.Snap.GetColumns().GetWorld() > 1000 ||
				fr.Nodes.GetRows() > 1000 ||
				fr.Nics.GetRows() > 1000 {
				return
			}
			if s, err := c.applyFrame(fr); err == nil {
				fitState(s, feed.Want{Rank: -1, Columns: 3, RunLengths: 2})
			}
		}
	})
}

// BenchmarkRecordHour1024 writes an hour of a 1,024-rank job of two-second
// iterations, in which every rank's time is new each time.
func BenchmarkRecordHour1024(b *testing.B) {
	for b.Loop() {
		w, err := Create(filepath.Join(b.TempDir(), "r"), Options{})
		if err != nil {
			b.Fatal(err)
		}
		j := newJob(1024)
		for i := range 1800 {
			w.Record(j.next(start.Add(time.Duration(2*i) * time.Second)))
		}
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(w.Sum().Bytes)/1e6, "MB/h")
	}
}
