package phrase

import (
	"testing"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func TestRanksAreRunsInOrder(t *testing.T) {
	for _, x := range []struct {
		ranks []int32
		most  int
		want  string
	}{
		{nil, 3, "no rank"},
		{[]int32{7}, 3, "rank 7"},
		{[]int32{2, 3}, 3, "ranks 2-3"},
		{[]int32{9, 0, 1, 2, 8}, 3, "ranks 0-2, 8-9"},
		{[]int32{0, 2, 4, 6, 7}, 2, "ranks 0, 2 and 3 more"},
	} {
		if got := Ranks(x.ranks, x.most); got != x.want {
			t.Errorf("%v: %q instead of %q", x.ranks, got, x.want)
		}
	}
}

func TestSecondsAndFaults(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                     "0 s",
		10 * time.Millisecond: "1 s",
		119 * time.Second:     "119 s",
		5 * time.Minute:       "5 min",
		125 * time.Second:     "2 min 5 s",
	} {
		if got := Seconds(d); got != want {
			t.Errorf("%v: %q instead of %q", d, got, want)
		}
	}
	list := []*falconv1.Fault{{Kind: "node", Node: "n2"}, {
		Kind:   "exit",
		Node:   "n1",
		Device: "n1.g0",
		Ranks:  []int32{2},
	}}
	got := Faults(list) + "; " + Faults(list[1:])
	if got != "node n2 lost and 1 more; process ended on n1.g0 (rank 2)" {
		t.Errorf("told as %q", got)
	}
	waits := []*falconv1.Fault{
		{Kind: "hang", Node: "n0", Device: "n0.g0", Ranks: []int32{0}},
		{Kind: "node", Node: "n2"},
	}
	got = Faults(waits) + "; " + Faults(waits[:1])
	if got != "node n2 lost; training stopped, seen first on n0.g0 (rank 0)" {
		t.Errorf("a rank that waits for a lost node is no second fault: %q", got)
	}
}
