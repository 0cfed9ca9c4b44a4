package lab

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// RecoveryStory is one recovery: Falcon's account beside what the lab did and the
// ranks' own logs.
type RecoveryStory struct {
	ID         string             `json:"id"`
	State      string             `json:"state"`
	Generation uint64             `json:"generation"`
	Attempts   int32              `json:"attempts"`
	Fault      string             `json:"fault"`       // what the lab did, else what Falcon saw
	Faults     []FaultStory       `json:"faults"`      // what Falcon saw
	DetectedMs float64            `json:"detected_ms"` // from the first death that the lab dealt until the engine was certain; without one, from its first sign
	PhasesMs   map[string]float64 `json:"phases_ms"`
	PredictMs  map[string]float64 `json:"predicted_ms"`
	TotalMs    float64            `json:"total_ms"` // of the phases
	DownMs     float64            `json:"down_ms"`  // by the ranks' logs: from the end of the last iteration before to the start of the first after

	ResumeIteration  int64             `json:"resume_iteration"`
	LostIterations   int64             `json:"lost_iterations"` // begun before and run again, by the ranks' logs
	RestoredFrom     map[string]int32  `json:"restored_from"`   // by rank; -2 = storage
	Replaced         map[string]string `json:"replaced"`        // device by replaced rank
	Survivors        []int32           `json:"survivors"`
	SurvivorPidsKept bool              `json:"survivor_pids_kept"` // by the ranks' logs
	Fenced           []string          `json:"fenced"`
	Checkpoint       bool              `json:"checkpoint"`
	Reason           string            `json:"reason,omitempty"`
	DecidedBy        string            `json:"decided_by"`
}

// FaultStory is one fault as Falcon saw it.
type FaultStory struct {
	Kind           string   `json:"kind"`
	Node           string   `json:"node"`
	Device         string   `json:"device,omitempty"`
	Ranks          []int32  `json:"ranks"`
	Evidence       []string `json:"evidence"`
	FirstUnixNs    int64    `json:"first_unix_ns"`
	DetectedUnixNs int64    `json:"detected_unix_ns"`
}

// recoveries asks the engine for its recoveries, oldest first, and lays the
// lab's truth beside them. It also notes at each death which recovery saw it.
func (l *Lab) recoveries(ctx context.Context, client falconv1.ConsoleClient) ([]RecoveryStory, error) {
	reply, err := client.Recoveries(ctx, &falconv1.RecoveriesRequest{})
	if err != nil {
		return nil, fmt.Errorf("lab: the engine gave no recoveries: %w", err)
	}
	out := []RecoveryStory{}
	for _, r := range slices.Backward(reply.GetRecoveries()) {
		out = append(out, recoveryStory(r))
	}
	since := uint64(0)
	for i := range out {
		l.records.fillRecovery(&out[i], since)
		since = out[i].Generation
		out[i].matchDeaths(l.kills, l.sc)
	}
	return out, nil
}

func recoveryStory(r *falconv1.Recovery) RecoveryStory {
	s := RecoveryStory{
		ID: r.GetId(), State: r.GetState(), Generation: r.GetGeneration(), Attempts: r.GetAttempts(), Faults: []FaultStory{},
		PhasesMs: noneIfNil(r.GetPhasesMs()), PredictMs: noneIfNil(r.GetPredictedMs()), ResumeIteration: r.GetResumeIteration(),
		RestoredFrom: map[string]int32{}, Replaced: map[string]string{}, Survivors: emptyIfNil(r.GetSurvivors()), Fenced: emptyIfNil(r.GetFenced()),
		Checkpoint: r.GetCheckpoint(), Reason: r.GetReason(), DecidedBy: r.GetDecidedBy(),
	}
	for _, f := range r.GetFaults() {
		s.Faults = append(s.Faults, FaultStory{
			Kind: f.GetKind(), Node: f.GetNode(), Device: f.GetDevice(), Ranks: emptyIfNil(f.GetRanks()), Evidence: emptyIfNil(f.GetEvidence()),
			FirstUnixNs: f.GetFirstUnixNs(), DetectedUnixNs: f.GetDetectedUnixNs(),
		})
	}
	for _, m := range r.GetMoves() {
		s.RestoredFrom[strconv.Itoa(int(m.GetRank()))] = m.GetFrom()
	}
	for rank, d := range r.GetReplaced() {
		s.Replaced[strconv.Itoa(int(rank))] = d
	}
	for _, ms := range s.PhasesMs {
		s.TotalMs += ms
	}
	return s
}

func noneIfNil(m map[string]float64) map[string]float64 {
	if m == nil {
		return map[string]float64{}
	}
	return m
}

// fillRecovery adds what the ranks logged of the recovery: of its generations, which
// lie behind since.
func (r *records) fillRecovery(s *RecoveryStory, since uint64) {
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
	if i := slices.IndexFunc(r.restarts, func(v Restart) bool { return v.Generation == s.Generation }); i >= 0 {
		s.ResumeIteration, s.LostIterations, s.DownMs = r.restarts[i].FirstIteration, r.restarts[i].Redone, r.restarts[i].DownMs
	}
	if last == nil {
		return
	}
	var anew []falcon.Rank
	for text := range s.Replaced {
		if n, err := strconv.Atoi(text); err == nil {
			anew = append(anew, falcon.Rank(n))
		}
	}
	whole := rejoin{before: first.before, after: last.after}
	s.SurvivorPidsKept, s.DownMs = whole.survivorsKept(anew), last.downMs
}

// matchDeaths finds the deaths that the recovery is about, and how long it took to be
// certain of the first.
func (s *RecoveryStory) matchDeaths(kills []Kill, sc Scenario) {
	var said []string
	first := int64(0)
	for i := range kills {
		k := &kills[i]
		f, ok := s.faultOfDeath(*k, sc)
		if !ok || k.Recovery != "" {
			continue
		}
		ms := float64(f.DetectedUnixNs-k.UnixNs) / 1e6
		k.Recovery, k.DetectedMs = s.ID, &ms
		if said = append(said, k.String()); first == 0 {
			first, s.DetectedMs = k.UnixNs, ms
		}
	}
	for _, f := range s.Faults {
		if len(said) > 0 {
			break
		}
		said = append(said, fmt.Sprintf("%s of %s %s", f.Kind, f.Node, f.Device))
		s.DetectedMs = float64(s.Faults[0].DetectedUnixNs-s.Faults[0].FirstUnixNs) / 1e6
	}
	s.Fault = strings.TrimSpace(strings.Join(said, "; "))
}

// faultOfDeath is the fault of the recovery that a death led to: the earliest that
// names its rank or its node and was seen after it.
func (s *RecoveryStory) faultOfDeath(k Kill, sc Scenario) (FaultStory, bool) {
	v, err := sc.parseVictim(k.Target)
	if err != nil || v.what != "rank" && v.what != "node" {
		return FaultStory{}, false
	}
	var out FaultStory
	for _, f := range s.Faults {
		hit := v.what == "node" && f.Node == string(v.node) || v.what == "rank" && slices.Contains(f.Ranks, int32(v.rank))
		if hit && f.DetectedUnixNs >= k.UnixNs && (out.Kind == "" || f.DetectedUnixNs < out.DetectedUnixNs) {
			out = f
		}
	}
	return out, out.Kind != ""
}

// recovered reports whether a row is the first of a rejoin: the time before it was the
// recovery's.
func (r *Report) recovered(it Iteration) bool {
	return slices.ContainsFunc(r.Recoveries, func(s RecoveryStory) bool {
		return s.ResumeIteration == it.Index && it.Generation > 0
	})
}
