package validate

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/widget"
)

var update = flag.Bool("update", false, "rewrite the golden views")

// sizes are the page's parts of terminals of 80x24, 120x40 and 200x60.
var sizes = []widget.Rect{{W: 80, H: 19}, {W: 120, H: 35}, {W: 200, H: 55}}

// oneLink is a test of n1-n2 with links to compare with.
func oneLink(change func(*falconv1.LinkResult)) *falconv1.Validation {
	v := &falconv1.Validation{
		Id:           "VAL-0002",
		State:        "done",
		By:           "maria",
		Why:          "asked from the console",
		Incident:     "INC-0001",
		Passes:       3,
		PassesDone:   3,
		PausedMs:     812,
		MessageBytes: 1 << 18,
	}
	for _, p := range [][2]int32{{2, 4}, {0, 6}, {0, 2}, {4, 6}, {0, 4}, {2, 6}} {
		for _, way := range [][2]int32{{p[0], p[1]}, {p[1], p[0]}} {
			l := link(way[0], way[1], 1)
			l.Bytes = 1 << 18
			l.Ms = 13.2
			l.BaseMs = 13.2
			l.Runs = 1
			l.Limit = 1.2
			if l.Reference = p != [2]int32{2, 4}; !l.Reference {
				change(l)
			}
			v.Links = append(v.Links, l)
		}
	}
	return v
}

// After a test of one link the page says what it is, how much, against what, and what
// comes next.
func TestGoldenViews(t *testing.T) {
	ladder := &falconv1.Ladder{
		Incident: "INC-0001",
		Proposal: &falconv1.Action{
			Id:       "ACT-0001",
			Incident: "INC-0001",
			Rung:     "S3",
			State:    "proposed",
		},
	}
	for name, v := range map[string]*falconv1.Validation{
		"slow": oneLink(func(l *falconv1.LinkResult) {
			l.Ms = 109
			l.Ratio = 8.26
			l.Slow = true
			l.Basis = "own"
			l.BaseFrom = "VAL-0001"
			l.Runs = 3
		}),
		"fine": oneLink(func(*falconv1.LinkResult) {}),
		"nothing": oneLink(func(l *falconv1.LinkResult) {
			l.Ms = 109
			l.BaseMs = 0
			l.Ratio = 0
			l.Limit = 0
			l.Basis = ""
			l.Unjudged = falcon.NothingToCompare
		}),
		"noise": oneLink(func(l *falconv1.LinkResult) {
			l.Ms = 19
			l.Ratio = 1.44
			l.Limit = 2.1
			l.Unjudged = "within the noise: 2.1 x the usual time can be chance here"
		}),
		"short": oneLink(func(l *falconv1.LinkResult) {
			l.Ms = 0.3
			l.BaseMs = 0.1
			l.Unjudged = falcon.TooShort
		}),
	} {
		if name == "nothing" {
			v.Links = v.Links[:2]
		}
		for _, r := range sizes {
			s := stateOf(8, v)
			s.Snap().Incidents = []*falconv1.Incident{{
				Id:      "INC-0001",
				State:   "located",
				Verdict: &falconv1.Verdict{Links: []string{"n1-n2"}},
			}}
			if name == "slow" {
				s.Snap().Ladder = ladder
			}
			checkGolden(
				t,
				fmt.Sprintf("%s-%dx%d.txt", name, r.W, r.H),
				draw(t, New(), s, r),
			)
		}
	}
}

func checkGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != got+"\n" {
		t.Errorf("%s differs (go test ./tui/page/validate -update rewrites it): %v; got:\n%s", path, err, got)
	}
}
