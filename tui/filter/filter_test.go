package filter_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/filter"
)

// subjects are 2 × 3 × 4 ranks on nodes of eight.
func subjects() []filter.Subject {
	var out []filter.Subject
	for r := range 24 {
		v := &falconv1.RankView{
			Rank:         int32(r),
			Device:       fmt.Sprintf("n%d.g%d", r/8, r%8),
			Ms:           100,
			Slowdown:     float64(r) / 100,
			SelfRatio:    1 + float64(r)/10,
			TemperatureC: uint32(60 + r),
			SmClockMhz:   uint32(1000 + r),
			CnpPerS:      float64(r) * 100,
			WaitMs:       float64(r),
		}
		state := "ok"
		switch r {
		case 3:
			state = "slow"
		case 5:
			state, v.CnpPerS = "culprit", -1
		case 7:
			state, v.TemperatureC = "stale", 0
		}
		out = append(out, filter.Subject{
			Rank:   int32(r),
			TP:     r % 2,
			DP:     r / 2 % 3,
			PP:     r / 6,
			View:   v,
			State:  state,
			Picked: r == 11,
		})
	}
	out[9].View = nil
	return out
}

func chosen(t *testing.T, text string) string {
	t.Helper()
	f, err := filter.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, s := range subjects() {
		if f.Match(&s) {
			out = append(out, fmt.Sprint(s.Rank))
		}
	}
	return strings.Join(out, " ")
}

func TestFilters(t *testing.T) {
	for text, want := range map[string]string{
		"stage:3":                      "18 19 20 21 22 23",
		"stage:3 replica:2 tp:0":       "22",
		"rank:4-6,20":                  "4 5 6 20",
		"host:n1":                      "8 10 11 12 13 14 15",
		"host:N* stage:0":              "0 1 2 3 4 5",
		"device:n?.g0":                 "0 8 16",
		"device:n1.g1":                 "",
		"state:slow":                   "3",
		"is:culprit":                   "5",
		"is:culprit | is:stale":        "5 7",
		"is:culprit,stale":             "5 7",
		"is:anomaly !is:slow":          "5 7",
		"is:picked":                    "11",
		"slow>=22%":                    "22 23",
		"SLOW>21.5":                    "22 23",
		"self>3.15":                    "22 23",
		"temp>=82":                     "22 23",
		"temp<61":                      "0", // 7 was not measured
		"clock<1001mhz":                "0",
		"cnp<100/s":                    "0",
		"wait>21ms":                    "22 23",
		"level=0 rank:1":               "1",
		"g3":                           "3 11 19",
		"slow":                         "3",
		"23":                           "23",
		"rank 23":                      "23",
		"(rank:1|rank:2)rank:2":        "2",
		"!(rank:0-22)":                 "23",
		"! rank:1-23":                  "0",
		"rank:1 | rank:2 rank:3":       "1", // and binds before or
		"N1.G4":                        "12",
		"host:n2,n0 stage:3 rank:0-19": "18 19",
	} {
		if got := chosen(t, text); got != want {
			t.Errorf("%q chooses %q, want %q", text, got, want)
		}
	}
	f, err := filter.Parse("  ")
	if err != nil || !f.Empty() || !f.Match(&filter.Subject{}) {
		t.Error("blank text must choose all")
	}
}

// Every gauge that a GPU can show is a word, with its unit or without.
func TestEveryGaugeIsAWord(t *testing.T) {
	for i, g := range falcon.AllGauges() {
		var shown falcon.Gauges
		shown.Set(g, float64(100+i))
		s := filter.Subject{View: &falconv1.RankView{Gauges: shown}}
		for text, want := range map[string]bool{
			fmt.Sprintf("%s>=%d", g.Key(), 100+i):                   true,
			fmt.Sprintf("%s>%d%s", g.Key(), 99+i, g.Unit()):         true,
			fmt.Sprintf("%s>%d", g.Key(), 100+i):                    false,
			fmt.Sprintf("!%s>=0 is:anomaly %s<1", g.Key(), g.Key()): false,
		} {
			f, err := filter.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			if f.Match(&s) != want {
				t.Errorf("%s: %v", text, !want)
			}
		}
	}
}

