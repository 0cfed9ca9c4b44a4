package bars

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon"
)

var t0 = time.Unix(1_700_000_000, 0)

func bar(name string, after time.Duration, long time.Duration) Entry {
	at := t0.Add(after)
	return Entry{
		Name:    name,
		Reason:  "fan",
		By:      "dana",
		AtNs:    at.UnixNano(),
		UntilNs: at.Add(long).UnixNano(),
	}
}

// A bar of a node or of one of its devices keeps the node out of use, ends by its time, and is
// lifted by hand before it.
func TestBars(t *testing.T) {
	b := Book{}
	for _, e := range []Entry{bar("n1", 0, time.Hour), bar("n2.g1", 0, 2*time.Hour)} {
		if err := b.Check(t0, e); err != nil {
			t.Fatal(err)
		}
		b.Apply(e)
	}
	for _, c := range []struct {
		node  string
		after time.Duration
		want  string
	}{
		{"n1", 0, "n1"},
		{"n1", time.Hour, ""},
		{"n2", 90 * time.Minute, "n2.g1"},
		{"n2", 2 * time.Hour, ""},
		{"n22", 0, ""},
		{"n3", 0, ""},
	} {
		got, ok := b.Node(t0.Add(c.after), falcon.Node(c.node))
		if ok != (c.want != "") || got.Name != c.want {
			t.Errorf("%s after %s: %+v, want %q", c.node, c.after, got, c.want)
		}
	}
	lift := Entry{
		Name:   "n1",
		Lift:   true,
		Reason: "fan replaced",
		By:     "lee",
		AtNs:   t0.UnixNano(),
	}
	if err := b.Check(t0, lift); err != nil {
		t.Fatal(err)
	}
	b.Apply(lift)
	if _, ok := b.Node(t0, "n1"); ok || len(b.At(t0)) != 1 {
		t.Errorf("after the bar was lifted: %v", b)
	}
	b.Apply(bar("n9", 3*time.Hour, time.Hour))
	if len(b) != 1 {
		t.Errorf("a bar that has ended is kept: %v", b)
	}
}

func TestRefusals(t *testing.T) {
	b := Book{}
	b.Apply(bar("n1", 0, time.Hour))
	for text, e := range map[string]Entry{
		"name a node": {Reason: "x", UntilNs: t0.Add(time.Hour).UnixNano()},
		"say why":     {Name: "n2", UntilNs: t0.Add(time.Hour).UnixNano()},
		"has 513 bytes": {
			Name:    "n2",
			Reason:  strings.Repeat("x", 513),
			UntilNs: t0.Add(time.Hour).UnixNano(),
		},
		"n2 is not barred": {Name: "n2", Lift: true, Reason: "x"},
		"up to 30 days, not for": {
			Name:    "n2",
			Reason:  "x",
			UntilNs: t0.Add(31 * 24 * time.Hour).UnixNano(),
		},
	} {
		err := b.Check(t0, e)
		if err == nil ||
			!strings.Contains(err.Error(), text) ||
			!errors.Is(err, ErrInvalid) && !errors.Is(err, ErrStale) {
			t.Errorf("%+v: %v, want %q", e, err, text)
		}
	}
	for i := range Most {
		b.Apply(bar("m"+string(rune('a'+i%26))+string(rune('a'+i/26)), 0, time.Hour))
	}
	if err := b.Check(t0, bar("one more", 0, time.Hour)); err == nil {
		t.Error("bars have no bound")
	}
}
