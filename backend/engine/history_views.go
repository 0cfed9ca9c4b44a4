package engine

import (
	"cmp"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/detect/history"
)

// historyReply is a ledger's report within the bounds of an answer.
func historyReply(l *history.Ledger, q history.Query, limit int) *falconv1.HistoryReply {
	r := l.Report(q)
	out := &falconv1.HistoryReply{
		AtUnixNs:    q.NowNs,
		SinceUnixNs: q.SinceNs,
		HalfLifeNs:  int64(cmp.Or(q.HalfLife, history.HalfLife)),
		Incidents:   int32(len(r.Past) + r.Folded),
		Folded:      int32(r.Folded),
		DurationsS:  spreadToProto(r.Durations),
		Slowdowns:   spreadToProto(r.Slowdowns),
		Culprits:    culpritsToProto(r.Culprits, culpritsMost),
	}
	for i := range r.Past[:min(limit, len(r.Past))] {
		out.Past = append(out.Past, entryToProto(&r.Past[i]))
	}
	for _, c := range r.Causes {
		out.Causes = append(out.Causes, &falconv1.CauseCount{
			Cause:      string(c.Cause),
			Incidents:  int32(c.Incidents),
			Share:      c.Share,
			MeanMs:     c.MeanMs,
			LostMs:     c.LostMs,
			MeanLostMs: c.MeanLostMs,
		})
	}
	for _, row := range r.Table {
		v := &falconv1.JobCauses{
			Kind:     string(row.Kind),
			Total:    int32(row.Total),
			Slowed:   int32(row.Slowed),
			Slowdown: row.Slowdown,
		}
		for _, c := range history.Categories {
			v.Categories = append(v.Categories, &falconv1.JobCategory{
				Category: string(c),
				Jobs:     int32(row.Jobs[c]),
			})
		}
		out.Table = append(out.Table, v)
	}
	for i := range r.Jobs[:min(pastJobsMost, len(r.Jobs))] {
		out.Jobs = append(out.Jobs, jobToProto(&r.Jobs[i]))
	}
	return out
}

func pathsToProto(list []history.PathRow) []*falconv1.PathRow {
	var out []*falconv1.PathRow
	for _, p := range list[:min(pathsMost, len(list))] {
		out = append(out, &falconv1.PathRow{
			Class:    string(p.Class),
			Bytes:    p.Bytes,
			Paths:    int32(p.Paths),
			Tests:    int32(p.Tests),
			MeanMs:   p.MeanMs,
			Cov:      p.CoV,
			Worst:    p.Worst,
			WorstCov: p.WorstCoV,
		})
	}
	return out
}

func failStopsToProto(list []history.FailStop) []*falconv1.FailStop {
	var out []*falconv1.FailStop
	for _, f := range list {
		out = append(out, &falconv1.FailStop{
			Kind:   string(f.Kind),
			Faults: int32(f.Faults),
			Share:  f.Share,
			Ranks:  int32(f.Ranks),
			Nodes:  int32(f.Nodes),
			Most:   string(f.Most),
			Times:  int32(f.Times),
			Over:   int32(f.Over),
			Trains: int32(f.Trains),
			DownMs: f.DownMs,
		})
	}
	return out
}

func entryToProto(e *history.Entry) *falconv1.PastIncident {
	v := &falconv1.PastIncident{
		Incident:    e.Incident,
		Job:         e.Job,
		Epoch:       e.Epoch,
		OnsetUnixNs: e.OnsetNs,
		EndUnixNs:   e.EndNs,
		HealthyMs:   e.HealthyMs,
		SlowMs:      e.SlowMs,
		LostMs:      e.LostMs,
		Counted:     e.Counted,
		Cause:       string(e.Cause),
		Also:        convert.Strings(e.Also),
		Devices:     convert.Strings(e.Devices),
		Nics:        convert.Strings(e.NICs),
		Unnamed:     int32(e.Unnamed),
	}
	for _, l := range e.Links {
		v.Links = append(v.Links, l.String())
	}
	return v
}

func jobToProto(j *history.Job) *falconv1.PastJob {
	return &falconv1.PastJob{
		Number:      j.Number,
		Name:        j.Name,
		Kind:        string(j.Kind),
		World:       int32(j.World),
		FirstUnixNs: j.FirstNs,
		LastUnixNs:  j.LastNs,
		Over:        j.Over,
		Iterations:  j.Iterations,
		WatchedMs:   j.WatchedMs,
		LostMs:      j.LostMs,
		Incidents:   int32(j.Incidents),
		Category:    string(j.Category()),
		Slowdown:    j.JCTSlowdown(),
	}
}

func spreadToProto(s history.Spread) *falconv1.Spread {
	return &falconv1.Spread{
		N:         int32(s.N),
		Mean:      s.Mean,
		Quantiles: s.Quantiles,
	}
}

func culpritsToProto(list []history.Culprit, most int) []*falconv1.Culprit {
	var out []*falconv1.Culprit
	for _, c := range list[:min(most, len(list))] {
		v := &falconv1.Culprit{
			Device:      string(c.Device),
			Nic:         string(c.NIC),
			Times:       int32(c.Times),
			Jobs:        int32(c.Jobs),
			Score:       c.Score,
			FirstUnixNs: c.FirstNs,
			LastUnixNs:  c.LastNs,
			Last:        c.Last,
			Lasts:       c.Lasts,
			Causes:      convert.Strings(c.Causes),
		}
		if c.Link != (falcon.Link{}) {
			v.Link = c.Link.String()
		}
		out = append(out, v)
	}
	return out
}