func TestMistakesGetOneSentence(t *testing.T) {
	for text, want := range map[string]string{
		"stge:3":                 `no field "stge"; there are device, host, is`,
		"stage:":                 "lacks its value; write it without a space, as stage:3",
		"stage:x":                "write one, a range or a list",
		"rank:9-3":               "names no numbers",
		"rank:-3":                "names no numbers",
		"host>3":                 "can't be compared",
		"slow>fast":              "compares with no number",
		"slow>":                  "compares with no number",
		"slow><3":                "compares with no number",
		"temp>nan":               "compares with no number",
		"is:evil":                `can't be "evil"; it is one of anomaly, culprit`,
		"state:":                 "lacks its value",
		"(rank:1":                "never closed",
		"rank:1)":                "closes nothing",
		"rank:1 |":               "a term is missing",
		"!":                      "a term is missing",
		"()":                     "a term is missing",
		strings.Repeat("(", 600): "shorten it",
	} {
		_, err := filter.Parse(text)
		if !errors.Is(err, filter.ErrFilter) ||
			!strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestMatchingAllocatesNothing(t *testing.T) {
	f, err := filter.Parse("host:n1* slow>1 !is:stale (rank:0-99|g3) n1.g")
	if err != nil {
		t.Fatal(err)
	}
	list := subjects()
	n := testing.AllocsPerRun(100, func() {
		for i := range list {
			f.Match(&list[i])
		}
	})
	if n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// A random tree is written out and parsed; evaluating the tree itself is the
// simple second implementation.
func TestParserAgainstTrees(t *testing.T) {
	type leaf struct {
		text string
		of   func(filter.Subject) bool
	}
	leaves := []leaf{
		{"stage:1", func(s filter.Subject) bool { return s.PP == 1 }},
		{"tp:1", func(s filter.Subject) bool { return s.TP == 1 }},
		{"replica:0-1", func(s filter.Subject) bool { return s.DP <= 1 }},
		{"is:culprit", func(s filter.Subject) bool { return s.State == "culprit" }},
		{
			"host:n2",
			func(s filter.Subject) bool {
				return s.View != nil && strings.HasPrefix(s.View.Device, "n2.")
			},
		},
		{"slow>10%", func(s filter.Subject) bool { return s.View != nil && 100*s.View.Slowdown > 10 }},
		{
			"g4",
			func(s filter.Subject) bool {
				return s.View != nil && strings.HasSuffix(s.View.Device, "g4")
			},
		},
	}
	type node struct {
		text string
		of   func(filter.Subject) bool
	}
	var tree func(t *rapid.T, depth int) node
	tree = func(t *rapid.T, depth int) node {
		kind := rapid.IntRange(0, 3).Draw(t, "kind")
		if depth == 0 || kind == 0 {
			l := rapid.SampledFrom(leaves).Draw(t, "leaf")
			return node(l)
		}
		a := tree(t, depth-1)
		if kind == 1 {
			return node{"!(" + a.text + ")", func(s filter.Subject) bool {
				return !a.of(s)
			}}
		}
		b := tree(t, depth-1)
		if kind == 2 {
			return node{"(" + a.text + ") (" + b.text + ")", func(s filter.Subject) bool {
				return a.of(s) && b.of(s)
			}}
		}
		return node{"(" + a.text + " | " + b.text + ")", func(s filter.Subject) bool {
			return a.of(s) || b.of(s)
		}}
	}
	list := subjects()
	rapid.Check(t, func(t *rapid.T) {
		n := tree(t, 4)
		f, err := filter.Parse(n.text)
		if len(n.text) > filter.MaxText {
			return
		}
		if err != nil {
			t.Fatalf("%q: %v", n.text, err)
		}
		for _, s := range list {
			if f.Match(&s) != n.of(s) {
				t.Fatalf("%q: rank %d", n.text, s.Rank)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"stage:3 slow>10% host:n02*", "!(a|b) c", "rank:1-2,5", "((((", "is:|", "temp>=80c", "*?:",
		"\xff!", "P<\x87",
	} {
		f.Add(s)
	}
	list := subjects()
	f.Fuzz(func(t *testing.T, text string) {
		x, err := filter.Parse(text)
		if err != nil {
			if !errors.Is(err, filter.ErrFilter) {
				t.Fatal(err)
			}
			return
		}
		not, err := filter.Parse("!(" + text + ")")
		for i := range list {
			got := x.Match(&list[i])
			if err == nil && !x.Empty() && not.Match(&list[i]) == got {
				t.Fatalf("%q and its negation both say %v of rank %d", text, got, i)
			}
		}
	})
}
