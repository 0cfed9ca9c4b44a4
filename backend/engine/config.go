package engine

import (
	"log/slog"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/clock"
	"github.com/failslow/falcon/backend/journal"
	"github.com/failslow/falcon/detect"
	"github.com/failslow/falcon/detect/history"
	"github.com/failslow/falcon/mitigate"
	"github.com/failslow/falcon/recovery"
	"github.com/failslow/falcon/recovery/restart"
)

// BeatPeriod is how often agents are asked to be heard.
const BeatPeriod = 2 * time.Second

const tickPeriod = 100 * time.Millisecond

// Config are the engine's parts and settings.
type Config struct {
	JobName    string
	Host       string           // that the engine runs on, for people; empty = not said
	ID         string           // of this start, which no other may have; empty = a random one
	JobKind    history.Kind     // what it is run for; empty = training
	Mesh       falcon.Mesh      // of the job, where its adapter declares none; zero = unknown
	Journal    *journal.Journal // opened by the caller, who closes it after Run
	Detector   Detector         // nil = detect.New(Detect)
	Planner    Planner          // nil = mitigate.New(Mitigate)
	Recoverer  Recoverer        // nil = recovery.New(Recovery.Machine)
	Detect     detect.Config
	Mitigate   mitigate.Config
	Policy     falcon.Policy // when the journal holds none; no mode = observe
	Validation Validation
	Restart    restart.Config
	Recovery   Recovery
	Retention  Retention
	// TrustJournal has the engine act without hearing its nodes first, for tests of other parts.
	TrustJournal bool
	Clock        clock.Source     // of the machine: programs give clock.System
	Now          func() time.Time // where there is no Clock: a time that never steps, for tests
	Log          *slog.Logger
	Fault        func(point string) error // tests stop the engine here; see Points

	steady *clock.Clock // Now is its time
}

// Points at which Config.Fault is asked; an error stops the engine as a kill
// would: nothing more is written or sent.
const (
	PointBeforeWrite = "before write"
	PointAfterWrite  = "after write, before send"
	PointAfterSend   = "after send"
)

// threshold is the probability at which the detector raises an alarm, for the
// line in consoles' charts.
func (c Config) threshold() float64 {
	return orElse(c.Detect.Tracker.Filter.Threshold, detect.DefaultConfig().Tracker.Filter.Threshold)
}

// window is w of P(r ≤ w), iterations.
func (c Config) window() int32 {
	return int32(min(
		orElse(c.Detect.Tracker.Filter.Window, detect.DefaultConfig().Tracker.Filter.Window),
		1<<20,
	))
}

// Validation says when the job may be held for tests, and what the tests are.
// Zero values mean the defaults of package validate and those below.
type Validation struct {
	// the detector's requests are carried out without a person
	Auto bool `yaml:"-"`
	// of the order that holds the job; at most 60 s
	Life time.Duration `yaml:"life"`
	// of the job's framework: a hold lasts at most a quarter of it; 0 = unknown
	CollectiveTimeout time.Duration `yaml:"collective_timeout"`
	GEMMSide          int           `yaml:"gemm_n"`        // side of the matrices
	Repeats           int           `yaml:"repeats"`       // timed repeats of each test
	MessageBytes      int64         `yaml:"message_bytes"` // of a link test
	PerHour           int           `yaml:"per_hour"`      // automatic ones; 0 = PerHourDefault
	// iterations between automatic ones; 0 = CoolDownDefault
	CoolDown int64 `yaml:"cool_down"`
}

// Recovery are the settings of fail-stop recovery.
type Recovery struct {
	Machine recovery.Config        `yaml:",inline"`
	Racks   map[falcon.Node]string `yaml:"racks"` // failure domain of each node; absent = the node's own
	Beat    time.Duration          `yaml:"-"`     // how often agents are asked to be heard; 0 = BeatPeriod
	Store   Store                  `yaml:"-"`     // that the job meets in; nil = none of ours
}

// Store is what the engine needs of a rendezvous store: it refuses, and drops,
// what older generations wrote.
type Store interface {
	Fence(generation uint64) error
}

func (c Config) beatPeriod() time.Duration {
	return orElse(c.Recovery.Beat, BeatPeriod)
}

// Retention says how much of the past the journal keeps. Zero values mean the
// defaults below.
type Retention struct {
	// of records since the newest snapshot, before the next; at least four times that one's size
	SnapshotBytes int64
	AuditAge      time.Duration // how long decisions, policies, fences and audit lines stay
	AuditRecords  int           // how many of them at most
}
