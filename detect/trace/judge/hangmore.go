package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/trace"
	"github.com/failslow/falcon/detect/trace/hang"
)

// Extra holds records of a hang other than flight-recorder dumps.
type Extra struct {
	RAS    *trace.RAS // nil = none
	Stacks []trace.Stack
}

// weighStacks clears culprits whose stack shows that they wait in communication that
// their dump does not have, such as on another backend.
func (x Extra) weighStacks(r *TraceReport, a *hang.Answer) {
	at := map[falcon.Rank]trace.Stack{}
	for _, s := range x.Stacks {
		at[falcon.Rank(s.Rank)] = s
	}
	var kept []hang.Finding
	for _, f := range a.Culprits {
		if f.Kind != hang.Behind {
			kept = append(kept, f)
			continue
		}
		waits := f
		waits.Ranks = nil
		f.Ranks = slices.DeleteFunc(slices.Clone(f.Ranks), func(rank falcon.Rank) bool {
			place, in := waitingPlace(at[rank].Frames)
			if in {
				waits.Ranks = append(waits.Ranks, rank)
				r.addNote(falcon.EvidenceTiming, true,
					"Rank %d is not named: by its stack it waits for others in %s, which its dump does not have",
					rank, place)
			}
			return in
		})
		if len(waits.Ranks) > 0 {
			a.Candidates = append(a.Candidates, waits)
		}
		if len(f.Ranks) > 0 {
			kept = append(kept, f)
		}
	}
	a.Culprits = kept
	for _, f := range kept {
		for _, rank := range f.Ranks {
			if frames := at[rank].Frames; len(frames) > 0 {
				r.addNote(falcon.EvidenceTiming, false, "Rank %d: its main thread is in %s",
					rank, frames[0].Text())
			}
		}
	}
}

// communication are the functions in which a thread waits for other ranks.
var communication = map[string]bool{
	"all_reduce":             true,
	"all_gather":             true,
	"all_gather_into_tensor": true,
	"all_gather_single":      true,
	"reduce_scatter":         true,
	"reduce_scatter_tensor":  true,
	"all_to_all":             true,
	"all_to_all_single":      true,
	"broadcast":              true,
	"reduce":                 true,
	"gather":                 true,
	"scatter":                true,
	"barrier":                true,
	"monitored_barrier":      true,
	"send":                   true,
	"recv":                   true,
	"batch_isend_irecv":      true,
	"all_gather_object":      true,
	"gather_object":          true,
	"broadcast_object_list":  true,
	"wait_tensor":            true,
	"new_group":              true,
	"init_process_group":     true,
}

// waitingPlace returns the innermost frame that waits for other ranks.
func waitingPlace(frames []trace.StackFrame) (string, bool) {
	const deep = 16
	for _, f := range frames[:min(len(frames), deep)] {
		if communication[f.Name] && strings.Contains(f.File, "distributed") {
			return f.Text(), true
		}
	}
	return "", false
}

// weighRAS names ranks without a dump that RAS reports as dead or unresponsive.
func (x Extra) weighRAS(r *TraceReport, a *hang.Answer, world int) {
	gone := goneByRAS(x.RAS, world)
	for _, rank := range slices.Sorted(maps.Keys(gone)) {
		r.addNote(falcon.EvidenceTiming, false, "RAS: rank %d, %s", rank, gone[rank])
	}
	a.Candidates = slices.DeleteFunc(a.Candidates, func(f hang.Finding) bool {
		sure := f.Kind == hang.Missing &&
			!slices.ContainsFunc(f.Ranks, func(r falcon.Rank) bool {
				return gone[r] == ""
			})
		if sure {
			a.Culprits = append(a.Culprits, f)
		}
		return sure
	})
}

