package engine

import (
	"cmp"
	"encoding/hex"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/journal"
)

// place is the position of a line in the journal.
type place struct {
	record uint64
	hash   journal.Hash
}

// reportOn adds to an answer about one incident what its report needs: the
// lines about it with their places in the journal, the recoveries that belong to
// it, iteration time around it, and the job.
func (sv *stateViews) reportOn(out *falconv1.IncidentsReply, v falcon.Incident) {
	now := sv.cfg.Now()
	out.Job, out.AtUnixNs, out.EngineId = sv.jobView(now), now.UnixNano(), sv.id
	about := []string{v.ID}
	for _, t := range out.Validations {
		about = append(about, t.GetId())
	}
	for _, r := range sv.state.recoveries {
		if sv.cluster.belongsTo(r, v) {
			out.Recoveries, about = append(out.Recoveries, convert.RecoveryToProto(r)), append(about, r.ID)
		}
	}
	out.Events = sv.linesAbout(about, v)
	out.Chart = sv.chartOf(v)
}

// belongsTo reports whether a recovery belongs to an incident: it handled a fault that
// came while the incident lasted, or shortly after, or one of a node that the
// incident names. A device that was slow and then died is one incident.
func (c *clusterView) belongsTo(r falcon.Recovery, v falcon.Incident) bool {
	for _, f := range r.Faults {
		if slices.ContainsFunc(v.Verdict.Devices, func(d falcon.Device) bool {
			return d.Node() == f.Node
		}) {
			return true
		}
	}
	at := c.struckRanks(r)
	if at == falcon.NoIteration {
		return v.Open() && !r.State.Over()
	}
	return at >= v.OnsetIteration &&
		(v.RelievedIteration == falcon.NoIteration || at <= v.RelievedIteration+chartMargin)
}

// struckRanks is the iteration in which a recovery's fault came: what the processes
// said, else, where none was asked, that of the first line about it.
func (c *clusterView) struckRanks(r falcon.Recovery) int64 {
	if r.Before != falcon.NoIteration {
		return r.Before
	}
	for _, line := range c.state.events {
		if names(line, []string{r.ID}) {
			return line.GetIteration()
		}
	}
	return falcon.NoIteration
}

// linesAbout are copies of the lines that name one of the ids, and of what the kernels of the
// incident's nodes have said, oldest first.
func (sv *stateViews) linesAbout(about []string, v falcon.Incident) []*falconv1.EventLine {
	var out []*falconv1.EventLine
	for i, line := range sv.state.events {
		if !names(line, about) && !sv.cluster.isKernelLineOf(line, v) {
			continue
		}
		c := proto.CloneOf(line)
		c.Record, c.Hash = sv.state.places[i].record, hex.EncodeToString(sv.state.places[i].hash[:])
		out = append(out, c)
	}
	return out
}

// names reports whether a line is about one of the ids, or an action of one. Lines
// written before lines had a subject name it in their text.
func names(line *falconv1.EventLine, ids []string) bool {
	about := cmp.Or(line.GetAudit().GetAbout(), line.GetAbout())
	incident, _, _ := strings.Cut(about, "/")
	return slices.ContainsFunc(ids, func(id string) bool {
		return id != "" &&
			(id == about || id == incident || about == "" && strings.Contains(line.GetText(), id))
	})
}

// chartOf is iteration time around an incident on the rank that it names
// first, as far as the detector still holds it; nil where it holds none.
func (sv *stateViews) chartOf(v falcon.Incident) *falconv1.Series {
	rank := falcon.Rank(0)
	if len(v.Verdict.Ranks) > 0 {
		rank = v.Verdict.Ranks[0]
	}
	newest := sv.det.Steady().Iteration
	if int(rank) >= sv.state.job.Layout.World() || v.OnsetIteration > newest {
		return nil
	}
	from := max(0, v.OnsetIteration-chartMargin)
	if newest-from >= ColumnsMax &&
		v.RelievedIteration != falcon.NoIteration &&
		newest-v.RelievedIteration >= ColumnsMax {
		return nil // of another time
	}
	s := sv.series(rank, int(min(ColumnsMax, newest-from+1)), 0)
	if v.RelievedIteration != falcon.NoIteration {
		cutAfter(s, v.RelievedIteration+chartMargin)
	}
	s.Posterior, s.MapRunLength = nil, nil
	if len(s.Ms) == 0 {
		return nil
	}
	return s
}

// cutAfter drops the iterations behind one.
func cutAfter(s *falconv1.Series, last int64) {
	keep := max(0, min(int64(len(s.Ms)), last-s.FirstIteration+1))
	s.Ms, s.Probability = s.Ms[:keep], s.Probability[:keep]
}
