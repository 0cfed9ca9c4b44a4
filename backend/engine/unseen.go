package engine

import (
	"fmt"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Bits of Comm.unseen: traffic without a call of every rank that takes part. They are
// FALCON_TRAFFIC_DEVICE and FALCON_TRAFFIC_ONESIDED of native/include/falcon_shm.h.
const trafficUnseen = 1<<0 | 1<<2

// unseenText is the alarm about processes that train as ranks and that the hook shows
// nothing of; "" where there are none.
func (c *clusterView) unseenText() string {
	n, first := 0, ""
	for _, node := range c.nodes.Nodes() {
		if !node.Connected() {
			continue
		}
		for _, u := range node.Beat.GetUnseen()[:min(len(node.Beat.GetUnseen()), gpusMax)] {
			if !c.job.mayLack(falcon.Rank(u.GetRank())) {
				continue
			}
			if n++; n == 1 {
				first = describeUnseen(node.Name, u)
			}
		}
	}
	if n > 1 {
		return fmt.Sprintf("%d ranks are not seen, the first: %s", n, first)
	}
	return first
}

func describeUnseen(node falcon.Node, u *falconv1.UnseenRank) string {
	if u.GetHooked() {
		return fmt.Sprintf("rank %d on %s (process %d): no NCCL call has come to the hook", u.GetRank(), node, u.GetPid())
	}
	return fmt.Sprintf("rank %d on %s (process %d) runs without the hook: start it with falcon-agent run", u.GetRank(), node, u.GetPid())
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
				return fmt.Sprintf("communicator %s of rank %d carries device-initiated or one-sided traffic, which is not seen", commText(m), r)
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
