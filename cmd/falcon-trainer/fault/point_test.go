package fault

import (
	"errors"
	"strings"
	"testing"
)

func TestPointsAreRead(t *testing.T) {
	for s, want := range map[string]Point{
		"forward@57:5":              {Name: Forward, Iteration: 57, Rank: 5},
		"before-barrier@0:0:kill":   {Name: Barrier},
		"mid-update@3:2:freeze":     {Name: Update, Iteration: 3, Rank: 2, Freeze: true},
		"restore@57:5:kill/1":       {Name: Restore, Iteration: 57, Rank: 5, Generation: 1},
		"groups@1000000000000:31/7": {Name: Groups, Iteration: 1e12, Rank: 31, Generation: 7},
	} {
		if got, err := Parse(s); err != nil || got != want {
			t.Errorf("%s became %+v, %v", s, got, err)
		}
	}
	for _, s := range []string{
		"", "forward", "forward@", "forward@1", "sideways@1:2", "forward@-1:2", "forward@1:-2",
		"forward@1:2:stop", "forward@1:2:kill:kill", "forward@1:2/0", "forward@1:2/x",
	} {
		if p, err := Parse(s); !errors.Is(err, Err) {
			t.Errorf("%q was read as %+v, %v", s, p, err)
		}
	}
}

// Whatever is given is refused with a sentence, or names a point that exists.
func FuzzParse(f *testing.F) {
	f.Add("restore@57:5:kill/1")
	f.Add("mid-update@3:2:freeze")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := Parse(s)
		switch {
		case err != nil && p != (Point{}):
			t.Fatalf("%q was refused, and read as %+v", s, p)
		case err == nil &&
			(!strings.Contains(Names(), p.Name) || p.Name == "" || p.Iteration < 0 || p.Rank < 0):
			t.Fatalf("%q was read as %+v", s, p)
		}
	})
}
