package detect

import (
	"fmt"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/bocd"
	"github.com/failslow/falcon/detect/peer"
)

// onFaster takes a verified downward change. It relieves no incident by itself: where the
// level is not back, the culprit is looked at.
func (rj *reliefJudge) onFaster(at int64, c bocd.Change) {
	open := rj.incidents.openIncidents()
	if len(open) == 0 {
		if c.AfterMs <= rj.baseline.currentMs()*(1+rj.cfg.Settled) &&
			!rj.incidents.relievedNear(at) {
			rj.baseline.lower(c.AfterMs)
			rj.profile.requestLearning(0)
			rj.out.addNote("", at, "rebase", "New baseline %.1f ms instead of %.1f ms%s",
				c.AfterMs, c.BeforeMs, rj.warmUpText(at))
		}
		return
	}
	at = rj.samples.firstFast(at, (c.BeforeMs+c.AfterMs)/2)
	for _, s := range open {
		s.relief.check, s.relief.fasterAt = s.isLocated() && len(s.actions.inForce) == 0, at
		if s.relief.check && rj.incidents.awaitsNodes(s) {
			s.relief.check, s.relief.silent.later = false, true
		}
	}
	rj.incidents.expediteAll()
}

// checkLevel ends incidents that show in the iteration time when its level is
// back within the settled share of the healthy one.
func (rj *reliefJudge) checkLevel(iteration int64) {
	if rj.samples.isLearning() {
		return
	}
	rj.checkClocks()
	for _, s := range rj.incidents.openIncidents() {
		if rj.incidents.awaitsNodes(s) ||
			s.relief.blind && s.isLocated() ||
			s.relief.hidden ||
			s.FromStart ||
			s.move.done &&
				s.isLocated() &&
				(rj.incidents.placementInForce() || iteration < s.move.backAt+rj.cfg.SettleAfter) ||
			rj.incidents.isActedOn(s) ||
			s.HealthyMs <= 0 {
			continue
		}
		if !rj.levelBack(s, iteration) || rj.pausing(s, iteration) {
			continue
		}
		if s.ID == "" && s.lasted { // its report waited for a verdict
			rj.returns.takeUnnamed(s)
			rj.incidents.handOut(s)
		}
		_, between := rj.healthyLevels(s)
		since := max(rj.samples.backSince(between), s.move.backAt)
		if s.ID == "" && s.floorMs == 0 {
			rj.dropBurst(s, since)
		} else {
			rj.relieve(s, since, rj.backText(s))
		}
	}
}

// acceptWork takes the job's own work that grew as its normal pace once it has lasted, to
// measure further slowness against it.
func (rj *reliefJudge) acceptWork(iteration int64) {
	open := rj.incidents.openIncidents()
	if len(open) != 1 ||
		!open[0].hasVerdict() ||
		rj.incidents.awaitsNodes(open[0]) ||
		open[0].Verdict.Cause != falcon.CauseNotHardware ||
		len(open[0].actions.inForce) > 0 ||
		iteration < open[0].OnsetIteration+rj.cfg.AcceptAfter ||
		rj.baseline.isSettling(iteration) {
		return
	}
	rj.relieve(open[0], iteration, fmt.Sprintf(
		"the job has worked like this for %d iterations: that is its pace now",
		rj.cfg.AcceptAfter,
	))
	rj.returns.forget(open[0].ID)
	rj.baseline.relearn()
	rj.evidence.resetHealthy()
}

// checkClocks makes a watched culprit due when its clock is first back at its peers'.
func (rj *reliefJudge) checkClocks() {
	for _, s := range rj.incidents.openIncidents() {
		if !rj.incidents.reliefByWindows(s) ||
			s.relief.streak > 0 ||
			s.Verdict.Cause != falcon.CauseGPU ||
			s.relief.urgent {
			continue
		}
		if at, _, ok := rj.evidence.clockBack(s); ok && at > s.relief.badAt {
			s.relief.urgent = true
		}
	}
}

// judgeRelief judges a culprit by a window requested after its action took force.
func (m *Machine) judgeRelief(s *incidentState, w *window, res peer.Result) {
	if w.iteration < s.actions.since || m.incidents.awaitsNodes(s) {
		return
	}
	if s.hasOnlyLinks() {
		m.linkWatch.judgeWindow(s, w, &res)
		return
	}
	s.relief.urgent = false
	healthy, known := m.evidence.culpritHealthy(s, res)
	checked := s.relief.check
	s.relief.check = false
	switch {
	case !known:
		return
	case !healthy:
		s.relief.seenBad(w.iteration)
		return
	case s.burst.onset > 0 && w.iteration < s.burst.onset+m.cfg.BurstWithin:
		return // it comes and goes
	case checked && len(s.actions.inForce) == 0:
		m.relief.relieve(s, s.relief.fasterAt, "the job got faster and the culprit computes as its peers do")
		return
	case !m.incidents.reliefByWindows(s):
		return
	}
	s.relief.seenHealthy(w.iteration)
	if s.relief.streak < m.cfg.Relief.Streak {
		return
	}
	m.relief.relieve(s, max(m.relief.reliefIteration(s), s.relief.badAt+1),
		"the culprit was as fast as its peers in three profiles running")
}

// reliefIteration places the relief of a watched culprit: at the first healthy window,
// or earlier where its clock was back, or where the job got a little faster
// while neither a window nor a reading shows that it was still slow.
func (rj *reliefJudge) reliefIteration(s *incidentState) int64 {
	at, bad := s.relief.healthyAt, s.relief.badAt
	if s.Verdict.Cause == falcon.CauseGPU {
		if back, still, ok := rj.evidence.clockBack(s); ok && back > bad {
			at = min(at, back)
			bad = max(bad, still)
		}
	}
	if dip := rj.onsets.lastDip(); dip > bad && dip < at {
		return dip
	}
	return at
}

