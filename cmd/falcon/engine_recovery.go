package main

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/engine"
	"github.com/failslow/falcon/recovery"
)

// recoveryConfig says how faults are told and how long each step of a recovery
// may take. Zero values are the machine's defaults.
type recoveryConfig struct {
	Beat          time.Duration          `yaml:"beat"`            // between two signs of life of an agent
	Suspect       int                    `yaml:"suspect"`         // missed beats before a node is suspected
	Dead          int                    `yaml:"dead"`            // and taken for dead, with a second sign
	Leave         time.Duration          `yaml:"leave"`           // for an agent that said goodbye to come back
	LeaveStall    time.Duration          `yaml:"leave_stall"`     // of the job meanwhile, before its node is judged all the same
	Unvouched     time.Duration          `yaml:"unvouched_stall"` // of the job, where hooks can't say that the others wait
	Hang          time.Duration          `yaml:"hang"`            // without any iteration, before a job is said to hang
	OptimizerWait time.Duration          `yaml:"optimizer_wait"`  // for ranks inside the optimizer
	Suspend       time.Duration          `yaml:"suspend"`         // for all to park
	SpareWait     time.Duration          `yaml:"spare_wait"`      // for a spare to be brought
	AgentWait     time.Duration          `yaml:"agent_wait"`      // for agents to come back, before a whole restart
	Replace       time.Duration          `yaml:"replace"`         // for new processes to park
	Rejoin        time.Duration          `yaml:"rejoin"`          // for groups and state
	Racks         map[falcon.Node]string `yaml:"racks"`           // failure domain of each node
}

// Bounds of the settings.
const (
	beatLeast    = 50 * time.Millisecond
	beatMost     = time.Minute
	missedMost   = 100
	recoveryMost = 24 * time.Hour
)

func (r recoveryConfig) check() error {
	if r.Beat != 0 && (r.Beat < beatLeast || r.Beat > beatMost) {
		return fmt.Errorf("%w: recovery.beat is %s; give %s to %s, 0s = the default", errUsage, r.Beat, beatLeast, beatMost)
	}
	if r.Suspect < 0 || r.Dead < 0 || max(r.Suspect, r.Dead) > missedMost || r.Suspect > 0 && r.Dead > 0 && r.Dead < r.Suspect {
		return fmt.Errorf("%w: recovery.suspect is %d and recovery.dead %d; give missed beats, dead not fewer than suspect", errUsage, r.Suspect, r.Dead)
	}
	waits := map[string]time.Duration{
		"leave": r.Leave, "leave_stall": r.LeaveStall, "unvouched_stall": r.Unvouched,
		"hang": r.Hang, "optimizer_wait": r.OptimizerWait, "suspend": r.Suspend, "spare_wait": r.SpareWait, "agent_wait": r.AgentWait, "replace": r.Replace, "rejoin": r.Rejoin,
	}
	for _, key := range slices.Sorted(maps.Keys(waits)) {
		if v := waits[key]; v < 0 || v > recoveryMost {
			return fmt.Errorf("%w: recovery.%s is %s; give a time up to %s, 0s = the default", errUsage, key, v, recoveryMost)
		}
	}
	return nil
}

func (r recoveryConfig) engine() engine.Recovery {
	return engine.Recovery{
		Beat: r.Beat, Racks: r.Racks,
		Machine: recovery.Config{
			Beat: r.Beat, Suspect: r.Suspect, Dead: r.Dead, Leave: r.Leave, LeaveStall: r.LeaveStall, UnvouchedStall: r.Unvouched, HangMin: r.Hang, OptimizerWait: r.OptimizerWait, SuspendMost: r.Suspend,
			SpareWait: r.SpareWait, AgentWait: r.AgentWait, ReplaceMost: r.Replace, RejoinMost: r.Rejoin,
		},
	}
}
