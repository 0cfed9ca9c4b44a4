package shapetest

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A change without a new number is refused, and can't be recorded away.
func TestCompare(t *testing.T) {
	old := Shape{Number: 5, Lines: []string{"a 0 int", "b 4 int"}}
	for name, c := range map[string]struct {
		number int
		lines  []string
		says   string
		record bool
	}{
		"the same":                  {5, []string{"a 0 int", "b 4 int"}, "", false},
		"another type":              {5, []string{"a 0 int", "b 4 long"}, "raise the constant to 6", false},
		"moved":                     {5, []string{"a 0 int", "b 8 int"}, "raise the constant to 6", false},
		"removed":                   {5, []string{"a 0 int"}, "raise the constant to 6", false},
		"added":                     {5, []string{"a 0 int", "b 4 int", "c 8 int"}, "has new parts", true},
		"changed, with a number":    {6, []string{"a 0 int"}, "has the new number 6", true},
		"the number alone":          {6, []string{"a 0 int", "b 4 int"}, "has the new number 6", true},
		"a number of before":        {4, []string{"a 0 int", "b 4 int"}, "went back from 5 to 4", false},
		"a number of before, other": {4, []string{"c 0 int"}, "went back from 5 to 4", false},
	} {
		s := Shape{
			Name:   "it",
			Number: c.number,
			Where:  "the constant",
			Lines:  c.lines,
		}
		problem, mayRecord := s.compare(old, false)
		if !strings.Contains(problem, c.says) ||
			(c.says == "") != (problem == "") ||
			mayRecord != c.record {
			t.Errorf("%s: %q, %v", name, problem, mayRecord)
		}
	}
}

func TestFileIsReadAsWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "deep", "x.shape")
	s := Shape{Number: 3, Lines: []string{"a", "b c"}}
	if err := s.write(file); err != nil {
		t.Fatal(err)
	}
	if got, err := readShape(file); err != nil || got.Number != 3 || !slices.Equal(got.Lines, s.Lines) {
		t.Errorf("%+v, %v", got, err)
	}
}

type inner struct {
	At   time.Time `json:"at"`
	Self *inner    `json:"self"`
}

func TestOfJSON(t *testing.T) {
	type base struct {
		ID uint64 `json:"id"`
	}
	got := OfJSON("x", struct {
		base
		List   []inner            `json:"list,omitempty"`
		ByName map[string]float64 `json:"by_name"`
		Raw    []byte             `json:"raw"`
		Skip   int                `json:"-"`
		Plain  bool
		hidden int
	}{})
	want := []string{
		"x.id uint64", "x.list[].at json", "x.list[].self again", "x.by_name{string} float64",
		"x.raw bytes", "x.Plain bool",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
