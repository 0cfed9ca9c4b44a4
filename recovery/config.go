package recovery

import (
	"cmp"
	"fmt"
	"time"

	"github.com/failslow/falcon/recovery/replica"
)

// Bounds of one job's recoveries.
const (
	recoveriesMost  = 256 // kept
	generationsMost = 64  // of one recovery, before a person must look
	restartsMost    = 3   // of the whole job in one recovery, where its launch fails
	predictFrom     = 9   // newest recoveries that predictions are learned from
	hour            = time.Hour
)

// Config is how faults are detected and how long each state may take; zero
// values mean the defaults in parentheses. The fields with a YAML name are those
// of the section recovery of falcon.yaml, which Check validates.
type Config struct {
	Beat    time.Duration `yaml:"beat"`    // between two signs of life of an agent (2 s)
	Suspect int           `yaml:"suspect"` // missed beats before a node is suspected (2)
	Dead    int           `yaml:"dead"`    // and taken for dead, with a second sign (3)
	// after the engine's start, or after it heard of too few, for agents to come back (10 s)
	Grace time.Duration `yaml:"-"`
	// faults so close together are handled as one: the ranks of a node die one after
	// another (100 ms)
	Gather time.Duration `yaml:"-"`

	// of the job, before it is a sign against a silent node where no rank can report
	// that it waits (30 s)
	UnvouchedStall time.Duration `yaml:"unvouched_stall"`
	// for an agent that said goodbye to come back: so long its silence is no sign (60 s)
	Leave      time.Duration `yaml:"leave"`
	LeaveStall time.Duration `yaml:"leave_stall"` // of the job, before it is one all the same (15 s)
	// for a report of how a process ended, or for a peer's end with success (1 s)
	Unexplained time.Duration `yaml:"-"`

	// usual iteration times without progress, before a job is reported to hang (20)
	HangFactor float64       `yaml:"-"`
	HangMin    time.Duration `yaml:"hang"` // at least (2 min); also how long an unknown iteration may take

	OptimizerWait time.Duration `yaml:"optimizer_wait"` // for ranks inside the optimizer (5 s)
	// for all to park (15 s); afterwards who did not is frozen
	SuspendMost time.Duration `yaml:"suspend"`
	SpareWait   time.Duration `yaml:"spare_wait"` // for a spare to be brought (10 min)
	ReplaceMost time.Duration `yaml:"replace"`    // for launched processes to park (5 min)
	TableMost   time.Duration `yaml:"-"`          // for the rank table (10 s)
	CollectMost time.Duration `yaml:"-"`          // for the reports of all (10 s)
	RejoinMost  time.Duration `yaml:"rejoin"`     // for groups and state (5 min)
	RestartMost time.Duration `yaml:"-"`          // for a whole restart (30 min)
	// for agents to come back, before a whole restart that needs them (1 min)
	AgentWait time.Duration `yaml:"agent_wait"`
	// failed rejoins from replicas before the checkpoint is taken, once (3)
	Rejoins int `yaml:"-"`

	Choose func(replica.Query) (replica.Choice, error) `yaml:"-"` // the resume rule (replica.Choose)
}

func (c Config) withDefaults() Config {
	c.Beat = cmp.Or(c.Beat, 2*time.Second)
	c.Suspect = cmp.Or(c.Suspect, 2)
	c.Dead = cmp.Or(c.Dead, 3)
	c.Grace = cmp.Or(c.Grace, 10*time.Second)
	c.Gather = cmp.Or(c.Gather, 100*time.Millisecond)
	c.UnvouchedStall = cmp.Or(c.UnvouchedStall, 30*time.Second)
	c.Unexplained = cmp.Or(c.Unexplained, time.Second)
	c.Leave = cmp.Or(c.Leave, time.Minute)
	c.LeaveStall = cmp.Or(c.LeaveStall, 15*time.Second)
	c.HangFactor = cmp.Or(c.HangFactor, 20)
	c.HangMin = cmp.Or(c.HangMin, 2*time.Minute)
	c.OptimizerWait = cmp.Or(c.OptimizerWait, 5*time.Second)
	c.SuspendMost = cmp.Or(c.SuspendMost, 15*time.Second)
	c.SpareWait = cmp.Or(c.SpareWait, 10*time.Minute)
	c.ReplaceMost = cmp.Or(c.ReplaceMost, 5*time.Minute)
	c.TableMost = cmp.Or(c.TableMost, 10*time.Second)
	c.CollectMost = cmp.Or(c.CollectMost, 10*time.Second)
	c.RejoinMost = cmp.Or(c.RejoinMost, 5*time.Minute)
	c.RestartMost = cmp.Or(c.RestartMost, 30*time.Minute)
	c.AgentWait = cmp.Or(c.AgentWait, time.Minute)
	c.Rejoins = cmp.Or(c.Rejoins, 3)
	if c.Choose == nil {
		c.Choose = replica.Choose
	}
	return c
}

// Defaults of a policy.
const (
	inPlaceDefault = 2
	perHourDefault = 10
)

// Bounds of what a site may set.
const (
	beatLeast  = 50 * time.Millisecond
	beatMost   = time.Minute
	missedMost = 100
	waitMost   = 24 * time.Hour
)

// Check reports the first value of falcon.yaml that makes no sense; zero means the default.
func (c Config) Check() error {
	if c.Beat != 0 && (c.Beat < beatLeast || c.Beat > beatMost) {
		return fmt.Errorf("recovery.beat is %s; give %s to %s, 0s = the default", c.Beat, beatLeast, beatMost)
	}
	if c.Suspect < 0 ||
		c.Dead < 0 ||
		max(c.Suspect, c.Dead) > missedMost ||
		c.Suspect > 0 && c.Dead > 0 && c.Dead < c.Suspect {
		return fmt.Errorf(
			"recovery.suspect is %d and recovery.dead %d; give missed beats, dead not fewer than suspect",
			c.Suspect, c.Dead,
		)
	}
	for _, wait := range []struct {
		key  string
		time time.Duration
	}{
		{"agent_wait", c.AgentWait},
		{"hang", c.HangMin},
		{"leave", c.Leave},
		{"leave_stall", c.LeaveStall},
		{"optimizer_wait", c.OptimizerWait},
		{"rejoin", c.RejoinMost},
		{"replace", c.ReplaceMost},
		{"spare_wait", c.SpareWait},
		{"suspend", c.SuspendMost},
		{"unvouched_stall", c.UnvouchedStall},
	} {
		if wait.time < 0 || wait.time > waitMost {
			return fmt.Errorf("recovery.%s is %s; give a time up to %s, 0s = the default",
				wait.key, wait.time, waitMost)
		}
	}
	return nil
}
