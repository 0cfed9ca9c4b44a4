package keyguard

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// sitting plays one console by a script, in virtual time.
type sitting struct {
	t   *testing.T
	g   *Guard
	now time.Time
	q   Report
}

func sit(t *testing.T) *sitting {
	t.Helper()
	s := &sitting{t: t, g: New(1), now: time.Unix(1000, 0)}
	return s
}

var kinds = map[string]Kind{
	"step":    KeyStep,
	"stray":   KeyStray,
	"text":    KeyText,
	"confirm": KeyConfirm,
	"close":   KeyClose,
}

var names = map[Reason]string{
	Counts:   "counts",
	Unseen:   "unseen",
	Fresh:    "fresh",
	Ahead:    "ahead",
	Strayed:  "strayed",
	Pasted:   "pasted",
	Fast:     "fast",
	Followed: "followed",
	Held:     "held",
}

// play plays a script: times to pass, events, and after "=" what the one before came to.
func (s *sitting) play(script string) {
	s.t.Helper()
	got := ""
	for word := range strings.FieldsSeq(script) {
		if d, err := time.ParseDuration(word); err == nil {
			s.now = s.now.Add(d)
			continue
		}
		if want, ok := strings.CutPrefix(word, "="); ok {
			if got != want {
				s.t.Fatalf("%q, not %q, in %q", got, want, script)
			}
			continue
		}
		got = s.step(word)
	}
}

func (s *sitting) step(word string) string {
	if kind, ok := kinds[word]; ok {
		return names[s.g.Press(s.now, kind)]
	}
	switch word {
	case "open":
		s.g.Press(s.now, KeyStep)
		s.g.Open(s.now)
		s.q = s.g.Ask(80, 24)
	case "sent":
		s.g.Sent(s.now, s.q.Number)
	case "answer":
		s.g.Answer(s.now, s.q.X, s.q.Y)
	case "wrong":
		s.g.Answer(s.now, s.q.X, s.q.Y+1)
	case "repaint":
		s.g.Repaint()
		s.q = s.g.Ask(80, 24)
	case "paste":
		s.g.Paste(s.now)
	case "shown":
		s.g.Sent(s.now, s.q.Number)
		s.now = s.now.Add(30 * time.Millisecond)
		s.g.Answer(s.now, s.q.X, s.q.Y)
	case "code":
		s.g.OfferCode(s.now)
	case "mute":
		return map[bool]string{true: "yes", false: "no"}[s.g.IsMute(s.now)]
	case "due":
		return map[bool]string{true: "yes", false: "no"}[s.g.Due(s.now)]
	case "block":
		why, _ := s.g.Block(s.now)
		return names[why]
	default:
		s.t.Fatalf("no step %q", word)
	}
	return ""
}

