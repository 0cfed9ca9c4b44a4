package link

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/failslow/falcon/tui/key"
)

func TestLinksAreRead(t *testing.T) {
	for text, want := range map[string]Target{
		"ranks":               ToPage(key.Ranks),
		"Ladder/":             ToPage(key.Ladder),
		"inc/INC-0142":        {Kind: Incident, ID: "INC-0142", Zoom: Unset, At: Unset},
		"inc/142":             {Kind: Incident, ID: "INC-0142", Zoom: Unset, At: Unset},
		" falcon:inc/inc-7\n": {Kind: Incident, ID: "INC-0007", Zoom: Unset, At: Unset},
		"rec/REC-0003":        {Kind: Recovery, ID: "REC-0003", Zoom: Unset, At: Unset},
		"rank/12":             {Kind: Rank, Rank: 12, Zoom: Unset, At: Unset},
		"link/n3-n1":          {Kind: Link, ID: "n1-n3", Zoom: Unset, At: Unset},
		"inc/1?view=ranks&z=2&sel=7,3,5-6&filter=stage:3+slow%3E10%25&at=1840": {
			Kind:   Incident,
			ID:     "INC-0001",
			View:   key.Ranks,
			Zoom:   2,
			Sel:    []int32{3, 5, 6, 7},
			Filter: "stage:3 slow>10%",
			At:     1840,
		},
	} {
		got, err := Parse(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestBadLinksAreRefusedInOneSentence(t *testing.T) {
	for _, text := range []string{
		"",
		"/",
		"nope",
		"inc/",
		"inc/x",
		"inc/+1",
		"inc/-1",
		"rec/INC-0001",
		"rank/x",
		"rank/-1",
		"rank/99999999",
		"rank/1/2",
		"link/n1",
		"link/n1-n1",
		"link/a b-c",
		"foo/1",
		"inc/1?view=nope",
		"inc/1?z=10",
		"inc/1?z=-1",
		"inc/1?at=x",
		"inc/1?sel=",
		"inc/1?sel=5-3",
		"inc/1?sel=0-99999",
		"inc/1?foo=1",
		"inc/1?z=1&z=2",
		"inc/1?%zz",
		"ranks?filter=%1b[2J",
		"ranks?filter=%e2%80%ae",
		"ranks?filter=%ff",
		"ranks?filter=" + strings.Repeat("x", MaxFilter+1),
		strings.Repeat("x", MaxBytes+1),
		"\x1b[2J",
		"inc/\x1b[31m",
	} {
		_, err := Parse(text)
		if !errors.Is(err, ErrLink) {
			t.Errorf("%.40q: %v", text, err)
			continue
		}
		if s := err.Error(); strings.ContainsAny(s, "\n\x1b\u202e") || len(s) > 300 {
			t.Errorf("%.40q: %q", text, s)
		}
	}
}

func TestRanges(t *testing.T) {
	for want, sel := range map[string][]int32{
		"":           nil,
		"0":          {0},
		"1-2":        {1, 2},
		"1,3":        {1, 3},
		"1-3,7,9-10": {1, 2, 3, 7, 9, 10},
	} {
		if got := Ranges(sel); got != want {
			t.Errorf("%v: %q, want %q", sel, got, want)
		}
	}
}

// Whatever is read is written so that it reads the same, and can stand in
// single quotes in a shell.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"ranks", "inc/INC-0142?view=ranks&z=2&sel=3,5-7&filter=a+b&at=9", "rec/1",
		"rank/12?view=posterior&at=0", "link/n1-n3", "link/a.b:c-d", "?z=1",
		"inc/1?filter=%27%22%3B",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := Parse(s)
		if err != nil {
			if !errors.Is(err, ErrLink) {
				t.Fatal(err)
			}
			return
		}
		text := a.String()
		for _, r := range text {
			if r <= ' ' || r > '~' || strings.ContainsRune("'\"`$\\;|<>", r) {
				t.Fatalf("%q is written %q", s, text)
			}
		}
		b, err := Parse(text)
		if err != nil || !reflect.DeepEqual(a, b) {
			t.Fatalf("%q is written %q and read %+v (%v), not %+v", s, text, b, err, a)
		}
	})
}
