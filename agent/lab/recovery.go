package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// RecoveryReport is one recovery: Falcon's account beside what the lab did and the
// ranks' own logs.
type RecoveryReport struct {
	ID         string         `json:"id"`
	State      string         `json:"state"`
	Generation uint64         `json:"generation"`
	Attempts   int            `json:"attempts"`
	Fault      string         `json:"fault"`  // what the lab did, else what Falcon saw
	Faults     []falcon.Fault `json:"faults"` // what Falcon saw
	// from the first death that the lab dealt until the engine was certain; without
	// one, from its first sign
	DetectedMs float64            `json:"detected_ms"`
	PhasesMs   map[string]float64 `json:"phases_ms"`
	PredictMs  map[string]float64 `json:"predicted_ms"`
	TotalMs    float64            `json:"total_ms"` // of the phases
	// by the ranks' logs: from the end of the last iteration before to the start of the first after
	DownMs float64 `json:"down_ms"`

	ResumeIteration int64 `json:"resume_iteration"`
	// begun before and run again, by the ranks' logs
	LostIterations int64 `json:"lost_iterations"`
	// by rank; falcon.FromCheckpoint = storage
	RestoredFrom     map[falcon.Rank]falcon.Rank   `json:"restored_from"`
	Replaced         map[falcon.Rank]falcon.Device `json:"replaced"` // device by replaced rank
	Survivors        []falcon.Rank                 `json:"survivors"`
	SurvivorPidsKept bool                          `json:"survivor_pids_kept"` // by the ranks' logs
	Fenced           []falcon.Node                 `json:"fenced"`
	Checkpoint       bool                          `json:"checkpoint"`
	Reason           string                        `json:"reason,omitempty"`
	DecidedBy        string                        `json:"decided_by"`
}

// recoveries asks the engine for its recoveries, oldest first, and lays the
// lab's truth beside them. It also notes at each death which recovery saw it.
func (l *Lab) recoveries(ctx context.Context, client falconv1.ConsoleClient) ([]RecoveryReport, error) {
	reply, err := client.Recoveries(ctx, &falconv1.RecoveriesRequest{})
	if err != nil {
		return nil, fmt.Errorf("lab: the engine gave no recoveries: %w", err)
	}
	out := []RecoveryReport{}
	for _, r := range slices.Backward(reply.GetRecoveries()) {
		out = append(out, recoveryReport(convert.RecoveryFromProto(r)))
	}
	since := uint64(0)
	for i := range out {
		l.records.fillRecovery(&out[i], since)
		since = out[i].Generation
		out[i].matchDeaths(l.kills, l.sc)
	}
	return out, nil
}

func recoveryReport(r falcon.Recovery) RecoveryReport {
	s := RecoveryReport{
		ID:              r.ID,
		State:           string(r.State),
		Generation:      r.Generation,
		Attempts:        r.Attempts,
		Faults:          emptyIfNil(r.Faults),
		PhasesMs:        r.PhaseMs,
		PredictMs:       r.PredictMs,
		ResumeIteration: r.Resume,
		RestoredFrom:    map[falcon.Rank]falcon.Rank{},
		Replaced:        r.Replaced,
		Survivors:       r.Survivors,
		Fenced:          r.Fenced,
		Checkpoint:      r.Checkpoint,
		Reason:          r.Reason,
		DecidedBy:       r.DecidedBy,
	}
	for _, m := range r.Moves {
		s.RestoredFrom[m.Rank] = m.From
	}
	for _, ms := range s.PhasesMs {
		s.TotalMs += ms
	}
	return s
}

// fillRecovery adds what the ranks logged of the recovery: of its generations, which
// lie behind since.
func (r *records) fillRecovery(s *RecoveryReport, since uint64) {
	var first, last *rejoin
	for _, j := range r.rejoins {
		if j.generation <= since || j.generation > s.Generation {
			continue
		}
		if first == nil {
			first = j
		}
		last = j
		s.LostIterations = max(s.LostIterations, j.redone)
	}
	i := slices.IndexFunc(r.restarts, func(v Restart) bool {
		return v.Generation == s.Generation
	})
	if i >= 0 {
		s.ResumeIteration = r.restarts[i].FirstIteration
		s.LostIterations = r.restarts[i].Redone
		s.DownMs = r.restarts[i].DownMs
	}
	if last == nil {
		return
	}
	whole := rejoin{before: first.before, after: last.after}
	s.SurvivorPidsKept, s.DownMs = whole.survivorsKept(s.Replaced), last.downMs
}

// matchDeaths finds the deaths that the recovery is about, and how long it took to be
// certain of the first.
func (s *RecoveryReport) matchDeaths(kills []Kill, sc Scenario) {
	var said []string
	first := int64(0)
	for i := range kills {
		k := &kills[i]
		f, ok := s.faultOfDeath(*k, sc)
		if !ok || k.Recovery != "" {
			continue
		}
		ms := float64(f.DetectedNs-k.UnixNs) / 1e6
		k.Recovery, k.DetectedMs = s.ID, &ms
		if said = append(said, k.String()); first == 0 {
			first = k.UnixNs
			s.DetectedMs = ms
		}
	}
	for _, f := range s.Faults {
		if len(said) > 0 {
			break
		}
		said = append(said, fmt.Sprintf("%s of %s %s", f.Kind, f.Node, f.Device))
		s.DetectedMs = float64(s.Faults[0].DetectedNs-s.Faults[0].FirstNs) / 1e6
	}
	s.Fault = strings.TrimSpace(strings.Join(said, "; "))
}

// faultOfDeath is the fault of the recovery that a death led to: the earliest that
// names its rank or its node and was seen after it.
func (s *RecoveryReport) faultOfDeath(k Kill, sc Scenario) (falcon.Fault, bool) {
	v, err := sc.parseVictim(k.Target)
	if err != nil || v.what != "rank" && v.what != "node" {
		return falcon.Fault{}, false
	}
	var out falcon.Fault
	for _, f := range s.Faults {
		hit := v.what == "node" && f.Node == v.node ||
			v.what == "rank" && slices.Contains(f.Ranks, v.rank)
		if hit &&
			f.DetectedNs >= k.UnixNs &&
			(out.Kind == "" || f.DetectedNs < out.DetectedNs) {
			out = f
		}
	}
	return out, out.Kind != ""
}

// recovered reports whether a row is the first of a rejoin: the time before it was the
// recovery's.
func (r *Report) recovered(it Iteration) bool {
	return slices.ContainsFunc(r.Recoveries, func(s RecoveryReport) bool {
		return s.ResumeIteration == it.Index && it.Generation > 0
	})
}