func TestScripts(t *testing.T) {
	for name, script := range map[string]string{
		"a person":                      "open shown 600ms step =counts 150ms confirm =held 199ms due =no 1ms due =yes due =no",
		"tab and enter at 12 a second":  "open shown 401ms step =counts 83ms confirm =held 200ms due =yes",
		"before it is seen":             "open sent 2s step =unseen 2s confirm =unseen 10s confirm =unseen due =no",
		"typed ahead":                   "open 83ms step =unseen 83ms confirm =unseen shown 500ms confirm =held",
		"typed ahead, no pause":         "open 200ms step =unseen shown 300ms step =fresh 200ms confirm =ahead 300ms confirm =ahead 400ms confirm =held",
		"the answer before the mark":    "open answer 2s confirm =unseen",
		"another cell":                  "open sent wrong 2s confirm =unseen answer 1s confirm =held",
		"drawn again":                   "open shown 1s repaint confirm =unseen shown 500ms confirm =held",
		"the answer of the size before": "open sent 1s repaint 1s confirm =unseen",
		"a stray key":                   "open shown 1s stray =strayed 200ms step =strayed 1400ms confirm =strayed 1500ms step =counts 100ms confirm =held",
		"stray keys before the dialog":  "stray 100ms open shown 600ms step =strayed 100ms confirm =strayed 1600ms step =counts 100ms confirm =held",
		"too fast":                      "open shown 1s step 49ms confirm =fast 50ms confirm =held",
		"in a burst": "open shown 2s text 10ms text 10ms text 10ms text 10ms text 10ms text 10ms text 10ms text 10ms " +
			"text 10ms text 10ms text 10ms text 10ms text 10ms text 60ms confirm =fast 1s confirm =held",
		"what follows ends it":      "open shown 1s step 100ms confirm =held 50ms text =followed 1s due =no confirm =followed",
		"a stream at 1 B/s":         "step 1s step 1s open shown 970ms step =counts 1s confirm =held 1s due =no step =followed",
		"enter held down":           "open shown 1s step 200ms confirm =held 30ms confirm =held 30ms confirm =held 249ms due =no 1ms due =yes",
		"escape while it waits":     "open shown 1s step 100ms confirm =held 100ms close =counts 1s due =no",
		"a reason, then the button": "open shown 1s text 150ms text 150ms text 200ms step =counts 200ms confirm =held 249ms due =no 1ms due =yes",
		"read for long":             "open shown 9s step 900ms confirm =held 200ms due =yes",
		"a paste":                   "open shown 1s paste 100ms step =pasted 200ms confirm =pasted 200ms confirm =held",
		"a paste while it waits":    "open shown 1s step 100ms confirm =held 100ms paste 200ms due =no",
		"a terminal that is mute":   "open sent 4900ms mute =no 100ms mute =yes code text =counts 1900ms confirm =fresh 200ms confirm =ahead 500ms confirm =held",
		"one that answered before":  "open shown 1s close repaint sent 19s mute =no 1s mute =yes",
		"the clock steps back":      "open shown 1s step -10s confirm =fresh",
		"closed":                    "open shown 1s step 100ms confirm =held close block =counts",
	} {
		t.Run(name, func(t *testing.T) { sit(t).play(script) })
	}
}

// Reports are distinguished by their cells, whatever order and number of them is under way, and
// nothing grows.
func TestReportsAreToldApart(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, size := range [][2]int{{80, 24}, {200, 60}, {60, 16}, {2, 2}, {1, 1}} {
		g := New(7)
		g.Open(now)
		for range 100 {
			q := g.Ask(size[0], size[1])
			g.Sent(now, q.Number)
			if q.X < 0 ||
				q.Y < 1 ||
				size[0] > 2 && (q.X >= size[0] || q.Y >= size[1]) {
				t.Fatalf("cell %d, %d on %v", q.X, q.Y, size)
			}
		}
		if n := len(g.Pending()); n > pendingMost {
			t.Fatalf("%d reports are kept", n)
		}
		if size[0] < 60 {
			continue // too small to decide anything there
		}
		list := append([]Report(nil), g.Pending()...)
		for i, q := range list {
			if got, last := g.Answer(now, q.X, q.Y), i == len(list)-1; got != last {
				t.Fatalf("report %d of %d says that the dialog is drawn: %v", i+1, len(list), got)
			}
		}
		if g.Answer(now, list[0].X, list[0].Y) || len(g.Pending()) != 0 {
			t.Fatal("an answer counts twice")
		}
	}
}

// The link's delay is that of the answer, and grows while one is waited for.
func TestDelay(t *testing.T) {
	now := time.Unix(1000, 0)
	g := New(1)
	q := g.Ask(80, 24)
	g.Sent(now, q.Number)
	g.Answer(now.Add(300*time.Millisecond), q.X, q.Y)
	if d := g.Delay(now.Add(time.Hour)); d != 300*time.Millisecond {
		t.Errorf("%s", d)
	}
	q = g.Ask(80, 24)
	g.Sent(now, q.Number)
	if d := g.Delay(now.Add(2 * time.Second)); d != 2*time.Second {
		t.Errorf("%s while an answer is waited for", d)
	}
}

// A stream whose link stalls now and then rests for long enough between two of its keys, and again
// behind a confirmation: it sends nothing even so.
func TestAStreamThatStallsConfirmsNothing(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := sit(t)
		gap := time.Second / time.Duration(2+r.IntN(12))
		s.play("open shown")
		for range 200 {
			for _, kind := range []Kind{KeyConfirm, KeyText} {
				if s.g.Due(s.now) {
					t.Fatalf("seed %d, %s between keys: a confirmation counts", seed, gap)
				}
				s.g.Press(s.now, kind)
				s.now = s.now.Add(gap)
				if r.IntN(5) == 0 {
					s.now = s.now.Add(time.Duration(r.Int64N(int64(Rest - gap))))
				}
			}
		}
	}
}
