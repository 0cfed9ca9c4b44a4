package engine

import (
	"maps"
	"math"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/fleet"
	"github.com/failslow/falcon/detect"
	"github.com/failslow/falcon/mitigate"
)

// measurements passes on what agents measure, to the machines and to the
// journal: profiles, devices' readings, and the speeds that plans are solved with.
type measurements struct {
	*shared

	readings *deviceReadings
	silicon  *siliconWatch

	newSpeeds    bool      // the detector's speeds may be new
	measuredFrom time.Time // the latest that the planner was given
}

func (ms *measurements) profile(n *fleet.Node, in *falconv1.Profile, now time.Time) {
	it := ms.outbox.Find(n.Name, in.GetWindow())
	if it == nil || it.Class != windowCommand {
		return // of an engine before this one, or long past
	}
	id := uint64(it.About.(window))
	it.Close(n.Name)
	ms.newSpeeds = true
	out := detect.Profiled{Window: id, Refused: clean(in.GetRefused())}
	for _, p := range in.GetRanks() {
		if ms.cluster.nodeOf(falcon.Rank(p.GetRank())) == n.Name && plausibleProfile(p) {
			out.Profiles = append(out.Profiles, profileFrom(id, p))
		}
	}
	ms.det.Step(now, out)
}

// compare compares the profiles of a large window beside the loop, which its result reaches as
// a request does.
func (ms *measurements) compare(c detect.Comparison, requests chan<- func(), done <-chan struct{}) {
	go func() { // until the comparison is done, a second or so at 100,000 ranks
		res := c.Run()
		step := func() {
			ms.newSpeeds = true
			ms.det.Step(ms.cfg.Now(), res)
		}
		select {
		case requests <- step:
		case <-done:
		}
	}()
}

func (ms *measurements) telemetry(n *fleet.Node, in *falconv1.Telemetry, now time.Time) {
	var out detect.Readings
	for _, g := range in.GetGpus()[:min(len(in.GetGpus()), gpusMax)] {
		reading := gpuFrom(n.Name, g)
		if reading.Device.Index() >= gpusMax {
			continue
		}
		ms.readings.noteGPU(&reading)
		ms.silicon.watch.Read(now, reading)
		out.GPUs = append(out.GPUs, reading)
	}
	if h := in.GetHost(); h != nil {
		out.Hosts = append(out.Hosts, hostFrom(n.Name, h))
		n.Steal = out.Hosts[0].StealShare
	}
	for _, x := range in.GetNics()[:min(len(in.GetNics()), nicsMax)] {
		if reading, ok := nicFrom(n.Name, x); ok {
			ms.readings.notePort(&reading, now)
			out.NICs = append(out.NICs, reading)
		}
	}
	ms.det.Step(now, out)
	ms.silicon.look(now)
}

// speedsOf is what the newest profile window says, for one incident.
func (ms *measurements) speedsOf(incident string) speedsRecord {
	return speedsRecord{
		Incident: incident,
		SelfMs:   ms.det.Speeds(),
		Profile:  ms.det.Profile(),
	}
}

// announceSpeeds has the speeds of a profile for the planner, where they differ
// from what a located incident was planned with; false where nothing
// differs.
func (ms *measurements) announceSpeeds(now time.Time) bool {
	if !ms.newSpeeds {
		return false
	}
	ms.newSpeeds = false
	_, from := ms.det.Profiled()
	fresh := from.After(ms.measuredFrom)
	changed := fresh
	for _, v := range ms.state.incidents {
		if v.State != falcon.IncidentLocated {
			continue
		}
		next := ms.speedsOf(v.ID)
		if len(next.SelfMs) > 0 && !next.sameSpeeds(ms.state.speeds[v.ID]) {
			ms.batch.addRecords(record(now, kindSpeeds, next))
			ms.plan.Step(now, mitigate.Speeds(next))
			changed = true
		}
	}
	if fresh {
		ms.measuredFrom = from
		ms.plan.Step(now, mitigate.Measured{Begun: from})
	}
	return changed
}

// learned records what the machines have measured, where it changed.
func (ms *measurements) learned(now time.Time, acted bool) {
	steady := ms.det.Steady()
	was := ms.state.baseline
	if !steady.Learning && steady.BaselineMs > 0 &&
		(was.JobEpoch != ms.state.job.Epoch || math.Abs(steady.BaselineMs-was.Ms) > baselineStep*was.Ms) {
		ms.batch.addRecords(record(now, kindBaseline, baselineRecord{
			JobEpoch: ms.state.job.Epoch,
			Ms:       steady.BaselineMs,
		}))
	}
	over := ms.plan.OverheadsMs()
	if acted && len(over) > 0 && !maps.Equal(over, ms.state.overheads) {
		ms.batch.addRecords(record(now, kindOverhead, over))
	}
}

// baselineStep is the relative change of the baseline that is worth a record.
const baselineStep = 0.02
