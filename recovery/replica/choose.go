package replica

import (
	"fmt"
	"slices"
	"strings"

	"github.com/failslow/falcon"
)

// Choice is how a job goes on.
type Choice struct {
	Resume     int64              // first iteration to train, NoIteration with Checkpoint
	Moves      []falcon.ShardMove // by rank, ascending; empty with Checkpoint
	Outvoted   []falcon.Rank      // survivors whose checksum most of their replicas don't share
	Checkpoint bool               // no step can be resumed: all ranks go back to storage
	Why        string
}

// Choose finds the step to resume at and who gets its shard from whom
// (docs/recovery.md, "Resume step"): the largest of the newest step and the one
// before at which every shard has a survivor whose checksum has a majority.
// Whoever does not hold it restores, survivors included. Survivors whose newest
// steps lie further apart than one were not in one job: checkpoint. An error
// wraps ErrQuery.
func Choose(q Query) (Choice, error) {
	if err := q.Check(); err != nil {
		return Choice{}, err
	}
	newest, why := q.newestHeld()
	if why != "" {
		return checkpoint(why), nil
	}
	shards := q.Shards()
	var lacks []string
	for s := newest; s >= max(newest-1, 0); s-- {
		sources, outvoted, lack := q.sourcesAt(shards, s)
		if lack == "" {
			moves := q.planMoves(sources, s)
			return Choice{
				Resume:   s,
				Moves:    moves,
				Outvoted: outvoted,
				Why:      explainChoice(s, len(moves), lacks),
			}, nil
		}
		if !slices.Contains(lacks, lack) {
			lacks = append(lacks, lack)
		}
	}
	return checkpoint(strings.Join(lacks, "; ")), nil
}

func checkpoint(why string) Choice {
	return Choice{
		Resume:     falcon.NoIteration,
		Checkpoint: true,
		Why:        why,
	}
}

func explainChoice(s int64, moves int, lacks []string) string {
	text := fmt.Sprintf("every shard has a survivor that holds step %d; ranks that restore it: %d", s, moves)
	if len(lacks) > 0 {
		text += "; one step later " + lacks[0]
	}
	return text
}

// newestHeld is the newest step that a survivor holds, or why there is none.
func (q Query) newestHeld() (int64, string) {
	low := falcon.Rank(-1)
	high := falcon.Rank(-1)
	for r, h := range q.Holds {
		s := newestStep(h)
		if s < 0 {
			continue
		}
		if low < 0 ||
			s < newestStep(q.Holds[low]) ||
			(s == newestStep(q.Holds[low]) && r < low) {
			low = r
		}
		if high < 0 ||
			s > newestStep(q.Holds[high]) ||
			(s == newestStep(q.Holds[high]) && r < high) {
			high = r
		}
	}
	if high < 0 {
		return falcon.NoIteration, "no survivor holds a step"
	}
	a := newestStep(q.Holds[low])
	b := newestStep(q.Holds[high])
	if b-a > 1 {
		return falcon.NoIteration, fmt.Sprintf(
			"rank %d is at step %d and rank %d at step %d: survivors of one job are at most one step apart",
			low, a, high, b,
		)
	}
	return b, ""
}

// newestStep is the newest step of a hold, negative = none.
func newestStep(h falcon.RankHold) int64 {
	return max(h.Steps[0], h.Steps[1])
}

// sourcesAt lists, by shard, the survivors that may give step s away, and those
// that hold it with a checksum of a minority; or what is lacking.
func (q Query) sourcesAt(
	shards [][]falcon.Rank,
	s int64,
) (good map[int][]falcon.Rank, outvoted []falcon.Rank, lack string) {
	good = make(map[int][]falcon.Rank, len(shards))
	for _, ranks := range shards {
		yes, no, held := q.majority(ranks, s)
		switch {
		case len(yes) > 0:
			good[q.shardOf(ranks[0])] = yes
			outvoted = append(outvoted, no...)
		case held > 0:
			return nil, nil, fmt.Sprintf(
				"the survivors of the shard of %s disagree about step %d: no checksum has a majority",
				nameRanks(ranks), s,
			)
		default:
			return nil, nil, q.whyNotHeld(ranks, s)
		}
	}
	slices.Sort(outvoted)
	return good, outvoted, ""
}

// majority splits one shard's survivors at step s by the checksum more than half of them have.
func (q Query) majority(ranks []falcon.Rank, s int64) (yes, no []falcon.Rank, held int) {
	by := map[uint64][]falcon.Rank{}
	for _, r := range ranks {
		if sum, ok := q.Holds[r].At(s); q.survives(r) && ok {
			by[sum] = append(by[sum], r)
			held++
		}
	}
	for _, same := range by {
		if 2*len(same) > held {
			yes = same
		} else {
			no = append(no, same...)
		}
	}
	if yes == nil {
		no = nil
	}
	return yes, no, held
}

// whyNotHeld is why no survivor holds step s of the shard of these ranks.
func (q Query) whyNotHeld(ranks []falcon.Rank, s int64) string {
	for _, r := range ranks {
		if q.survives(r) && newestStep(q.Holds[r]) >= 0 {
			return fmt.Sprintf("no survivor of the shard of %s holds step %d", nameRanks(ranks), s)
		}
	}
	return q.whyLost(ranks)
}

// whyLost is why a shard is lost with all of these ranks.
func (q Query) whyLost(ranks []falcon.Rank) string {
	switch {
	case q.ZeRO.Stage > 0 && q.ZeRO.Instances == 1:
		return fmt.Sprintf(
			"ZeRO with one optimizer instance has a single copy of every shard, and the one of %s is lost with it",
			nameRanks(ranks),
		)
	case len(ranks) == 1:
		return fmt.Sprintf("one data-parallel rank has no replica, and the state of %s is lost with it",
			nameRanks(ranks))
	}
	return fmt.Sprintf("the shard is lost with %s, which hold all its copies", nameRanks(ranks))
}

// namedMost bounds the ranks that a sentence names.
const namedMost = 4

func nameRanks(ranks []falcon.Rank) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d", ranks[0])
	}
	var b strings.Builder
	for i, r := range ranks[:min(len(ranks), namedMost)] {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%d", r)
	}
	if more := len(ranks) - namedMost; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return "ranks " + b.String()
}
