package detect

import (
	"time"

	"github.com/failslow/falcon/detect/bocd"
	"github.com/failslow/falcon/detect/peer"
)

// Config holds the detector's thresholds. The zero value of each field means
// the default that DefaultConfig gives.
type Config struct {
	Tracker bocd.TrackerConfig // change points of every rank's series and of the job's
	Rules   peer.Rules         // comparison of ranks and groups

	Quorum      float64 // share of the ranks whose own onsets open an incident without the job's series; 0.5
	MergeWithin int64   // iterations: onsets this near are one; 8
	TellAfter   int64   // iterations that a slowdown lasts before it is told although nobody is named; 8
	Bursts      int     // slowdowns that passed unexplained, the present one included, that are one intermittent fault; 3
	BurstWithin int64   // iterations in which they lie, and without one that end it; 100
	History     int     // samples kept per rank; 1024
	Settled     float64 // relief: the level is within this of the baseline; 0.05

	ProfileIterations int           // window that seeks a culprit or learns the healthy state; 4
	ProfileTries      int           // windows per onset before the verdict stays "unknown"; 3
	ProfileSpacing    int64         // iterations between two tries; 5
	ProfileRetry      int64         // iterations after which an open incident that names nobody is tried again; 50
	ProfileDeadline   time.Duration // a window is judged with what is there after at least this long; 10 s

	ValidateTries   int   // validations asked for per incident, negative = none; 2
	ValidateSpacing int64 // iterations between two; 20

	ReliefIterations int   // window that watches a culprit while an action holds; 2
	ReliefEvery      int64 // iterations between two such windows; 20
	ReliefConfirm    int64 // the same once a window was healthy or the counters are; 10
	ReliefStreak     int   // healthy windows running that mean relief; 3

	WatchEvery      int64         // iterations between two looks at the ranks of a quiet job, negative = none; 200
	WatchIterations int           // steps of such a look; 2
	WatchSpacing    time.Duration // least time between two such looks, negative = none; 60 s
	WatchOver       float64       // self time over the peers' median that is slow for the watch; 1.5
	WatchSteps      int           // slow steps running that make a rank failing; 3

	Throughput      float64 // share of the best, or of the peak, below which the job is looked at; 0.8
	PeakIterationMs float64 // iteration time that the job should reach, 0 = its own best

	SettleBefore int64 // iterations before an action that belong to it; 2
	SettleAfter  int64 // iterations from its first one on that belong to it; 8
	AcceptAfter  int64 // iterations after which work that grew by itself is the job's normal pace; 500
	CloseAfter   int64 // iterations from relief to close, for actions still on their way; 8
}

// DefaultConfig is the production setting.
func DefaultConfig() Config {
	return Config{
		Tracker:           bocd.DefaultTrackerConfig(),
		Quorum:            0.5,
		MergeWithin:       8,
		TellAfter:         8,
		Bursts:            3,
		BurstWithin:       100,
		History:           1024,
		Settled:           0.05,
		ProfileIterations: 4,
		ProfileTries:      3,
		ProfileSpacing:    5,
		ProfileRetry:      50,
		ProfileDeadline:   10 * time.Second,
		ValidateTries:     2,
		ValidateSpacing:   20,
		ReliefIterations:  2,
		ReliefEvery:       20,
		ReliefConfirm:     10,
		ReliefStreak:      3,
		WatchEvery:        200,
		WatchIterations:   2,
		WatchSpacing:      time.Minute,
		WatchOver:         1.5,
		WatchSteps:        3,
		Throughput:        0.8,
		SettleBefore:      2,
		SettleAfter:       8,
		AcceptAfter:       500,
		CloseAfter:        8,
	}
}

func (c Config) withDefaults() Config {
	d := DefaultConfig()
	if c.Tracker == (bocd.TrackerConfig{}) {
		c.Tracker = d.Tracker
	}
	fill(&c.Tracker.Verify, d.Tracker.Verify)
	fill(&c.Quorum, d.Quorum)
	fill(&c.MergeWithin, d.MergeWithin)
	fill(&c.TellAfter, d.TellAfter)
	fill(&c.Bursts, d.Bursts)
	fill(&c.BurstWithin, d.BurstWithin)
	fill(&c.History, d.History)
	fill(&c.Settled, d.Settled)
	fill(&c.ProfileIterations, d.ProfileIterations)
	fill(&c.ProfileTries, d.ProfileTries)
	fill(&c.ProfileSpacing, d.ProfileSpacing)
	fill(&c.ProfileRetry, d.ProfileRetry)
	fill(&c.ProfileDeadline, d.ProfileDeadline)
	if c.ValidateTries == 0 {
		c.ValidateTries = d.ValidateTries
	}
	fill(&c.ValidateSpacing, d.ValidateSpacing)
	fill(&c.ReliefIterations, d.ReliefIterations)
	fill(&c.ReliefEvery, d.ReliefEvery)
	fill(&c.ReliefConfirm, d.ReliefConfirm)
	fill(&c.ReliefStreak, d.ReliefStreak)
	if c.WatchEvery == 0 {
		c.WatchEvery = d.WatchEvery
	}
	fill(&c.WatchIterations, d.WatchIterations)
	if c.WatchSpacing == 0 {
		c.WatchSpacing = d.WatchSpacing
	}
	fill(&c.WatchOver, d.WatchOver)
	fill(&c.WatchSteps, d.WatchSteps)
	fill(&c.Throughput, d.Throughput)
	fill(&c.SettleBefore, d.SettleBefore)
	fill(&c.SettleAfter, d.SettleAfter)
	fill(&c.AcceptAfter, d.AcceptAfter)
	fill(&c.CloseAfter, d.CloseAfter)
	return c
}

func fill[T int | int64 | float64 | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}
