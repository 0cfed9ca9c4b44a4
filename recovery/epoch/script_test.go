package epoch

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/sentencetest"
)

// Each testdata/*.txt is a sequence of looks at a job, and below each the decision.
// Run with -rewrite to write the answers again, and read them.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			s := newScript(t)
			datadriven.RunTest(t, file, func(_ *testing.T, d *datadriven.TestData) string {
				return s.do(d)
			})
		})
	}
}

// script is the owner of a machine, and the ranks that it looks at.
type script struct {
	t    *testing.T
	m    Machine
	now  time.Time
	view View

	given func(View) View // what becomes of a look before the machine gets it
	did   []string        // what it decided, without sentences
}

// What people read decides nothing: with each sentence of a look replaced, the same is decided.
func TestSentencesDecideNothing(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	sentencetest.Check(t, files, 5, func(file string, given func(View) View) []string {
		s := newScript(t)
		s.given = given
		s.replay(file)
		return s.did
	}, blanked[View])
}

// blanked is a look, or a decision, without its sentences: names of processes stay.
func blanked[T any](v T) T {
	return sentencetest.Blank(v, "Process", "Processes", "LayoutFrom")
}

func newScript(t *testing.T) *script {
	return &script{
		t:     t,
		now:   time.Unix(1000, 0),
		given: func(v View) View { return v },
	}
}

// replay plays a script whatever it answers.
func (s *script) replay(file string) {
	datadriven.RunTest(s.t, file, func(_ *testing.T, d *datadriven.TestData) string {
		s.do(d)
		return d.Expected
	})
}

func (s *script) do(d *datadriven.TestData) string {
	switch d.Cmd {
	case "ranks": // one line for each rank: process device, then key=value
		s.view.Ranks = nil
		for line := range strings.SplitSeq(d.Input, "\n") {
			if line != "" {
				s.view.Ranks = append(s.view.Ranks, s.rank(line))
			}
		}
	case "configured", "inferred": // mesh=TEXT, or unsure="WHY"
		var l falcon.Layout
		for _, arg := range d.CmdArgs {
			switch arg.Key {
			case "mesh":
				l = s.meshLayout(strings.Join(arg.Vals, ","))
			case "unsure":
				s.view.Unsure = strings.Join(arg.Vals, " ")
			}
		}
		if d.Cmd == "configured" {
			s.view.Configured = l
		} else {
			s.view.Inferred = l
		}
	case "frozen":
		s.view.Frozen = !d.HasArg("over")
	case "unsettled":
		s.view.Unsettled = !d.HasArg("over")
	case "recovered":
		r := &Recovered{EndedNs: s.now.UnixNano(), Replaced: map[falcon.Rank]bool{}}
		d.ScanArgs(s.t, "generation", &r.Generation)
		if d.HasArg("replaced") {
			var rank int
			d.ScanArgs(s.t, "replaced", &rank)
			r.Replaced[falcon.Rank(rank)] = true
		}
		s.view.Recovered = r
	case "order": // the outcome of an order gives the replicas another split
		var split string
		d.ScanArgs(s.t, "split", &split)
		job := s.view.Job
		job.MicroBatches = nil
		for part := range strings.SplitSeq(split, "/") {
			job.MicroBatches = append(job.MicroBatches, int32(s.number(part)))
		}
		s.commit(job)
	case "restarted": // the engine knows what the journal has
		s.m = Machine{}
	case "look":
		if d.HasArg("after") {
			var after string
			d.ScanArgs(s.t, "after", &after)
			wait, err := time.ParseDuration(after)
			if err != nil {
				s.t.Fatal(err)
			}
			s.now = s.now.Add(wait)
		}
		return s.decide()
	default:
		s.t.Fatalf("%s: no such command", d.Cmd)
	}
	return ""
}

