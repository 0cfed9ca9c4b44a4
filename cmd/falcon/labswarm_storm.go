package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/failslow/falcon/agent/lab/swarm"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// The storms of falcon lab swarm.
const (
	stormRestart = "restart" // the engine is killed and started again
	stormLoss    = "loss"    // all agents are cut off for stormLasts
	stormFlap    = "flap"    // every tenth agent begins a new stream each second, for flapLasts
)

const (
	stormLasts  = 5 * time.Second
	flapLasts   = 20 * time.Second
	stormWithin = 90 * time.Second
)

// stormResult is what a storm led to; times are from its end, of a restart from the engine's start.
type stormResult struct {
	Kind      string           `json:"kind"`
	BackS     float64          `json:"all_connected_s"` // -1 = not within a minute and a half
	RightS    float64          `json:"right_s"`         // the engine's iteration is the job's again
	Cores     float64          `json:"engine_cores"`    // from its beginning until then
	PeakMB    float64          `json:"peak_mb"`
	JournalKB float64          `json:"journal_kb"`
	Harm      map[string]int64 `json:"harm"`
	Recovery  string           `json:"recovery,omitempty"` // one that was opened
	Lines     int              `json:"lines"`              // of events, among the newest 64, about agents
}

func (r *stormResult) String() string {
	text := fmt.Sprintf(
		"storm %s: all connected after %.1f s, right after %.1f s, engine %.2f cores, peak %.0f MB, journal %.0f kB, %d lines about agents\n",
		r.Kind, r.BackS, r.RightS, r.Cores, r.PeakMB, r.JournalKB, r.Lines,
	)
	for kind, n := range r.Harm {
		text += fmt.Sprintf("HARM: %d commands %s in the storm\n", n, kind)
	}
	if r.Recovery != "" {
		text += "HARM: recovery " + r.Recovery + "\n"
	}
	return text
}

// runStorm plays one storm against a swarm that trains, and waits for its end.
func runStorm(ctx context.Context, kind string, s *swarm.Swarm, e *swarmEngine, r *swarmResult) error {
	out := &stormResult{Kind: kind, BackS: -1, RightS: -1}
	r.Storm = out
	before := s.Totals()
	journal := e.journalBytes()
	from := time.Now()
	cpu := processCPU(e.pid())
	switch kind {
	case stormRestart:
		if err := e.again(ctx); err != nil {
			return err
		}
		from = time.Now()
		cpu = 0
	case stormLoss:
		s.Lose(ctx, stormLasts)
	default:
		s.Flap(ctx, flapLasts)
	}
	if err := out.watch(ctx, s, e, r.Nodes); err != nil {
		return err
	}
	out.Cores = (processCPU(e.pid()) - cpu) / time.Since(from).Seconds()
	out.PeakMB, out.JournalKB = processMemory(e.pid(), "VmHWM:"), float64(e.journalBytes()-journal)/1e3
	out.Harm = s.Totals().Harm
	for k, n := range before.Harm {
		if out.Harm[k] -= n; out.Harm[k] == 0 {
			delete(out.Harm, k)
		}
	}
	return ctx.Err()
}

// watch waits until all is as before, and for what the engine makes of it meanwhile.
func (r *stormResult) watch(ctx context.Context, s *swarm.Swarm, e *swarmEngine, nodes int) error {
	conn, err := e.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	cl := falconv1.NewConsoleClient(conn)
	over := time.Now()
	const calm = 15 * time.Second // what the engine does late is seen
	for time.Since(over) < stormWithin &&
		(r.RightS < 0 || time.Since(over).Seconds() < r.RightS+calm.Seconds()) &&
		ctx.Err() == nil &&
		!e.ended() {
		if r.BackS < 0 && s.Connected() == nodes {
			r.BackS = time.Since(over).Seconds()
		}
		q, cancel := context.WithTimeout(ctx, 10*time.Second)
		got, err := cl.Snapshot(q, &falconv1.SnapshotRequest{
			Rank:   -1,
			Packed: true,
		})
		cancel()
		if err == nil {
			behind := s.Totals().Iteration - got.GetJob().GetIteration()
			if r.BackS >= 0 && r.RightS < 0 && behind <= 3 {
				r.RightS = time.Since(over).Seconds()
			}
			if v := got.GetRecovery(); v != nil {
				r.Recovery = v.GetId() + " " + v.GetState()
			}
			r.Lines = 0
			for _, l := range got.GetEvents() {
				if l.GetKind() == "agent" {
					r.Lines++
				}
			}
		}
		time.Sleep(200 * time.Millisecond)
	}
	return nil
}

// again kills the engine as a power cut does, and starts it on the same journal and address.
func (e *swarmEngine) again(ctx context.Context) error {
	_ = e.cmd.Process.Kill()
	<-e.over
	_ = os.Remove(e.socket)
	return e.launch(ctx, "")
}
