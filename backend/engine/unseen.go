package engine

import (
	"fmt"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Bits of Comm.unseen: traffic without a call of every rank that takes part. They are
// FALCON_TRAFFIC_DEVICE and FALCON_TRAFFIC_ONESIDED of native/include/falcon_shm.h.
const trafficUnseen = 1<<0 | 1<<2

// unseenText is the alarm about processes that seem to hold ranks and that are not
// followed; "" where there are none. Nothing else is concluded from them.
func (c *clusterView) unseenText() string {
	n, first := 0, ""
	for _, node := range c.nodes.Nodes() {
		if !node.Connected() {
			continue
		}
		for _, u := range node.Beat.GetUnseen()[:min(len(node.Beat.GetUnseen()), gpusMax)] {
			if !c.job.mayLack(falcon.Rank(u.GetRank())) &&
				!(u.GetRank() < 0 && c.job.lacksRanks()) {
				continue
			}
			if n++; n == 1 {
				first = unprovenOf(u).On(node.Name)
			}
		}
	}
	if n > 1 {
		return fmt.Sprintf("%d ranks are not seen, the first: %s", n, first)
	}
	return first
}

// unseenViews are the sentences about a node's processes that are not followed.
func unseenViews(list []*falconv1.UnseenRank) []string {
	var out []string
	for _, u := range list[:min(len(list), unseenShown)] {
		out = append(out, unprovenOf(u).String())
	}
	return out
}

// standbysView is what a node says of its standbys, nil for nothing.
func standbysView(m *falconv1.Standbys) *falconv1.Standbys {
	if m == nil {
		return nil
	}
	return &falconv1.Standbys{
		Wanted:     max(0, m.GetWanted()),
		Ready:      max(0, m.GetReady()),
		ResidentMb: max(0, m.GetResidentMb()),
		Why:        clean(m.GetWhy()),
	}
}

// unseenShown bounds what is shown of one node.
const unseenShown = 8

// unprovenOf reads what an agent says of one process. One that gives no reason says
// whether the hook is loaded.
func unprovenOf(m *falconv1.UnseenRank) falcon.Unproven {
	u := convert.UnprovenFromProto(m)
	u.Path = clean(u.Path)
	u.RefusedCall = clean(u.RefusedCall)
	u.RefusedBy = clean(u.RefusedBy)
	switch {
	case u.Reason != falcon.UnprovenNone:
	case m.GetHooked():
		u.Reason = falcon.UnprovenNoCall
	default:
		u.Reason = falcon.UnprovenNoHook
	}
	return u
}

// lacksRanks reports whether a process of an unknown rank could be one of the job's.
func (j *job) lacksRanks() bool {
	if j.world() == 0 {
		return true
	}
	for r := range j.world() {
		if j.mayLack(falcon.Rank(r)) {
			return true
		}
	}
	return false
}

// mayLack reports whether a rank could be held by a process that is not seen: not by
// one of another job, and not where the rank lives or has ended in order.
func (j *job) mayLack(r falcon.Rank) bool {
	if r < 0 || j.claimed > 0 && int(r) >= j.claimed {
		return false
	}
	p := j.ranks[r]
	return p == nil || !p.state.GetAlive() && !falconv1.ExitedWell(p.state.GetExit())
}

// unseenTraffic is the doubt about communicators whose calls do not show all that
// they carry.
func (j *job) unseenTraffic() string {
	for r := range j.world() {
		p := j.ranks[falcon.Rank(r)]
		for _, m := range p.liveComms() {
			if m.GetUnseen()&trafficUnseen != 0 {
				return fmt.Sprintf(
					"communicator %s of rank %d carries device-initiated or one-sided traffic, which is not seen",
					commText(m), r,
				)
			}
		}
	}
	return ""
}

func (p *process) liveComms() []*falconv1.Comm {
	if p == nil || !p.state.GetAlive() {
		return nil
	}
	return p.state.GetComms()
}

func commText(m *falconv1.Comm) string {
	if name := clean(m.GetName()); name != "" {
		return name
	}
	return fmt.Sprintf("%016x", m.GetId())
}
