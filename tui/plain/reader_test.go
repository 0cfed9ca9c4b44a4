package plain

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/internal/enginetest"
)

// earshot is a desk for a screen reader with a clock that the test drives; what it writes is what
// would be read out.
type earshot struct {
	t       *testing.T
	reader  *reader
	ask     *asker
	changes *diff
	heard   bytes.Buffer
	w       *writer
	s       *feed.State
	now     time.Time
}

func listen(t *testing.T) *earshot {
	x := &earshot{
		t:       t,
		reader:  newReader(),
		ask:     newAsker(),
		changes: newDiff(),
		now:     time.Unix(1000, 0),
	}
	x.changes.reader = x.reader
	x.w = &writer{out: &x.heard, spoken: true}
	return x
}

func (x *earshot) show(s *feed.State) {
	x.s = s
	x.w.printLines(x.reader.bound(x.changes.linesOf(s))...)
	x.w.printLines(x.ask.state(s, x.now)...)
}

// types writes what is typed behind a mark, and what is answered.
func (x *earshot) types(line string) *request {
	x.now = x.now.Add(decision.Guard)
	before := x.heard.Len()
	x.heard.WriteString("> " + line + "\n")
	after := x.heard.Len()
	lines, ok := x.reader.word(line, x.ask, x.s, x.now)
	var r *request
	if !ok {
		lines, r = x.ask.line(line, x.s, x.now)
	}
	x.w.printLines(lines...)
	if x.heard.Len() == after && r == nil {
		x.t.Errorf("%q is not answered:\n%s", line, x.heard.String()[before:])
	}
	return r
}

