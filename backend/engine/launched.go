package engine

import (
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// launchEndedRecord is a rank of a launch that has ended with success before the
// launch was the job: some nodes were not heard meanwhile. An engine that starts
// after it must not take the launch for one that never came up.
type launchEndedRecord struct {
	Generation uint64      `json:"generation"`
	Rank       falcon.Rank `json:"rank"`
}

func (m *journalState) launchEnded(v launchEndedRecord) {
	r := &m.restart
	if r.Launch == nil || r.Launch.Generation != v.Generation {
		return
	}
	if i, found := slices.BinarySearch(r.Ended, v.Rank); !found {
		r.Ended = slices.Insert(r.Ended, i, v.Rank)
	}
}

// noteEnded makes the end of a launched rank durable.
func (rs *restartDriver) noteEnded(now time.Time, p *process) {
	r := rs.state.restart
	if r.Phase != phaseLaunching || p.state.GetAlive() || p.state.GetGeneration() != r.Launch.Generation || !falconv1.ExitedWell(p.state.GetExit()) {
		return
	}
	if _, noted := slices.BinarySearch(r.Ended, p.rank); noted || int(p.rank) >= len(r.Launch.Placement) {
		return
	}
	v := launchEndedRecord{Generation: r.Launch.Generation, Rank: p.rank}
	rs.batch.apply(record(now, kindLaunchEnded, v))
}

// finished ends the restart of a job that has finished since. Who has not
// seen all of its processes knows them by the launch.
func (rs *restartDriver) finished(now time.Time, r restartRecord) {
	rs.turnTo(now, r, phaseOver)
	rs.oplog.logf("action", 1, "launch %d has run to its end: all %d ranks ended normally", r.Launch.Generation, len(r.Launch.Placement))
	rec := rs.cluster.unseenLaunch(*r.Launch)
	if n := len(r.Launch.Placement); len(rs.job.ranks) == n && rs.job.world() == n {
		rec, _, _ = rs.describer.candidate()
	}
	rs.beginEpoch(now, rec) // the job was another one, if nobody has seen it
	rs.describer.commit(now, rec)
	ended := endedRecord{JobEpoch: rec.Epoch, Ranks: slices.Clone(r.Ended)}
	rs.batch.addRecords(record(now, kindEnded, ended))
	rs.launchOver(now, r)
}

// unseenLaunch is the job that a launch has started, without its processes.
func (c *clusterView) unseenLaunch(l falcon.Launch) jobRecord {
	was := c.state.job
	return jobRecord{
		Epoch: was.Epoch + 1, Processes: make([]string, len(l.Placement)), Layout: was.Layout,
		Placement: slices.Clone(l.Placement), Generation: l.Generation, Adapter: was.Adapter,
	}
}
