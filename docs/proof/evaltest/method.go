package evaltest

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/failslow/falcon/detect/bocd"
)

// Report is one alarm of a method. Indexes count iterations from 0.
type Report struct {
	At   int // first iteration of the new level, as the method places it
	Seen int // newest iteration when it was reported
}

// Methods that are compared, in the order of the tables.
const (
	SlidePoint = iota
	SlideMean
	PlainBOCD
	VerifiedBOCD
	Ours
	methods
)

// Names of the methods, by index.
func Names() []string {
	return []string{
		"slide window, each iteration", "slide window, mean", "BOCD", "BOCD+V, as defined",
		"Falcon",
	}
}

// Reports runs all methods on one series and returns their reports by method.
// The series is finite, as Generate's are.
func Reports(ms []float64) [][]Report {
	plain := PlainChangePoints(ms, bocd.DefaultConfig())
	return [][]Report{
		SlidePoint:   SlidingPoint(ms, baselineVerify),
		SlideMean:    SlidingMean(ms, baselineVerify),
		PlainBOCD:    plain,
		VerifiedBOCD: VerifiedChangePoints(ms, plain, baselineVerify),
		Ours:         Falcon(ms),
	}
}

// SlidingPoint is the paper's sliding window, read point by point, with the share
// that makes a change.
func SlidingPoint(ms []float64, over float64) []Report {
	return observed(ms, &slideWindow{over: over})
}

// SlidingMean is the paper's sliding window, read as the mean of the window.
func SlidingMean(ms []float64, over float64) []Report {
	return observed(ms, &slideMean{over: over})
}

// PlainChangePoints is BOCD without verification.
func PlainChangePoints(ms []float64, cfg bocd.Config) []Report {
	return observed(ms, newPlainBOCD(cfg))
}

// observed are the reports of an online method.
func observed(ms []float64, method interface {
	Observe(ms float64) (index int, found bool)
},
) []Report {
	var out []Report
	for i, x := range ms {
		if at, found := method.Observe(x); found {
			out = append(out, Report{at, i})
		}
	}
	return out
}

// Falcon is what the production tracker reports of a series by the paper's rule: onsets and
// reliefs, as either says that a job was slow.
func Falcon(ms []float64) []Report {
	cfg := bocd.DefaultTrackerConfig()
	cfg.Verification = bocd.VerifyPaper // the truth is: 10 % or nothing
	return Tracked(ms, cfg)
}

// Tracked is what the production tracker reports with a configuration.
func Tracked(ms []float64, cfg bocd.TrackerConfig) []Report {
	var out []Report
	tracker := bocd.NewTracker(cfg)
	for i, x := range ms {
		changes, _ := tracker.Observe(x)
		for _, c := range changes {
			if c.Kind != bocd.KindJitter {
				out = append(out, Report{c.Index, i})
			}
		}
	}
	return out
}

// verifyOver is how many iterations on each side FALCON's verification
// averages here; §4.2 does not say.
const verifyOver = 10

// VerifiedChangePoints is the paper's rule (§4.2, change-point verification): an alarm
// whose mean iteration times before and after differ by no more than a share, 10 %
// there, is jitter.
func VerifiedChangePoints(ms []float64, alarms []Report, over float64) []Report {
	var out []Report
	for _, a := range alarms {
		end := min(a.At+verifyOver, len(ms))
		if a.At == 0 || end <= a.At {
			continue
		}
		before, after := stat.Mean(ms[max(0, a.At-verifyOver):a.At], nil), stat.Mean(ms[a.At:end], nil)
		if math.Abs(after-before)/before > over {
			out = append(out, Report{a.At, max(a.Seen, end-1)})
		}
	}
	return out
}

// How far from a spell a report may be placed and still mean it. Where a spell
// came by small steps, noise decides where a series first is 10 % up.
const (
	near       = 16
	nearLadder = 64
)

// first is the first report that means a spell, by its placement: within it, or
// at its end, where a relief lies.
func (s Spell) first(reports []Report) (Report, bool) {
	i := slices.IndexFunc(reports, s.means)
	if i < 0 {
		return Report{}, false
	}
	return reports[i], true
}

func (s Spell) means(r Report) bool {
	off := near
	if s.Ladder {
		off = nearLadder
	}
	return r.At >= s.From-off && r.At <= s.To+near && r.Seen >= s.From-off
}