// goneByRAS are the missing ranks in RAS' communicators of the whole job, whose
// ranks are those of the job.
func goneByRAS(ras *trace.RAS, world int) map[falcon.Rank]string {
	gone := map[falcon.Rank]string{}
	if ras == nil {
		return gone
	}
	for _, c := range ras.Comms {
		if c.Size != world {
			continue
		}
		for _, m := range c.Missing {
			switch {
			case m.Dead:
				gone[falcon.Rank(m.Rank)] = fmt.Sprintf("process %d on %s, is reported dead",
					m.Pid, m.Host)
			case m.Silent:
				gone[falcon.Rank(m.Rank)] = fmt.Sprintf("process %d on %s, does not answer",
					m.Pid, m.Host)
			}
		}
	}
	return gone
}

// RAS judges the output of NCCL's RAS alone: ranks that are missing in a
// communicator, and ranks with fewer collectives than the other members. The ranks
// of a job are those of its largest communicator.
func RAS(ras trace.RAS) TraceReport {
	r := TraceReport{Source: "nccl_ras"}
	r.Cause = falcon.CauseUnknown
	s := rasStandstill(ras)
	a := hang.Solve(s.job)
	Extra{RAS: &ras}.weighRAS(&r, &a, len(s.job.Members))
	if !s.reportHang(&r, a) {
		r.addNote(falcon.EvidenceTiming, true,
			"In all %d communicators all members have the same number of collectives, and none is missing",
			len(ras.Comms))
	} else {
		r.addNote(falcon.EvidenceTiming, true,
			"RAS counts started collectives only; flight-recorder dumps have more detail")
	}
	r.fillEmptyLists()
	return r
}

// process identifies a rank in all communicators.
type process struct {
	host        string
	pid, device int64
}

// rasStandstill converts RAS' communicators to groups: members with the most
// collectives wait in the newest one.
func rasStandstill(ras trace.RAS) *standstill {
	s := &standstill{}
	if len(ras.Comms) == 0 {
		return s
	}
	largest := slices.MaxFunc(ras.Comms, func(a, b trace.RASComm) int {
		return cmp.Compare(len(a.Ranks)+len(a.Missing), len(b.Ranks)+len(b.Missing))
	})
	rankOf := map[process]falcon.Rank{}
	for _, m := range slices.Concat(largest.Ranks, largest.Missing) {
		rankOf[process{m.Host, m.Pid, m.Device}] = falcon.Rank(m.Rank)
	}
	members := map[falcon.Rank]*hang.Member{}
	for _, rank := range rankOf {
		members[rank] = &hang.Member{
			Rank:  rank,
			Asked: map[int]int64{},
			Done:  map[int]int64{},
		}
	}
	for _, c := range ras.Comms {
		s.addRASComm(c, rankOf, members)
	}
	for _, rank := range slices.Sorted(maps.Keys(members)) {
		s.job.Members = append(s.job.Members, *members[rank])
	}
	return s
}

func (s *standstill) addRASComm(
	c trace.RASComm,
	rankOf map[process]falcon.Rank,
	members map[falcon.Rank]*hang.Member,
) {
	at := len(s.job.Groups)
	g := hang.Group{Name: c.Hash}
	newest := int64(0)
	for _, m := range c.Ranks {
		newest = max(newest, m.Calls)
	}
	for _, m := range slices.Concat(c.Ranks, c.Missing) {
		rank, ok := rankOf[process{m.Host, m.Pid, m.Device}]
		if !ok {
			continue // not in the largest communicator
		}
		g.Members = append(g.Members, rank)
		if m.Counts == nil || m.Dead || m.Silent {
			continue
		}
		o := members[rank]
		o.Seen = true
		o.Asked[at] = m.Calls
		if m.Calls == newest &&
			newest > 0 &&
			(lagging(c, newest) || len(c.Missing) > 0) {
			o.Pending = append(o.Pending, hang.Call{
				Group: at,
				Seq:   newest,
				Name:  "the newest",
			})
		}
	}
	slices.Sort(g.Members)
	s.job.Groups = append(s.job.Groups, g)
}

// lagging reports whether a member has fewer collectives than newest.
func lagging(c trace.RASComm, newest int64) bool {
	return slices.ContainsFunc(c.Ranks, func(m trace.RASRank) bool { return m.Calls < newest })
}
