package peer

import (
	"cmp"
	"slices"

	"github.com/failslow/falcon"
)

// class is one kind of collective call on one communicator.
type class struct {
	comm  uint64
	op    falcon.Op
	bytes int64
}

// joinedCalls is a class's calls, one row per call that every member measured.
type joinedCalls struct {
	class
	members []falcon.Rank // ascending
	rows    []row         // in order of the calls
	calls   float64       // per iteration
}

// row is one call: its members' durations.
type row struct {
	ordinal uint64
	ms      []float64 // by member
}

// callJoin lays the collective calls of all ranks side by side by (communicator,
// ordinal). A call that a member did not measure has no row: without the last
// arriver the least duration is not the transfer.
type callJoin struct {
	profiles []falcon.RankProfile
	// of each profile: its timed collective calls, by communicator, ordinal and class
	order   [][]int32
	members map[uint64][]span // of each communicator, in order of the ranks
	// of each profile's calls that end together: the least duration of any member, 0 = unknown
	least    [][]float64
	together bool          // there are such calls
	classes  []joinedCalls // by their members
	index    map[class]int // in classes, while they are joined
}

// span are one profile's calls on one communicator, in its order.
type span struct{ profile, from, to int32 }

// joinCalls joins the calls of profiles, which are in order of their ranks.
func (w *Window) joinCalls(profiles []falcon.RankProfile) *callJoin {
	j := &callJoin{
		profiles: profiles,
		order:    make([][]int32, len(profiles)),
		members:  map[uint64][]span{},
		index:    map[class]int{},
		least:    make([][]float64, len(profiles)),
	}
	rates := map[class][]float64{}
	for i := range profiles {
		j.arrange(i)
		j.addSpans(i, rates)
	}
	for comm, spans := range j.members {
		if w.isComplete(comm, j.profiles, spans) {
			j.joinOn(spans)
		}
	}
	for i := range j.classes {
		// Ranks may have lost different iterations: few calls may be left that all measured.
		j.classes[i].calls = falcon.Median(rates[j.classes[i].class])
	}
	slices.SortFunc(j.classes, func(a, b joinedCalls) int {
		return cmp.Or(slices.Compare(a.members, b.members), compareClasses(a.class, b.class))
	})
	return j
}

func compareClasses(a, b class) int {
	return cmp.Or(
		cmp.Compare(a.comm, b.comm),
		cmp.Compare(a.op, b.op),
		cmp.Compare(a.bytes, b.bytes),
	)
}

func classOf(c *falcon.CallTiming) class {
	return class{c.Comm, c.Op, c.Bytes}
}

// compareCalls orders calls by communicator, then as their members make them.
func compareCalls(a, b *falcon.CallTiming) int {
	switch {
	case a.Comm != b.Comm:
		return cmp.Compare(a.Comm, b.Comm)
	case a.Ordinal != b.Ordinal:
		return cmp.Compare(a.Ordinal, b.Ordinal)
	}
	return compareClasses(classOf(a), classOf(b))
}

// arrange sorts the timed collective calls of a profile; of equal ones the last comes last.
func (j *callJoin) arrange(profile int) {
	calls := j.profiles[profile].Calls
	order := make([]int32, 0, len(calls))
	for i := range calls {
		if !isMessage(calls[i].Op) && positive(calls[i].DurationMs) {
			order = append(order, int32(i))
		}
	}
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(compareCalls(&calls[a], &calls[b]), cmp.Compare(a, b))
	})
	j.order[profile] = order
	j.least[profile] = make([]float64, len(calls))
}

// addSpans notes where a profile's calls on each communicator are, and how often it makes
// each class of them in an iteration.
func (j *callJoin) addSpans(profile int, rates map[class][]float64) {
	p := &j.profiles[profile]
	order := j.order[profile]
	made := map[class]int{}
	from := 0
	for i, at := range order {
		c := &p.Calls[at]
		made[classOf(c)]++
		if i+1 == len(order) || p.Calls[order[i+1]].Comm != c.Comm {
			j.members[c.Comm] = append(j.members[c.Comm], span{int32(profile), int32(from), int32(i + 1)})
			from = i + 1
		}
	}
	for k, n := range made {
		rates[k] = append(rates[k], float64(n)/float64(max(1, p.Iterations)))
	}
}

// isComplete reports whether two or more ranks call on the communicator, and by the job no
// member is missing.
func (w *Window) isComplete(comm uint64, profiles []falcon.RankProfile, spans []span) bool {
	for _, s := range spans {
		for _, c := range w.Comms[profiles[s.profile].Rank] {
			if c.ID == comm && c.Size != len(spans) {
				return false
			}
		}
	}
	return len(spans) > 1
}

// joinOn joins the calls on one communicator.
func (j *callJoin) joinOn(spans []span) {
	members := make([]falcon.Rank, len(spans))
	for m, s := range spans {
		members[m] = j.profiles[s.profile].Rank
	}
	room := make([]float64, len(spans)*int(spans[0].to-spans[0].from))
	for spans[0].from < spans[0].to {
		key := j.callAt(spans[0])
		ms := room[:len(spans):len(spans)]
		found, more := j.take(spans, key, ms)
		if !more {
			return
		}
		if !found {
			continue
		}
		room = room[len(spans):]
		at, known := j.index[classOf(key)]
		if !known {
			at = len(j.classes)
			j.index[classOf(key)] = at
			j.classes = append(j.classes, joinedCalls{class: classOf(key), members: members})
		}
		j.classes[at].rows = append(j.classes[at].rows, row{key.Ordinal, ms})
	}
}

func (j *callJoin) callAt(s span) *falcon.CallTiming {
	return &j.profiles[s.profile].Calls[j.order[s.profile][s.from]]
}

// take moves all members beyond one call and reports whether each of them measured it, and
// whether later calls can be joined.
func (j *callJoin) take(spans []span, key *falcon.CallTiming, ms []float64) (found, more bool) {
	found = true
	for m := range spans {
		s := &spans[m]
		for s.from < s.to && compareCalls(j.callAt(*s), key) < 0 {
			s.from++
		}
		if s.from == s.to {
			return false, false
		}
		has := false
		for s.from < s.to && compareCalls(j.callAt(*s), key) == 0 {
			ms[m] = j.callAt(*s).DurationMs
			has = true
			s.from++
		}
		found = found && has
	}
	if found && endsTogether(key.Op) {
		j.together = true
		least := slices.Min(ms)
		for _, s := range spans {
			j.least[s.profile][j.order[s.profile][s.from-1]] = least
		}
	}
	return found, true
}
