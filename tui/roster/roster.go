// Package roster derives from one snapshot the tables that every console draws
// it by: ranks by number, who is not healthy, what each rank shows by each
// metric, which ranks share a node.
//
// A Roster is made once for a snapshot, by the feed that receives it, and shared
// by all who show it. Nobody may modify its tables, and all methods may be called
// from any goroutine. It owns no goroutines, does no I/O and holds nothing that
// the snapshot does not say: what it takes from the roster of an earlier snapshot
// is what would be made anew from columns that are the same.
package roster

import (
	"slices"
	"strings"
	"sync"

	"github.com/failslow/falcon/backend/api/columns"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// maxRanks bounds what a broken snapshot can make the console allocate.
const maxRanks = 1 << 20

// Finished is the state of a job that has ended as it should.
const Finished = "finished"

// Standing is what a rank is, by all that the snapshot says of it.
type Standing uint8

// The standings, in the order in which a tally names them.
const (
	Culprit Standing = iota // named by an open incident
	Lost                    // its process is gone
	Slow                    // suspected, or slow against peers
	Stale                   // nothing fresh from it
	Fenced                  // gone because the recovery does not let it take part any more
	Unknown                 // nothing known of it
	Ended                   // gone because the job has finished
	OK
	Standings
)

// Roster is what one snapshot says of all ranks.
type Roster struct {
	Ranks      []*falconv1.RankView // by rank; nil where nothing is known
	TP, DP, PP int                  // at least 1
	Anomalies  []int32              // ranks that are not healthy, ascending
	Critical   []int32              // those of them that are culprits or lost, ascending
	Count      [Standings]int
	Worst      int32 // the rank that most needs a look, the lowest of equals
	Measured   bool  // some rank has a self time

	from      *columns.Table // what the ranks came as; nil where they came as views
	standings []Standing     // by rank
	over      bool
	fenced    map[string]bool // nodes, by the newest recovery
	apart     map[int32]bool  // ranks, likewise
	told      [metrics]bool   // by columns: the engine says of every rank what it shows
	codes     [metrics][]Code // by rank; of views those by Clock once they are asked for
	clock     struct {
		of    []uint16 // by rank, MHz; of views only
		once  sync.Once
		mhz   float64
		codes sync.Once
	}
	found found
	hosts struct {
		once sync.Once
		of   *Hosts
	}
}

// Make derives a roster from a snapshot that nobody modifies any more.
func Make(snap *falconv1.SnapshotReply) *Roster { return After(nil, snap, nil) }

// After is Make of a snapshot whose ranks came as cols; nil where they came as
// views. What is as in prev, an earlier roster of any job or nil, is shared with
// it. Prev is not held.
func After(prev *Roster, snap *falconv1.SnapshotReply, cols *columns.Table) *Roster {
	t, world := begin(snap)
	if cols == nil || cols.World() != world || len(snap.GetRanks()) != world {
		t.place(snap.GetRanks(), world)
		return t
	}
	if prev != nil && (prev.from == nil || prev.from.World() != world) {
		prev = nil
	}
	t.Ranks, t.from = snap.GetRanks(), cols
	moved, few := t.stand(prev)
	t.hear(prev)
	t.clockLike(prev)
	t.colour(prev, moved, few)
	t.rate(prev, moved, few)
	return t
}

// begin is all but the tables by rank, and how many ranks those have.
func begin(snap *falconv1.SnapshotReply) (t *Roster, world int) {
	job := snap.GetJob()
	t = &Roster{
		TP: max(1, int(job.GetTp())), DP: max(1, int(job.GetDp())), PP: max(1, int(job.GetPp())),
		over: job.GetState() == Finished,
	}
	t.exclude(snap.GetRecovery())
	if world = min(maxRanks, max(0, int(job.GetWorld()))); world == 0 {
		world = min(maxRanks, len(snap.GetRanks()))
	}
	return t, world
}

// exclude notes whom the newest recovery does not let take part.
func (t *Roster) exclude(r *falconv1.Recovery) {
	t.fenced, t.apart = map[string]bool{}, map[int32]bool{}
	for _, n := range r.GetFenced() {
		t.fenced[n] = true
	}
	for _, x := range r.GetRanks() {
		if x.GetStage() == "fenced" {
			t.apart[x.GetRank()] = true
		}
	}
}

// atOnce is how many views are fetched before they are looked at. Views lie all
// over the memory, and a short loop fetches many at a time.
const atOnce = 64

// place puts each view at its rank and notes all that the tables need of it:
// whoever asks for a table later goes through bytes that lie side by side.
func (t *Roster) place(views []*falconv1.RankView, world int) {
	t.Ranks, t.clock.of = make([]*falconv1.RankView, world), make([]uint16, world)
	none := t.StandingOf(nil)
	for m := Self; m < metrics; m++ {
		t.codes[m] = slices.Repeat([]Code{byStanding[none]}, world)
	}
	t.standings = slices.Repeat([]Standing{none}, world)
	weights := make([]weight, world)
	for some := range slices.Chunk(views, atOnce) {
		for _, v := range some {
			if v != nil && v.Rank >= 0 && int(v.Rank) < world {
				t.Ranks[v.Rank] = v
			}
		}
		for _, v := range some {
			if v != nil && v.Rank >= 0 && int(v.Rank) < world {
				t.note(v.Rank, v)
				weights[v.Rank] = weigh(t.standings[v.Rank], v)
			}
		}
	}
	t.tally()
	t.judge(weights)
}

// weight orders ranks by how much they need a look: by gravity, then self time,
// then the engine's level. 0 is nothing known.
type weight uint16

const (
	known       weight = 1 << 15
	gravityAt          = 12
	selfAt             = 9
	hasSelfAt          = 8
	hasSelf     weight = 1 << hasSelfAt
	heaviestRaw        = 1<<hasSelfAt - 1
)

func weigh(s Standing, v *falconv1.RankView) weight {
	w := s.weight(v.Level)
	if v.SelfRatio > 0 {
		w |= hasSelf | weight(SelfLevel(v.SelfRatio))<<selfAt
	}
	return w
}

// weight is that of a rank without a self time.
func (s Standing) weight(level int32) weight {
	return known | weight(Gravity(s))<<gravityAt | weight(min(heaviestRaw, max(0, level)))
}

// tally lists and counts ranks by their standing.
func (t *Roster) tally() {
	for lo := 0; lo < len(t.standings); lo += block {
		some := t.standings[lo:min(lo+block, len(t.standings))]
		if len(some) == block && *(*[block]Standing)(some) == allOK {
			continue
		}
		for i, s := range some {
			t.Count[s]++
			if Gravity(s) > 0 {
				t.Anomalies = append(t.Anomalies, int32(lo+i))
			}
			if s == Culprit || s == Lost {
				t.Critical = append(t.Critical, int32(lo+i))
			}
		}
	}
	t.Count[OK] = len(t.standings)
	for _, n := range t.Count[:OK] {
		t.Count[OK] -= n
	}
}

// allOK needs no look.
var allOK = [block]Standing(slices.Repeat([]Standing{OK}, block))

// judge finds the rank that most needs a look.
func (t *Roster) judge(weights []weight) {
	var all, best weight
	for i, w := range weights {
		all |= w
		if w &^= hasSelf; w > best {
			best, t.Worst = w, int32(i)
		}
	}
	t.Measured = all&hasSelf != 0
}

// Gravity orders standings by how much they must be seen; 0 is no anomaly.
func Gravity(s Standing) int {
	switch s {
	case Culprit:
		return 4
	case Lost:
		return 3
	case Slow:
		return 2
	case Stale, Fenced:
		return 1
	}
	return 0
}

// Standing is what a rank is; Unknown outside.
func (t *Roster) Standing(rank int32) Standing {
	if rank < 0 || int(rank) >= len(t.standings) {
		return Unknown
	}
	return t.standings[rank]
}

// StandingOf is the standing of a rank by its view.
func (t *Roster) StandingOf(v *falconv1.RankView) Standing {
	switch v.GetHealth() {
	case falconv1.RankHealth_RANK_HEALTH_OK:
		return OK
	case falconv1.RankHealth_RANK_HEALTH_SLOW:
		return Slow
	case falconv1.RankHealth_RANK_HEALTH_CULPRIT:
		return Culprit
	}
	if t.over {
		return Ended
	}
	switch v.GetHealth() {
	case falconv1.RankHealth_RANK_HEALTH_STALE:
		return Stale
	case falconv1.RankHealth_RANK_HEALTH_LOST:
		if len(t.fenced)+len(t.apart) > 0 && (t.apart[v.Rank] || t.fenced[NodeOf(v.Device)]) {
			return Fenced
		}
		return Lost
	}
	return Unknown
}

// NodeOf is the node part of a device's name: "n1" of "n1.g0"; "" of "".
func NodeOf(device string) string {
	if i := strings.LastIndexByte(device, '.'); i >= 0 {
		return device[:i]
	}
	return device
}

// Coord is a rank's tensor-parallel coordinate, replica and stage; tensor
// parallel varies fastest, then data parallel (Megatron's default order).
func (t *Roster) Coord(rank int32) (tp, dp, pp int) {
	n := int(rank)
	return n % t.TP, n / t.TP % t.DP, n / (t.TP * t.DP)
}
