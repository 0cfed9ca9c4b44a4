package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestStallsAreChecked(t *testing.T) {
	sc := Scenario{Layout: Shape{TP: 1, DP: 2, PP: 1}, Nodes: 2}
	for want, e := range map[string]Event{
		"":                              {AtIteration: 30, Stall: "rank 1", ForMs: 9000},
		"there is no rank \"2\"":        {AtIteration: 30, Stall: "rank 2", ForMs: 9000},
		"only ranks can be stalled":     {AtIteration: 30, Stall: "n1", ForMs: 9000},
		"neither on_action nor until_i": {AtIteration: 30, UntilIteration: 40, Stall: "1", ForMs: 9000},
		"it must be 3 or more":          {AtIteration: 2, Stall: "1", ForMs: 9000},
		"for_ms is 0":                   {AtIteration: 30, Stall: "1"},
		"for_ms goes with stall":        {AtIteration: 30, Freeze: "1", ForMs: 9},
	} {
		err := sc.checkFault(e)
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", e, err, want)
		}
	}
}

// A stall is announced some iterations ahead, to the rank alone, and noted when it begins.
func TestStallsAreDealt(t *testing.T) {
	l, _ := troubled(t)
	l.sc = Scenario{Layout: Shape{TP: 1, DP: 2, PP: 1}, Nodes: 2}
	l.records = newRecords(2)
	l.faults = newFaults(
		Scenario{
			Layout: l.sc.Layout,
			Nodes:  2,
			Events: []Event{{AtIteration: 9, Stall: "rank 1", ForMs: 9000}},
		},
		nil,
	)
	for _, c := range []struct {
		done  int64
		file  bool
		begun int
	}{{5, false, 0}, {6, true, 0}, {9, true, 1}, {10, true, 1}} {
		l.records.done = c.done
		l.stalls.deal(l)
		text, err := os.ReadFile(filepath.Join(l.place.dir, stallFile))
		if (err == nil) != c.file ||
			len(l.stalls) != c.begun ||
			c.file && !strings.HasSuffix(string(text), " 9 1\n") {
			t.Errorf("after %d iterations: %q, %v, %v", c.done, text, err, l.stalls)
		}
	}
	if err := l.Trouble().carryOut(Request{Op: "stall", Target: "0", For: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(filepath.Join(
		l.place.dir,
		stallFile,
	)); !strings.HasSuffix(string(text), " 0\n") {
		t.Errorf("%q", text)
	}
}