// passedUnseen is the evidence for a burst that a profile came too late for: it names
// no rank, and nothing is done about it.
const passedUnseen = "the slowdown ended before a profile was taken: no culprit is named"

// relieve ends an incident.
func (rj *reliefJudge) relieve(s *incidentState, at int64, why string) {
	at = max(at, s.OnsetIteration+1)
	rj.warmed = true
	if s.ID == "" {
		rj.out.addNote("", at, "relief", "The second slowdown ended before a culprit was named: %s", why)
		rj.incidents.removeIncident(s)
		return
	}
	if v, ok := rj.evidence.explainPassed(s); ok && !s.hasVerdict() {
		s.Verdict = v
	} else if !s.hasVerdict() {
		s.Verdict.Severity = 1
		s.Verdict.Evidence = append(s.Verdict.Evidence, falcon.Evidence{
			Kind: falcon.EvidenceTiming,
			Text: passedUnseen,
		})
		why = passedUnseen
	}
	rj.returns.settle(s, s.Verdict)
	s.State = falcon.IncidentRelieved
	s.RelievedIteration = at
	s.relief.check = false
	s.relief.healthyAt = rj.samples.lastIteration()
	rj.incidents.handOut(s)
	rj.culprits.recordIncident(s)
	rj.returns.add(s)
	rj.links.markHealthy(s)
	if !rj.samples.isLearning() {
		rj.onsets.resetToLevel()
	}
	rj.out.addNote(s.ID, at, "relief", "%s relieved at iteration %d: %s", s.ID, at, why)
	if s.FromStart || !rj.evidence.hasHealthy() {
		rj.profile.requestLearning(rj.samples.lastIteration() + rj.cfg.SettleAfter)
	}
}

// reliefJudge decides when a fault is over.
type reliefJudge struct {
	cfg        *Config
	out        *output
	job        *jobState
	samples    *sampleLog
	incidents  *incidentSet
	culprits   *culpritHistory
	baseline   *baseline
	onsets     *onsetDetector
	bursts     *burstLog
	returns    *returnLog
	evidence   *evidence
	links      *linkLog
	profile    *profiler
	departures bool // the epoch is new: incidents may have lost their culprits
	warmed     bool // the job got faster once in this epoch, or an incident came first
}

// pausing reports whether an intermittent slowdown pauses: too early for relief.
func (rj *reliefJudge) pausing(s *incidentState, iteration int64) bool {
	if s.burst.onset == 0 || iteration >= s.burst.onset+rj.cfg.BurstWithin {
		return false
	}
	if !s.burst.paused {
		s.burst.paused = true
		rj.onsets.resetToLevel()
		rj.out.addNote(s.ID, iteration, "jitter", "%s pauses: the iteration time is back since iteration %d",
			s.ID, rj.samples.backSince((s.HealthyMs+s.SlowMs)/2))
	}
	return true
}

// dropBurst ends a slowdown that was not reported; it is logged and remembered.
func (rj *reliefJudge) dropBurst(s *incidentState, at int64) {
	b := burst{
		from: s.OnsetIteration,
		to:   max(at, s.OnsetIteration+1),
		ms:   s.SlowMs,
	}
	rj.bursts.add(b)
	rj.out.addNote("", b.from, "jitter",
		"%d iterations at %.1f ms were over before a profile was taken: no incident",
		b.to-b.from, b.ms)
	rj.incidents.removeIncident(s)
	rj.onsets.resetToLevel()
	if !rj.evidence.hasHealthy() {
		rj.profile.requestLearning(rj.samples.lastIteration() + rj.cfg.SettleAfter)
	}
}

// relieveDeparted relieves the incidents whose devices and links all left the job: it
// was started again without them. The history of whom they named stays.
func (rj *reliefJudge) relieveDeparted(iteration int64) {
	if !rj.departures {
		return
	}
	rj.departures = false
	open := rj.incidents.openIncidents()
	if len(open) == 0 ||
		len(rj.job.desc.Placement) != len(rj.samples.ranks) ||
		slices.Contains(rj.job.desc.Placement, "") {
		return
	}
	nodes := rj.job.desc.Placement.Nodes()
	for _, s := range open {
		if len(s.Verdict.Devices)+len(s.Verdict.Links) == 0 {
			continue
		}
		stays := slices.ContainsFunc(s.Verdict.Devices, func(d falcon.Device) bool {
			return slices.Contains(rj.job.desc.Placement, d)
		}) ||
			slices.ContainsFunc(s.Verdict.Links, func(l falcon.Link) bool {
				return slices.Contains(nodes, l.A) && slices.Contains(nodes, l.B)
			})
		if !stays {
			s.Departed = true
			rj.relieve(s, iteration, fmt.Sprintf("%s left the job", culpritNames(s.Verdict)))
			for _, l := range s.Verdict.Links {
				rj.links.forget(l)
			}
		}
	}
}

// closeRelieved closes incidents that are relieved, once every action of
// theirs is undone and none can still be on its way.
func (rj *reliefJudge) closeRelieved(iteration int64) {
	rj.incidents.removeIf(func(s *incidentState) bool {
		done := s.State == falcon.IncidentRelieved && len(s.actions.inForce) == 0 &&
			iteration >= max(s.RelievedIteration, s.relief.healthyAt)+rj.cfg.CloseAfter
		if done {
			s.State = falcon.IncidentClosed
			rj.out.updateIncident(s)
		}
		return done
	})
}

// startEpoch has the incidents checked whose culprits may have left the job.
func (rj *reliefJudge) startEpoch() {
	rj.departures, rj.warmed = true, false
}
