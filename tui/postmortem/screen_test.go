package postmortem

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"

	"github.com/failslow/falcon/themes"
)

var update = flag.Bool("update", false, "rewrite the golden views")

func slowJob() *Document {
	d := &Document{
		Kind:    "slow",
		Summary: "iterations take 8.1 % longer since iteration 210 (1.57 s, was 1.452 s); rank 30 is the slowest in 13 of the newest 13 reports (Rtt)",
		Notes:   []string{"confidence 85 %, it cost 23.6 s, since iteration 210"},
		Evidence: []Evidence{
			{
				Text:  "elapsed time per iteration (ms): iterations take 8.1 % longer since iteration 210; noise of a point 0.3 %",
				At:    "train.log:43",
				Quote: " iteration 210/ 500000 | elapsed time per iteration (ms): 1569.8 |",
			},
			{
				Text:  "rank 30 is the slowest in 13 of the newest 13 reports",
				At:    "train.log:44",
				Quote: "MnRtt/Rnk: 1447.10ms/3 | MxRtt/Rnk: 1569.83ms/30",
			},
			{
				Against: true,
				Text:    "an Xid 63 of another GPU; the job went on after it",
				At:      "dmesg.txt:7",
				Quote:   "NVRM: Xid (PCI:0000:5d:00): 63\x1b[2J",
			},
		},
		Next: []string{
			"compare what ranks report for the time after iteration 210 (per-rank timers, clocks, a profile): the series alone names nobody",
		},
		Inputs: []Input{
			{"train.log", "a training log, a report of members", true},
			{"README.md", "no line is of a known kind", false},
		},
	}
	c := Chart{
		Name:  "elapsed time per iteration (ms)",
		Unit:  "ms",
		Onset: 40,
	}
	for i := range 80 {
		v := 1450 + float64(i%5)
		if i >= 40 {
			v = 1570 + float64(i%5)
		}
		c.Values = append(c.Values, v)
	}
	d.Charts = []Chart{c}
	return d
}

func screenOf(t *testing.T, d *Document, w, h int) *Screen {
	t.Helper()
	theme, err := themes.Load("dark")
	if err != nil {
		t.Fatal(err)
	}
	s := New(d, theme, theme.Palette(colorprofile.Ascii), false)
	s.Update(tea.WindowSizeMsg{Width: w, Height: h})
	return s
}

func (s *Screen) press(keys ...string) string {
	for _, k := range keys {
		s.key(k)
	}
	lines := strings.Split(ansi.Strip(s.draw()), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return strings.Join(lines, "\n") + "\n"
}

func TestGoldenPostmortem(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {120, 40}, {200, 60}} {
		for name, keys := range map[string][]string{
			"top":  nil,
			"line": {"down", "down", "enter"},
			"end":  {"G"},
		} {
			got := screenOf(t, slowJob(), size[0], size[1]).press(keys...)
			file := filepath.Join("testdata", fmt.Sprintf("%s-%dx%d.txt",
				name, size[0], size[1]))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				continue
			}
			want, err := os.ReadFile(file)
			if err != nil || string(want) != got {
				t.Errorf("%s differs (go test ./tui/postmortem -update rewrites it), %v; got:\n%s",
					file, err, got)
			}
		}
	}
}

// Every size draws exactly its rows, nothing of a file's reaches the terminal as a control,
// and each key is safe.
func TestEverySizeOfAPostmortem(t *testing.T) {
	for _, d := range []*Document{
		slowJob(),
		{Kind: "unknown", Summary: ""},
		{Kind: "healthy", Charts: []Chart{{Name: "x", Values: []float64{1}, Onset: 7}}},
	} {
		for w := 20; w <= 210; w += 19 {
			for h := 3; h <= 64; h += 7 {
				s := screenOf(t, d, w, h)
				for _, k := range []string{
					"down", "enter", "space", "G", "up", "b", "g", "down", "down", "down", "down",
					"enter", "enter",
				} {
					text := s.press(k)
					if strings.ContainsRune(text, '\x1b') || strings.Count(text, "\n") != h {
						t.Fatalf("%d x %d after %s: %d lines\n%q", w, h, k, strings.Count(text, "\n"), text)
					}
				}
			}
		}
	}
}

func TestTheCursorStaysInSight(t *testing.T) {
	d := slowJob()
	for i := range 60 {
		d.Evidence = append(d.Evidence, Evidence{
			Text: fmt.Sprintf("finding %d", i),
			At:   "a:1",
		})
	}
	s := screenOf(t, d, 80, 24)
	for i := range 60 {
		want := d.Evidence[min(i, len(d.Evidence)-1)].Text
		if text := s.press("down"); !strings.Contains(text, want[:9]) {
			t.Fatalf("%q is not seen\n%s", want, text)
		}
	}
}
