package lab

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Stall is one rank's stay in its own code that the scenario brought, and what the
// engine said of it.
type Stall struct {
	Target     string   `json:"target"`
	Iteration  int64    `json:"iteration"` // that it did not begin
	UnixNs     int64    `json:"unix_ns"`   // when the iteration before it ended
	Error      string   `json:"error,omitempty"`
	Said       string   `json:"said"` // the first line about the standstill, "" = none
	DetectedMs *float64 `json:"detected_ms"`
}

// stallAhead is how many iterations ahead a stall is announced: all ranks must read of
// it before they come there.
const stallAhead = 3

// anyRank stands for all of them.
const anyRank falcon.Rank = -1

// checkStall checks whom a stall hits and for how long.
func (s Scenario) checkStall(e Event) error {
	if e.Stall == "" {
		if e.ForMs != 0 && e.Data == "" {
			return errors.New("for_ms goes with stall and data")
		}
		return nil
	}
	v, err := s.parseVictim(e.Stall)
	switch {
	case err != nil:
		return fmt.Errorf("stall is %q: %w", e.Stall, err)
	case v.what != "rank":
		return fmt.Errorf("stall is %q: only ranks can be stalled", v)
	case e.OnAction != "" || e.UntilIteration != 0:
		return errors.New("a stall has neither on_action nor until_iteration: it lasts for_ms")
	case e.AtIteration < stallAhead:
		return fmt.Errorf("at_iteration of a stall is %d, it must be %d or more", e.AtIteration, stallAhead)
	case !(e.ForMs > 0 && e.ForMs <= afterMost):
		return fmt.Errorf("for_ms is %v, it must be 1 to %d", e.ForMs, afterMost)
	}
	return nil
}

// stalls are those of the scenario that have begun.
type stalls []Stall

// deal announces the stalls that are near, and notes those that begin. Called by the loop.
func (list *stalls) deal(l *Lab) {
	for _, o := range l.faults.events {
		v, err := l.sc.parseVictim(o.Stall)
		if o.Stall == "" || err != nil {
			continue // checked when the scenario was read
		}
		if !o.done && l.records.done >= o.AtIteration-stallAhead {
			o.done = true
			if err := l.Trouble().stallFrom(
				v.rank,
				time.Duration(o.ForMs*float64(time.Millisecond)),
				o.AtIteration,
			); err != nil {
				o.thawed = true
				*list = append(*list, Stall{
					Target:    v.String(),
					Iteration: o.AtIteration,
					Error:     err.Error(),
				})
			}
		}
		if o.done && !o.thawed && l.records.done >= o.AtIteration {
			o.thawed = true
			*list = append(*list, Stall{
				Target:    v.String(),
				Iteration: o.AtIteration,
				UnixNs:    time.Now().UnixNano(),
			})
		}
	}
}

// Stall has the job's storage give no data to a rank, or all of them (anyRank), for so
// long: it sleeps in its own code at the begin of an iteration, a few ahead of now. 0
// ends it for those that come later.
func (t Trouble) Stall(r falcon.Rank, d time.Duration) error {
	if err := checkDuration(d); err != nil {
		return err
	}
	return t.stallFrom(r, d, t.lab.Status().Iteration+stallAhead)
}

func (t Trouble) stallFrom(r falcon.Rank, d time.Duration, from int64) error {
	text := fmt.Sprint(time.Now().Add(d).UnixNano(), from)
	if r != anyRank {
		text += fmt.Sprint(" ", r)
	}
	return replaceFile(filepath.Join(t.lab.place.dir, stallFile), text)
}

// stallRequest is a stall by name; "" = all ranks.
func (t Trouble) stallRequest(target string, d time.Duration) error {
	if target == "" {
		return t.Stall(anyRank, d)
	}
	v, err := t.lab.sc.parseVictim(target)
	if err == nil && v.what != "rank" {
		err = fmt.Errorf("lab: only ranks can be stalled, not %s", v)
	}
	if err != nil {
		return err
	}
	return t.Stall(v.rank, d)
}

// reports adds what the engine said of each stall.
func (list stalls) reports(ctx context.Context, client falconv1.ConsoleClient) ([]Stall, error) {
	out := emptyIfNil([]Stall(list))
	if len(out) == 0 {
		return out, nil
	}
	snap, err := client.Snapshot(ctx, &falconv1.SnapshotRequest{})
	if err != nil {
		return out, fmt.Errorf("lab: the engine gave no events: %w", err)
	}
	for i := range out {
		for _, e := range snap.GetEvents() {
			s := &out[i]
			if s.Said == "" &&
				e.GetKind() == "hang" &&
				e.GetAtUnixNs() >= s.UnixNs &&
				strings.Contains(e.GetText(), "stands still") {
				ms := float64(e.GetAtUnixNs()-s.UnixNs) / 1e6
				s.Said, s.DetectedMs = e.GetText(), &ms
			}
		}
	}
	return out, nil
}
