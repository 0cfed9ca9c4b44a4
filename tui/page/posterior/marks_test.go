package posterior

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/widget"
)

var numbers = regexp.MustCompile(`\d+`)

// Whatever marks there are, every number on the axis is a whole iteration that is marked or at an end:
// no sign stands in a number, none stands between two, and no two numbers run together.
func TestNoLabelIsCutByAnother(t *testing.T) {
	theme, err := themes.Load("dark")
	if err != nil {
		t.Fatal(err)
	}
	kinds := []string{"onset", "relief", "applied", "reverted", "jitter", "epoch", "engine"}
	deciders := []string{"shift", "early", "reference", "throughput", "windows", "bocd"}
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 15))
		n := 5 + rng.IntN(100)
		s := &falconv1.Series{
			FirstIteration: rng.Int64N(100_000),
			Ms:             make([]float32, n),
		}
		for range rng.IntN(7) {
			s.Marks = append(s.Marks, &falconv1.Mark{
				Iteration: s.FirstIteration + rng.Int64N(int64(n)),
				Kind:      kinds[rng.IntN(len(kinds))],
			})
		}
		for range rng.IntN(4) {
			s.Decisions = append(s.Decisions, &falconv1.ChangeDecision{
				By:               deciders[rng.IntN(len(deciders))],
				DecidedIteration: s.FirstIteration + rng.Int64N(int64(n)),
				Filter: &falconv1.FilterState{
					Removed: []*falconv1.RemovedIteration{{
						Iteration: s.FirstIteration + rng.Int64N(int64(n)),
					}},
				},
			})
		}
		r := widget.Rect{W: LabelWidth + 40 + rng.IntN(80), H: 1}
		v := newSeriesView(r, s, following)
		c := widget.NewCanvas(r.W, 1, theme.Palette(colorprofile.TrueColor), false)
		v.drawMarks(c, r)
		row := ansi.Strip(c.String())
		legal := []string{
			strconv.FormatInt(v.oldestIteration(), 10),
			strconv.FormatInt(v.newestIteration(), 10),
		}
		for _, m := range s.Marks {
			legal = append(legal, strconv.FormatInt(m.Iteration, 10))
		}
		for _, at := range numbers.FindAllStringIndex(row, -1) {
			if got := row[at[0]:at[1]]; !slices.Contains(legal, got) {
				t.Fatalf("seed %d: %q is no iteration of %v:\n%q", seed, got, legal, row)
			}
			before := " " + row[:at[0]]
			after := row[at[1]:] + " "
			if !strings.HasSuffix(before, " ") && !strings.HasPrefix(after, " ") {
				t.Fatalf("seed %d: a number between two signs:\n%q", seed, row)
			}
		}
	}
}

// Beside two columns of 120 the legend still has every mark that is on screen.
func TestTheLegendHasEveryMark(t *testing.T) {
	s := regime(1000, 58, 1020, 16)
	for i, kind := range []string{"applied", "reverted", "relief"} {
		s.Marks = append(s.Marks, &falconv1.Mark{
			Iteration: 1025 + 8*int64(i),
			Kind:      kind,
		})
	}
	for w, want := range map[int][]string{
		66:  {"▼ onset", "A on", "R off", "✓ well"},
		100: {"▼ onset", "A applied", "R reverted", "✓ relief"},
	} {
		out := draw(t, New(), stateOf(s), widget.Rect{W: w, H: 30})
		title, _, _ := strings.Cut(out, "\n")
		for _, x := range want {
			if !strings.Contains(title, x) {
				t.Errorf("%d columns: no %q in %q", w, x, title)
			}
		}
	}
}
