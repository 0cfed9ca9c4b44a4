package detect

import (
	"fmt"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/cause"
	"github.com/failslow/falcon/detect/peer"
)

// unevenWindow is the newest window in which the work of all ranks differed from iteration
// to iteration and no rank was slow in all of them.
type unevenWindow struct {
	timing    peer.Result
	iteration int64 // when it was asked for
	seen      bool
}

// noteUneven keeps what a window shows of a job whose work differs; one in which it does not
// ends that.
func (ev *evidence) noteUneven(iteration int64, res *peer.Result) {
	if len(res.Slow) > 0 || res.Missing > 0 {
		return
	}
	ev.uneven = unevenWindow{
		timing:    *res,
		iteration: iteration,
		seen:      res.Uneven,
	}
}

// explainPassed is the verdict on a slowdown that was over before a window of its own: by what
// the ranks' calls say, or where the job's work differed from iteration to iteration in the newest
// window, a short time ago, by that. No culprit is named; ok is false where neither is so.
func (ev *evidence) explainPassed(s *incidentState) (v falcon.Verdict, ok bool) {
	c := ev.caseFor(s, peer.Result{Ranks: make([]peer.Rank, len(ev.samples.ranks))})
	u := &ev.uneven
	if u.seen && s.OnsetIteration-u.iteration <= ev.cfg.BurstWithin {
		c.Timing = u.timing
	}
	v = cause.Judge(c)
	if v.Cause != falcon.CauseNotHardware {
		return falcon.Verdict{}, false
	}
	v.Confidence *= passedFactor
	v.Evidence = append(v.Evidence, falcon.Evidence{
		Kind:    falcon.EvidenceTiming,
		Against: true,
		Text:    "The slowdown ended before a profile of it was taken",
	})
	return v, true
}

// passedFactor is what a verdict without a window of its own keeps of its confidence.
const passedFactor = 0.8

// warmUpWithin is how many iterations of a job epoch can be its warm-up.
const warmUpWithin = 32

// warmUpText says of a job that gets faster for the first time, soon after it began, that it has
// warmed up.
func (rj *reliefJudge) warmUpText(at int64) string {
	first := rj.samples.fold.first
	if rj.warmed || at-first > warmUpWithin || len(rj.incidents.list) > 0 {
		return ""
	}
	rj.warmed = true
	return fmt.Sprintf(": iterations %d to %d were slower, as while a job warms up", first, at-1)
}
