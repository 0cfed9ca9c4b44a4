// Package roster derives from one snapshot the tables that every console draws
// it by: ranks by number, who is not healthy, what each rank shows by each
// metric, which ranks share a node.
//
// A Roster is made once for a snapshot, by the feed that receives it, and shared
// by all who show it. Its tables must not be modified, and all methods may be called
// from any goroutine. It owns no goroutines, does no I/O and holds nothing that
// the snapshot does not say.
package roster

import (
	"iter"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/columns"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Standing is what a rank is, by all that the snapshot says of it.
type Standing uint8

// The standings, in the order in which a tally names them.
const (
	Culprit Standing = iota // named by an open incident
	LinkEnd                 // at the end of a link that an open incident names
	Lost                    // its process is gone
	Slow                    // suspected, or slow against peers
	Stale                   // nothing fresh from it
	Parked                  // it waits in a recovery, as it should
	Fenced                  // gone because the recovery does not let it take part any more
	Unknown                 // nothing known of it
	Ended                   // gone because the job has finished
	Exited                  // gone with a job that has ended otherwise
	OK
	Standings
)

// Roster is what one snapshot says of all ranks.
type Roster struct {
	TP, DP, PP int         // at least 1
	Mesh       falcon.Mesh // which ranks these are; zero = tensor parallel varies fastest, then data parallel
	Anomalies  []int32     // ranks that are not healthy, ascending
	Critical   []int32     // those of them that are culprits or lost, ascending
	Count      [Standings]int
	Worst      int32 // the rank that most needs a look, the lowest of equals
	Measured   bool  // some rank has a self time

	table     *columns.Table
	standings []Standing // by rank
	finished  bool
	over      bool            // all processes have ended, not by finishing
	parked    map[int32]bool  // ranks that wait in the recovery at work
	lost      map[int32]bool  // ranks that the newest recovery has lost, unless they train again
	fenced    map[string]bool // nodes, by the newest recovery
	apart     map[int32]bool  // ranks, likewise
	ends      map[int32]bool  // ranks that open incidents name for their links alone
	codes     [metrics]lazyCodes
	clock     lazyClock
	spreads   lazySpreads
	found     found
	hosts     lazyHosts
}

// Make derives a roster from a snapshot that is no longer modified. Table is
// what its ranks were made of, or nil where they came as messages.
func Make(snap *falconv1.SnapshotReply, table *columns.Table) *Roster {
	job := snap.GetJob()
	t := &Roster{
		TP:       max(1, int(job.GetTp())),
		DP:       max(1, int(job.GetDp())),
		PP:       max(1, int(job.GetPp())),
		finished: job.GetState() == string(falcon.JobFinished),
		over:     job.GetEnd() != nil,
		fenced:   map[string]bool{},
		apart:    map[int32]bool{},
	}
	t.readMesh(job.GetMesh())
	t.table = tableOf(snap, table)
	t.excludeFenced(snap.GetRecovery())
	t.findLost(snap.GetRecovery())
	t.findLinkEnds(snap.GetIncidents())
	t.standings = make([]Standing, t.table.World())
	healths := t.table.Units(columns.Health)
	devices := t.table.Devices()
	for i := range t.standings {
		t.standings[i] = t.standing(
			falconv1.RankHealth(valueAt(healths, i)),
			int32(i),
			devices[i],
		)
	}
	t.countStandings()
	t.findWorst()
	return t
}

// readMesh takes the engine's mesh. One of other sizes than it says is no mesh.
func (t *Roster) readMesh(text string) {
	if text == "" {
		return
	}
	m, err := falcon.ParseMesh(text)
	l := falcon.Layout{
		TP:   t.TP,
		DP:   t.DP,
		PP:   t.PP,
		Mesh: m,
	}
	if err == nil && l.Validate() == nil {
		t.Mesh = m
	}
}

// layout is that of the ranks.
func (t *Roster) layout() falcon.Layout {
	return falcon.Layout{
		TP:   t.TP,
		DP:   t.DP,
		PP:   t.PP,
		Mesh: t.Mesh,
	}
}

// tableOf is the table that came with a snapshot, or one of its messages.
func tableOf(snap *falconv1.SnapshotReply, table *columns.Table) *columns.Table {
	world := min(columns.MaxWorld, max(0, int(snap.GetJob().GetWorld())))
	switch {
	case world == 0 && table != nil:
		return table
	case world == 0:
		world = min(columns.MaxWorld, len(snap.GetRanks()))
	case table != nil && table.World() == world:
		return table
	}
	return columns.Of(world, snap.GetRanks())
}

// World is the number of ranks.
func (t *Roster) World() int { return len(t.standings) }

// View is what the snapshot says of one rank; nil where that is nothing.
func (t *Roster) View(rank int32) *falconv1.RankView {
	if rank < 0 || int(rank) >= t.World() || t.nothingKnown(rank) {
		return nil
	}
	v := &falconv1.RankView{}
	t.table.Fill(v, int(rank))
	return v
}

// Fill overwrites a view with what the snapshot says of a rank, which must exist.
func (t *Roster) Fill(v *falconv1.RankView, rank int32) {
	t.table.Fill(v, int(rank))
}

func (t *Roster) nothingKnown(rank int32) bool {
	return t.table.Devices()[rank] == "" &&
		valueAt(t.table.Units(columns.Health), int(rank)) == 0
}

// Views goes through all ranks as View does; the next one overwrites the view.
func (t *Roster) Views() iter.Seq2[int32, *falconv1.RankView] {
	return func(yield func(int32, *falconv1.RankView) bool) {
		v := &falconv1.RankView{}
		for i := range t.World() {
			rank := int32(i)
			known := v
			if t.Fill(v, rank); t.nothingKnown(rank) {
				known = nil
			}
			if !yield(rank, known) {
				return
			}
		}
	}
}

// excludeFenced notes whom the newest recovery does not let take part.
func (t *Roster) excludeFenced(r *falconv1.Recovery) {
	for _, n := range r.GetFenced() {
		t.fenced[n] = true
	}
	over := falcon.RecoveryState(r.GetState()).Over()
	for _, x := range r.GetRanks() {
		switch x.GetStage() {
		case "fenced":
			t.apart[x.GetRank()] = true
		case "parked":
			if !over {
				t.markParked(x.GetRank())
			}
		}
	}
}

// findLost notes whose processes the newest recovery has lost, where it has not brought them back.
// Ranks that wait in a hang are not lost.
func (t *Roster) findLost(r *falconv1.Recovery) {
	if falcon.RecoveryState(r.GetState()) == falcon.RecoveryResumed {
		return
	}
	for _, f := range r.GetFaults() {
		switch falcon.FaultKind(f.GetKind()) {
		case falcon.FaultNode, falcon.FaultExit, falcon.FaultDevice:
			for _, rank := range f.GetRanks() {
				if f.GetReturnedUnixNs() == 0 {
					t.markLost(rank)
				}
			}
		case falcon.FaultHang, falcon.FaultFrozen:
		}
	}
}

func (t *Roster) markParked(rank int32) {
	if t.parked == nil {
		t.parked = map[int32]bool{}
	}
	t.parked[rank] = true
}

func (t *Roster) markLost(rank int32) {
	if t.lost == nil {
		t.lost = map[int32]bool{}
	}
	t.lost[rank] = true
}

// findLinkEnds finds the ranks that are named because a link of theirs is slow: they run as fast
// as others.
func (t *Roster) findLinkEnds(list []*falconv1.Incident) {
	t.ends = map[int32]bool{}
	blamed := map[int32]bool{}
	for _, i := range list {
		v := i.GetVerdict()
		state := falcon.IncidentState(i.GetState())
		if state != falcon.IncidentVerified && state != falcon.IncidentLocated {
			continue
		}
		for _, r := range v.GetRanks() {
			if len(v.GetLinks()) > 0 && len(v.GetDevices()) == 0 {
				t.ends[r] = true
			} else {
				blamed[r] = true
			}
		}
	}
	for r := range blamed {
		delete(t.ends, r)
	}
}

// countStandings lists and counts ranks by their standing.
func (t *Roster) countStandings() {
	for i, s := range t.standings {
		t.Count[s]++
		if s == OK {
			continue
		}
		if Gravity(s) > 0 {
			t.Anomalies = append(t.Anomalies, int32(i))
		}
		if s == Culprit || s == LinkEnd || s == Lost {
			t.Critical = append(t.Critical, int32(i))
		}
	}
}

// findWorst finds the worst rank: by gravity, then self time, then the engine's level.
func (t *Roster) findWorst() {
	const levels = 1 << 8
	ratios := t.table.Units(columns.SelfRatio)
	levelOf := t.table.Units(columns.Level)
	most := -1
	for i, s := range t.standings {
		if t.nothingKnown(int32(i)) {
			continue
		}
		weight := Gravity(s) * levels
		if ratio := valueAt(ratios, i); ratio > 0 {
			t.Measured = true
			weight += SelfLevel(float64(ratio) / columns.SelfRatio.Per())
		}
		weight = weight*levels + int(min(levels-1, max(0, valueAt(levelOf, i))))
		if weight > most {
			most = weight
			t.Worst = int32(i)
		}
	}
}

// valueAt is a rank's value in a column; of a column without values 0.
func valueAt(column []int32, rank int) int32 {
	if column == nil {
		return 0
	}
	return column[rank]
}

// Gravity orders standings by how much they must be seen; 0 is no anomaly.
func Gravity(s Standing) int {
	switch s {
	case Culprit, LinkEnd:
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
	return t.standing(v.GetHealth(), v.GetRank(), v.GetDevice())
}

func (t *Roster) standing(health falconv1.RankHealth, rank int32, device string) Standing {
	switch health {
	case falconv1.RankHealth_RANK_HEALTH_OK:
		return OK
	case falconv1.RankHealth_RANK_HEALTH_SLOW:
		return Slow
	case falconv1.RankHealth_RANK_HEALTH_CULPRIT:
		if t.ends[rank] {
			return LinkEnd
		}
		return Culprit
	}
	if t.finished {
		return Ended
	}
	silent := health == falconv1.RankHealth_RANK_HEALTH_STALE ||
		health == falconv1.RankHealth_RANK_HEALTH_LOST
	switch {
	case !silent:
	case t.lost[rank] && t.over:
		return Lost // that is why the job is over
	case t.over:
		return Exited
	case health == falconv1.RankHealth_RANK_HEALTH_LOST && (t.apart[rank] || t.fenced[NodeOf(device)]):
		return Fenced
	case health == falconv1.RankHealth_RANK_HEALTH_LOST || t.lost[rank]:
		return Lost
	case t.parked[rank]:
		return Parked
	default:
		return Stale
	}
	return Unknown
}

// NodeOf is the node part of a device's name: "n1" of "n1.g0"; "" of "".
func NodeOf(device string) string {
	return string(falcon.Device(device).Node())
}

// Coord is a rank's tensor-parallel coordinate, replica and stage.
func (t *Roster) Coord(rank int32) (tp, dp, pp int) {
	c := t.layout().Coord(falcon.Rank(rank))
	return c.TP, c.DP, c.PP
}

// At is the rank at a place.
func (t *Roster) At(tp, dp, pp int) int32 {
	return int32(t.layout().RankOf(falcon.Coord{TP: tp, DP: dp, PP: pp}))
}