func (s *script) number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *script) meshLayout(text string) falcon.Layout {
	m, err := falcon.ParseMesh(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return falcon.LayoutOf(m)
}

func (s *script) rank(line string) Rank {
	words := strings.Fields(line)
	r := Rank{Process: words[0], Device: falcon.Device(words[1])}
	for _, w := range words[2:] {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "layout":
			if _, err := fmt.Sscanf(value, "%dx%dx%d", &r.Layout.TP, &r.Layout.DP, &r.Layout.PP); err != nil {
				s.t.Fatal(err)
			}
		case "mesh":
			r.Layout = s.meshLayout(value)
		case "micro":
			r.MicroBatches = int32(s.number(value))
		case "launch":
			r.Generation = uint64(s.number(value))
		case "joined":
			r.Rejoined = uint64(s.number(value))
		case "placement":
			r.Order = uint64(s.number(value))
		case "adapter":
			r.Can = falcon.Can{Declared: true, Park: true}
		default:
			s.t.Fatalf("%s: no such fact", key)
		}
	}
	return r
}

func (s *script) commit(job Job) {
	s.view.Job = job
	s.m.Committed(s.now, job)
}

// decide looks at the job, and makes what is described the job in force.
func (s *script) decide() string {
	d := s.m.Step(s.now, s.given(s.view))
	s.did = append(s.did, fmt.Sprintf("%+v", blanked(d)))
	out := map[Kind]string{
		Nothing:    "nothing",
		Wait:       "wait",
		Describe:   "describe",
		Begin:      "begin",
		BeginAfter: "begin after the recovery",
	}[d.Kind]
	if d.Kind > Wait {
		j := d.Job
		out += fmt.Sprintf(": epoch %d, %s, layout %s, split %v, launch %d, rejoined %d, parks %t",
			j.Epoch, strings.Join(j.Processes, " "), j.Layout, j.MicroBatches, j.Generation,
			j.Rejoined, j.Can.Park)
		if j.LayoutFrom != "" {
			out += ", from " + j.LayoutFrom
		}
		if j.Unknown != "" &&
			s.view.Configured.World()+s.view.Inferred.World()+len(s.view.Unsure) > 0 {
			out += ", unknown"
		}
		if !d.Job.Equal(s.view.Job) {
			s.commit(d.Job)
		}
		if d.Kind == BeginAfter {
			s.view.Recovered = nil
		}
	}
	if d.Doubt != "" {
		out += "\ndoubtful: " + d.Doubt
	}
	return out + "\n"
}

// Whatever ranks report, in whatever order: an epoch holds as long as its processes
// and its layout, and another one begins by one.
func TestEpochsFollowProcesses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m Machine
		v := View{}
		now := time.Unix(1000, 0)
		for range rapid.IntRange(1, 30).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.IntRange(0, 6000).Draw(t, "ms")) * time.Millisecond)
			v.Frozen = rapid.IntRange(0, 5).Draw(t, "frozen") == 0
			v.Unsettled = rapid.Bool().Draw(t, "unsettled")
			v.Ranks = nil
			for r := range rapid.IntRange(0, 3).Draw(t, "world") {
				v.Ranks = append(v.Ranks, Rank{
					Process: fmt.Sprintf("n%d/%d", r, rapid.IntRange(0, 2).Draw(t, "pid")),
					Device:  falcon.NewDevice(falcon.Node(fmt.Sprint("n", r)), 0),
					Layout: falcon.Layout{
						TP: 1,
						DP: rapid.IntRange(0, 3).Draw(t, "dp"),
						PP: 1,
					},
					MicroBatches: int32(rapid.IntRange(0, 3).Draw(t, "micro")),
				})
			}
			d := m.Step(now, v)
			if d.Kind <= Wait {
				if v.Frozen && d.Kind != Nothing {
					t.Fatalf("the description is frozen, and it decides %v", d.Kind)
				}
				continue
			}
			was, is := v.Job, d.Job
			same := strings.Join(was.Processes, " ") == strings.Join(is.Processes, " ") &&
				was.Layout == is.Layout
			want := map[bool]Kind{true: Describe, false: Begin}[same]
			if d.Kind != want || is.Epoch != was.Epoch+map[bool]uint64{false: 1}[same] {
				t.Fatalf("from %+v to %+v: decision %v", was, is, d.Kind)
			}
			if len(is.Processes) != len(v.Ranks) || is.Layout.World() != len(v.Ranks) {
				t.Fatalf("%d ranks are described as %+v", len(v.Ranks), is)
			}
			v.Job = is
			m.Committed(now, is)
		}
	})
}
