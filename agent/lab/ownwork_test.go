package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOwnWorkIsChecked(t *testing.T) {
	sc := Scenario{
		Layout: Shape{TP: 1, DP: 2, PP: 1},
		Nodes:  2,
		NICs:   1,
	}
	for want, e := range map[string]Event{
		"":                            {AtIteration: 30, Data: "rank 1", ForMs: 60},
		"there is no rank \"2\"":      {AtIteration: 30, Data: "rank 2", ForMs: 60},
		"only ranks wait for data":    {AtIteration: 30, Data: "n1", ForMs: 60},
		"for_ms is 0":                 {AtIteration: 30, Data: "1"},
		"for_ms goes with stall":      {AtIteration: 30, Lengths: 1, ForMs: 5},
		"lengths is 11":               {AtIteration: 30, Lengths: 11},
		"lengths is -1":               {AtIteration: 30, Lengths: -1},
		"data and lengths have no on": {AtIteration: 30, Lengths: 1, OnAction: "S2"},
		"name exactly one of":         {AtIteration: 30, Lengths: 1, Data: "1", ForMs: 5},
	} {
		err := sc.checkFault(e)
		if want == "" && err != nil ||
			want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}

// The trainers hear beforehand of what the job itself does, and a hold does not change it.
func TestOwnWorkIsAnnounced(t *testing.T) {
	dir := t.TempDir()
	sc := Scenario{
		Layout: Shape{TP: 1, DP: 2, PP: 1},
		Nodes:  2,
		NICs:   1,
		Events: []Event{
			{AtIteration: 30, UntilIteration: 50, Data: "rank 1", ForMs: 60},
			{AtIteration: 60, Lengths: 1.5},
		},
	}
	if err := announceWork(sc, dir); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(filepath.Join(dir, workFile))
	if strings.TrimSpace(string(text)) != "data 1 60 30 50\nlengths 1.5 60 0" {
		t.Errorf("%q", text)
	}
	f := newFaults(sc, nil)
	f.holdAll()
	if o := f.events[0]; o.holdsAt(50) || !o.holdsAt(49) {
		t.Error("a hold changed when the data come again")
	}
	none := t.TempDir()
	if err := announceWork(Scenario{}, none); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(none, workFile)); err == nil {
		t.Error("a file without need")
	}
}
