// Package roster derives from one snapshot the tables that every console draws
// it by: ranks by number, who is not healthy, what each rank shows by each
// metric, which ranks share a node.
//
// A Roster is made once for a snapshot, by the feed that receives it, and shared
// by all who show it. Its tables are made when first asked for, once; nobody may
// modify them, and all methods may be called from any goroutine. It owns no
// goroutines, does no I/O and holds nothing that the snapshot does not say.
package roster

import (
	"cmp"
	"strings"
	"sync"

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

	over    bool
	fenced  map[string]bool // nodes, by the newest recovery
	apart   map[int32]bool  // ranks, likewise
	columns [metrics]column
	clock   struct {
		once sync.Once
		mhz  float64
	}
	hosts struct {
		once sync.Once
		of   *Hosts
	}
}

type column struct {
	once  sync.Once
	codes []Code
}

// Make derives a roster from a snapshot that nobody modifies any more.
func Make(snap *falconv1.SnapshotReply) *Roster {
	job := snap.GetJob()
	t := &Roster{
		TP: max(1, int(job.GetTp())), DP: max(1, int(job.GetDp())), PP: max(1, int(job.GetPp())),
		over: job.GetState() == Finished,
	}
	world := min(maxRanks, max(0, int(job.GetWorld())))
	if world == 0 {
		world = len(snap.GetRanks())
	}
	t.Ranks = make([]*falconv1.RankView, world)
	for _, r := range snap.GetRanks() {
		if r != nil && r.Rank >= 0 && int(r.Rank) < world {
			t.Ranks[r.Rank] = r
		}
	}
	t.exclude(snap.GetRecovery())
	t.judge()
	return t
}

// Derive is Make with the tables that the maps need first, as a feed remembers
// it with the snapshot (feed.Memo).
func Derive(snap *falconv1.SnapshotReply) any {
	t := Make(snap)
	t.Codes(Auto)
	return t
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

// judge lists and counts in one pass.
func (t *Roster) judge() {
	best := -1
	var bestKey [3]int
	for i, r := range t.Ranks {
		s := t.Standing(int32(i))
		t.Count[s]++
		if r.GetSelfRatio() > 0 {
			t.Measured = true
		}
		if Gravity(s) > 0 {
			t.Anomalies = append(t.Anomalies, int32(i))
		}
		if s == Culprit || s == Lost {
			t.Critical = append(t.Critical, int32(i))
		}
		key := [3]int{Gravity(s), SelfLevel(r.GetSelfRatio()), int(r.GetLevel())}
		if r != nil && (best < 0 || cmp.Or(cmp.Compare(key[0], bestKey[0]), cmp.Compare(key[1], bestKey[1]), cmp.Compare(key[2], bestKey[2])) > 0) {
			best, bestKey = i, key
		}
	}
	t.Worst = int32(max(0, best))
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
	if rank < 0 || int(rank) >= len(t.Ranks) {
		return Unknown
	}
	return t.StandingOf(t.Ranks[rank])
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