// A whole sitting, word by word, as it is read out.
func TestReaderTranscript(t *testing.T) {
	e := enginetest.New(enginetest.Options{Past: true})
	x := listen(t)
	for _, at := range []int64{5, 30, enginetest.Onset + 5, enginetest.Proposed + 1} {
		e.AdvanceTo(at)
		s := picture(t, e)
		s.Events = s.Snap.Events
		x.show(s)
	}
	for _, line := range []string{
		"help", "why", "ranks", "rank 2", "rank 99", "rank", "ladder", "incidents", "test",
		"recovery", "events", "more", "more", "who", "status", "quiet", "normal", "again", "",
		"nonsense", "3", "1",
	} {
		x.types(line)
	}
	if r := x.types("yes"); r == nil || !r.Decide.GetApprove() {
		t.Errorf("sent %v", r)
	}
	path := filepath.Join("testdata", "reader.txt")
	if *update {
		if err := os.WriteFile(path, x.heard.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if x.heard.String() != string(want) {
		t.Errorf("%s differs (go test ./tui/plain -update rewrites it); read out is:\n%s",
			path, x.heard.String())
	}
	onlySpeech(t, x.heard.String())
}

// onlySpeech wants letters, digits, ASCII punctuation, single blanks and newlines.
func onlySpeech(t *testing.T, s string) {
	t.Helper()
	for _, line := range strings.Split(s, "\n") {
		line = strings.TrimPrefix(line, "> ")
		if strings.Contains(line, "  ") || line != strings.TrimSpace(line) {
			t.Errorf("blanks that are read as layout: %q", line)
		}
		for _, r := range line {
			if !unicode.IsLetter(r) &&
				!unicode.IsDigit(r) &&
				!unicode.Is(unicode.Mn, r) &&
				(r < ' ' || r > '~') {
				t.Errorf("%q in %q", r, line)
			}
		}
	}
}

// Nothing but speech is written, whatever the engine sends, from the first line to the last.
func TestReaderWritesNoEscapes(t *testing.T) {
	for _, hostile := range []string{"", "\x1b[31m\u202e", "\r\x07\u009b2J", "│┌✖\u200b", "\tx\u00a0\u2028"} {
		e := enginetest.New(enginetest.Options{Past: true, Recurring: true})
		e.Hostile(hostile)
		e.AdvanceTo(enginetest.End)
		out := newSink()
		in := strings.NewReader("help\nwhy\nranks\nmore\n")
		if err := Run(context.Background(), client(t, e), out, Options{Reader: true, In: in}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "INC-0001") {
			t.Errorf("no story in %q", out.String())
		}
		onlySpeech(t, out.String())
		for _, b := range []byte(out.String()) {
			if b < ' ' && b != '\n' || b == 0x7f {
				t.Fatalf("byte %#x in %q", b, out.String())
			}
		}
	}
}

// A restart takes the same guards as on the screen: the typed word, and a reason.
func TestReaderApprovesARestart(t *testing.T) {
	s := proposed(t)
	s.Snap = proto.CloneOf(s.Snap)
	s.Snap.Ladder.Actions[len(s.Snap.Ladder.Actions)-1].Rung = "S4"
	x := listen(t)
	x.show(s)
	x.types("1")
	if r := x.types("yes"); r != nil {
		t.Errorf("yes restarts the job: %v", r)
	}
	x.types("1")
	if r := x.types("gpt-lab 8"); r != nil {
		t.Errorf("no reason was asked for: %v", r)
	}
	if r := x.types("why not"); r == nil || !r.Decide.GetApprove() || r.Decide.Reason != "why not" {
		t.Errorf("the reason is taken for a word: %v", r)
	}
}

// A job may be called as a word is: where its name is asked for, it is the name.
func TestReaderWordsGiveWayToTheTypedWord(t *testing.T) {
	s := proposed(t)
	s.Snap = proto.CloneOf(s.Snap)
	s.Snap.Job.Name = "rank"
	s.Snap.Ladder.Actions[len(s.Snap.Ladder.Actions)-1].Rung = "S4"
	x := listen(t)
	x.show(s)
	x.types("1")
	x.types("rank 8")
	if x.ask.open == nil || x.ask.open.step != reason {
		t.Errorf("the typed word was answered as a question:\n%s", x.heard.String())
	}
}

// What is too much at once waits, and nothing of it is lost.
func TestReaderIsBounded(t *testing.T) {
	e := enginetest.New(enginetest.Options{DP: 40})
	e.AdvanceTo(enginetest.Proposed + 1)
	s := picture(t, e)
	for _, r := range s.Snap.Ranks {
		r.Health = 3 // slow
	}
	x := listen(t)
	x.show(s)
	x.heard.Reset()
	x.types("ranks")
	said := map[string]bool{}
	for range 200 {
		lines := strings.Split(strings.TrimSpace(x.heard.String()), "\n")[1:]
		if len(lines) > linesAtOnce+1 {
			t.Fatalf("%d lines at once:\n%s", len(lines), x.heard.String())
		}
		for _, l := range lines {
			said[l] = true
		}
		if !strings.Contains(lines[len(lines)-1], "type more") {
			break
		}
		x.heard.Reset()
		x.types("more")
	}
	n := 0
	for l := range said {
		if strings.HasPrefix(l, "rank ") {
			n++
		}
	}
	if n != len(s.Snap.Ranks) {
		t.Errorf("%d of %d ranks were said", n, len(s.Snap.Ranks))
	}
}

// Questions are said whole, however much else happened.
func TestReaderNeverCutsAQuestion(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(enginetest.Proposed + 1)
	e.Lose(falcon.RecoveryProposed)
	x := listen(t)
	x.reader.detail = detailAll
	x.show(picture(t, e))
	out := x.heard.String()
	if !strings.Contains(out, "1, approve") || !strings.Contains(out, "Decision needed") {
		t.Errorf("the question is cut:\n%s", out)
	}
}

func TestSpoken(t *testing.T) {
	for in, want := range map[string]string{
		"[iteration 52] INC-0001: S2 (shift micro-batches) proposed: predicted 400 ms → 262 ms (-35%); waits": "Iteration 52. INC-0001: S2 (shift micro-batches) proposed: predicted 400 milliseconds to 262 milliseconds (minus 35 percent); waits",
		"  + counter: n1.g0: SM clock 990 of 1980 MHz, 87 °C":                                                 "Evidence for: counter: n1.g0: SM clock 990 of 1980 MHz, 87 degrees Celsius",
		"  - counter: n1: steal 0.00":                                            "Evidence against: counter: n1: steal 0.00",
		"onset     iteration 40, known at 43: P(change) 0.98":                    "onset, iteration 40, known at 43: probability of a change 0.98",
		"evidence  + timing: rank 2: 2.01× its peers":                            "Evidence for: timing: rank 2: 2.01 times its peers",
		"mode is AUTO ≤ S2":                                                      "mode is AUTO at most S2",
		"1) approve  2) veto  3) show evidence  (type a number and press enter)": "1, approve, 2, veto, 3, show evidence, (type a number and press enter)",
		"slow, 155 ms (+1% vs baseline); +12x":                                   "slow, 155 milliseconds (plus 1 percent against baseline); plus 12 times",
		"same node: ranks 0-3, 8":                                                "same node: ranks 0 to 3, 8",
		"VAL-0001 12 s ago: —":                                                   "VAL-0001 12 seconds ago: not known",
		"│ ✖ x …":                                                                "x and so on",
	} {
		if got := Spoken(in); got != want {
			t.Errorf("%q is read as\n%q instead of\n%q", in, got, want)
		}
	}
}

// Lines that come in pieces are read whole; the last one may lack its end.
func TestSpeakJoinsPieces(t *testing.T) {
	var out bytes.Buffer
	w := Speak(&out)
	for _, part := range []string{"[iteration 5", "2] a → b\n", "c", " ≤ d"} {
		if n, err := io.WriteString(w, part); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil || out.String() != "Iteration 52. a to b\nc at most d\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestSpokenOfAnything(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for range 500 {
		var b strings.Builder
		for range rng.IntN(40) {
			b.WriteRune(rune(rng.IntN(0x3000)))
			b.WriteString([]string{"", " ", "-1", "+2%", "  "}[rng.IntN(5)])
		}
		onlySpeech(t, Spoken(b.String()))
	}
}

// Run reads typed words and answers in order, without a summary of its own.
func TestRunForAReader(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(enginetest.Proposed + 1)
	in, keys := io.Pipe()
	out := newSink()
	cl := client(t, e)
	ended := make(chan error, 1)
	go func() {
		ended <- Run(context.Background(), cl, out, Options{
			In:      in,
			Reader:  true,
			Summary: time.Millisecond,
		})
	}()
	out.until(t, "3, show evidence")
	for _, line := range []string{"who", "again", "quit"} {
		if _, err := io.WriteString(keys, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	_ = keys.Close()
	s := out.String()
	if !strings.HasPrefix(s, "Falcon for a screen reader.") ||
		!strings.Contains(s, "you are maria, role approver") {
		t.Errorf("read out:\n%s", s)
	}
	if strings.Contains(s, "milliseconds an iteration (") {
		t.Errorf("a summary nobody asked for:\n%s", s)
	}
	onlySpeech(t, s)
}
