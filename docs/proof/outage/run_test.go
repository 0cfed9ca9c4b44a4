package outage

import (
	"context"
	"fmt"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Outcome is one recovery; seconds.
type Outcome struct {
	Devices  int
	Runs     int // that this is the median of
	Nodes    int
	Phases   map[string]float64 // measured by the engine, by falcon.Phase…
	Detect   float64            // from the loss to certainty, on emulated heartbeats
	Wall     float64            // from certainty until the job trains, as it ran here
	Groups   float64            // all ranks met in the store
	Write    float64            // of the table on one node, the slowest reader
	Parse    float64
	Table    int // bytes
	Sent     int // bytes of it to a node that stays: what changed
	Moves    int
	Replace  float64 // simulated: container and imports
	Restore  float64 // simulated: transfer of state
	Replaced int
	Kept     int // survivors
}

// Total is what a job would wait: detection, what ran here, and what was
// simulated.
func (o Outcome) Total() float64 {
	return o.Detect + o.Wall + o.Replace + o.Restore
}

// Controlled is the part of it that Falcon answers for: all but what was
// simulated.
func (o Outcome) Controlled() float64 { return o.Detect + o.Wall }

// Lose takes one node in the middle of the job away, and returns once the job
// trains again. An error says what it came to instead.
func (c *Cluster) Lose(ctx context.Context) (Outcome, error) {
	nodes := c.Devices / perNode
	victim := c.agents[nodes/2]
	victim.lost.Store(true)
	c.forgetTables()
	at := time.Now()
	c.since.Store(at.UnixNano())
	c.stalled.Store(c.iteration() + 1)
	var last *falconv1.Recovery
	err := c.until(ctx, "the job has not recovered", func() (bool, error) {
		r, err := c.engine.Recoveries(ctx, "", false)
		if err != nil || len(r.GetRecoveries()) == 0 {
			return false, err
		}
		last = r.GetRecoveries()[0]
		return falcon.RecoveryState(last.GetState()).Over(), nil
	})
	if err != nil {
		return Outcome{}, fmt.Errorf("%w (newest recovery: %s, %s)",
			err, last.GetState(), last.GetReason())
	}
	if s := falcon.RecoveryState(last.GetState()); s != falcon.RecoveryResumed || last.GetCheckpoint() {
		return Outcome{}, fmt.Errorf("outage: the recovery ended %s, from a checkpoint: %v: %s",
			s, last.GetCheckpoint(), last.GetReason())
	}
	return c.outcome(at, last), nil
}

func (c *Cluster) outcome(at time.Time, v *falconv1.Recovery) Outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	certain := time.Unix(0, v.GetFaults()[0].GetDetectedUnixNs())
	o := Outcome{
		Devices:  c.Devices,
		Nodes:    c.Devices / perNode,
		Phases:   map[string]float64{},
		Detect:   certain.Sub(at).Seconds(),
		Wall:     time.Unix(0, v.GetEndedUnixNs()).Sub(certain).Seconds(),
		Write:    c.written.Seconds(),
		Parse:    c.parsed.Seconds(),
		Table:    c.table,
		Sent:     c.sent,
		Moves:    len(v.GetMoves()),
		Replace:  c.Model.Replace(uint64(c.Devices), perNode),
		Restore:  c.Model.Restore(c.moves),
		Replaced: len(v.GetReplaced()),
		Kept:     len(v.GetSurvivors()),
	}
	for name, ms := range v.GetPhasesMs() {
		o.Phases[name] = ms / 1e3
	}
	o.Groups = o.Phases[falcon.PhaseGroups]
	return o
}
