package engine

import (
	"encoding/hex"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/journal"
)

// place is where a line stands in the journal.
type place struct {
	record uint64
	hash   journal.Hash
}

// chartMargin is how many iterations a report shows before the onset and after
// the relief.
const chartMargin = 40

// reportOn adds to an answer about one incident what its report needs: the
// lines about it with their places in the journal, iteration time around it,
// and the job.
func (e *Engine) reportOn(out *falconv1.IncidentsReply, v falcon.Incident) {
	now := e.cfg.Now()
	out.Job, out.AtUnixNs, out.EngineId = e.jobView(now), now.UnixNano(), e.id
	out.Events = e.linesAbout(v.ID, out.Validations)
	out.Chart = e.chartOf(v)
}

// linesAbout are copies of the lines that name an incident, or a test that was
// made for it, oldest first.
func (e *Engine) linesAbout(id string, tests []*falconv1.Validation) []*falconv1.EventLine {
	about := []string{id}
	for _, t := range tests {
		about = append(about, t.GetId())
	}
	var out []*falconv1.EventLine
	for i, line := range e.mem.events {
		if !names(line, about) {
			continue
		}
		c := proto.CloneOf(line)
		c.Record, c.Hash = e.mem.places[i].record, hex.EncodeToString(e.mem.places[i].hash[:])
		out = append(out, c)
	}
	return out
}

func names(line *falconv1.EventLine, about []string) bool {
	for _, id := range about {
		if id != "" && (strings.Contains(line.GetText(), id) || strings.Contains(line.GetAudit().GetAbout(), id)) {
			return true
		}
	}
	return false
}

// chartOf is iteration time around an incident on the rank that it names
// first, as far as the detector still holds it; nil where it holds none.
func (e *Engine) chartOf(v falcon.Incident) *falconv1.Series {
	rank := falcon.Rank(0)
	if len(v.Verdict.Ranks) > 0 {
		rank = v.Verdict.Ranks[0]
	}
	newest := e.det.Steady().Iteration
	if int(rank) >= e.mem.job.Layout.World() || v.OnsetIteration > newest {
		return nil
	}
	from := max(0, v.OnsetIteration-chartMargin)
	if newest-from >= ColumnsMax && v.RelievedIteration != falcon.NoIteration && newest-v.RelievedIteration >= ColumnsMax {
		return nil // of another time
	}
	s := e.series(rank, int(min(ColumnsMax, newest-from+1)), 0)
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
