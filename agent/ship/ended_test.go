package ship

import (
	"testing"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func end(pid, rank int32, generation uint64) *falconv1.RankState {
	return &falconv1.RankState{
		Pid:        pid,
		Rank:       rank,
		Generation: generation,
	}
}

func never(*falconv1.RankState) bool { return false }

// An end that waits in the spool is brought by its own frame.
func TestEndsThatWaitAreNotRepeated(t *testing.T) {
	s := newSpool(8, 1<<20)
	var l endedList
	for pid := range int32(2) {
		l.add(end(pid, pid, 1))
	}
	s.addFrame(&falconv1.AgentFrame{Body: &falconv1.AgentFrame_Rank{Rank: end(
		1,
		1,
		1,
	)}}, t0)
	got := l.begin(s.holdsEnd)
	if len(got) != 1 || got[0].GetRank().GetPid() != 0 {
		t.Fatalf("a stream begins with %v", got)
	}
}

// An end is kept for two minutes of one stream, as engines that are restarted again and
// again may never act on it.
func TestEndsAreKeptForTwoMinutesOfOneStream(t *testing.T) {
	var l endedList
	l.add(end(7, 3, 1))
	for range 2 {
		for range endedBeats {
			l.beat()
		}
		got := l.begin(never)
		if len(got) != 1 ||
			got[0].GetRank().GetPid() != 7 ||
			got[0].GetRank().GetAlive() {
			t.Fatalf("a stream begins with %v", got)
		}
	}
	for range endedBeats + 1 {
		l.beat()
	}
	if got := l.begin(never); len(got) != 0 {
		t.Fatalf("still kept: %v", got)
	}
}

// A newer process of the rank, or with the pid, makes an end old; one of the same generation
// has come to the rank by a placement, and the end is still to be recovered from.
func TestEndsAreSuperseded(t *testing.T) {
	for _, c := range []struct {
		name  string
		newer *falconv1.RankState
		kept  int
	}{
		{"newer generation", end(9, 3, 2), 0},
		{"same pid", end(7, 5, 1), 0},
		{"same generation", end(9, 3, 1), 1},
		{"another rank", end(9, 4, 2), 1},
	} {
		var l endedList
		l.add(end(7, 3, 1))
		if l.supersede(c.newer); len(l) != c.kept {
			t.Errorf("%s: %d are kept, not %d", c.name, len(l), c.kept)
		}
	}
}

func TestEndsAreBounded(t *testing.T) {
	var l endedList
	for pid := range int32(3 * endedMost) {
		l.add(end(pid, 0, 1))
		l.add(end(pid, 0, 1)) // known better
	}
	if len(l) != endedMost || l[0].state.Pid != 2*endedMost {
		t.Fatalf("%d are kept from pid %d on", len(l), l[0].state.Pid)
	}
}
