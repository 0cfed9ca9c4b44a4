package page

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/filter"
)

// What a filter finds in one pass, and what the feed's side found before, is
// what matches rank by rank with coordinates divided out.
func TestFoundAgainstThePlainWay(t *testing.T) {
	texts := []string{
		"stage:1", "tp:1 replica:0-2", "host:n1 | host:n*2", "!host:n1 slow",
		"host:n0 (host:n0,n1)", "is:picked", "level>1 stage:0", "(is:slow | 7) rank:3-40", "n1.g",
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 60).Draw(t, "world")
		snap := &falconv1.SnapshotReply{Job: &falconv1.Job{
			Tp:    rapid.Int32Range(0, 4).Draw(t, "tp"),
			Dp:    rapid.Int32Range(0, 5).Draw(t, "dp"),
			Pp:    2,
			World: int32(n),
		}}
		for r := range n {
			node := string(rune('0' + rapid.IntRange(0, 3).Draw(t, "node")))
			snap.Ranks = append(snap.Ranks, &falconv1.RankView{
				Rank:   int32(r),
				Device: "n" + node + ".g0",
				Ms:     1,
				Level:  rapid.Int32Range(0, 3).Draw(t, "level"),
				Health: falconv1.RankHealth(rapid.IntRange(0, 5).Draw(t, "health")),
			})
		}
		text := rapid.SampledFrom(texts).Draw(t, "filter")
		f, err := filter.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		fs := &feed.State{Snap: snap, Memo: &feed.Memo{}}
		if rapid.Bool().Draw(t, "prepared") {
			Prepare(fs, f)
		}
		s := NewState(fs)
		s.Pick(0)
		if err := s.FilterRanks(text); err != nil {
			t.Fatal(err)
		}
		var want []int32
		for r, v := range s.Roster.Views() {
			sub := filter.Subject{
				Rank:   r,
				View:   v,
				State:  looks[s.Roster.Standing(r)].word,
				Picked: s.Picked(r),
			}
			sub.TP, sub.DP, sub.PP = s.Coord(r)
			if f.Match(&sub) {
				want = append(want, r)
			}
		}
		if !slices.Equal(s.Matched(), want) {
			t.Fatalf("%q finds %v, want %v", text, s.Matched(), want)
		}
	})
}

// A filter does not search again once the feed's side has found it.
func TestFoundOnce(t *testing.T) {
	f, err := filter.Parse("rank:0")
	if err != nil {
		t.Fatal(err)
	}
	fs := &feed.State{
		Snap: &falconv1.SnapshotReply{Ranks: []*falconv1.RankView{{Rank: 0}}},
		Memo: &feed.Memo{},
	}
	Prepare(fs, f)
	list := rosterOfState(fs).Remember("rank:0", func() []int32 {
		t.Error("sought again")
		return nil
	})
	if len(list) != 1 {
		t.Error(list)
	}
}
