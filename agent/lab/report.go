package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Report is what a run showed: the injected truth, the trainers' own clocks
// and Falcon's word, side by side. Its fields are a promise to users.
type Report struct {
	Scenario        string              `json:"scenario"`
	Build           string              `json:"build"` // version of the binary that played it
	Seed            int64               `json:"seed"`
	Layout          falcon.Layout       `json:"layout"`
	Ranks           int                 `json:"ranks"`
	Nodes           int                 `json:"nodes"`
	Injected        []Injected          `json:"injected"`
	Iterations      []Iteration         `json:"iterations"`
	HealthyMs       *float64            `json:"healthy_ms"`
	SlowMs          *float64            `json:"slow_ms"`
	MitigatedMs     *float64            `json:"mitigated_ms"`
	AfterMs         *float64            `json:"after_ms"` // median after the last revert
	SlowdownRemoved *float64            `json:"slowdown_removed"`
	SlowdownBound   *float64            `json:"slowdown_removed_bound"` // what the cost model says is possible
	Incidents       []IncidentStory     `json:"incidents"`
	Validations     []falcon.Validation `json:"validations"` // pauses of the job and what was measured in them, oldest first
	Recoveries      []struct{}          `json:"recoveries"`
	FinalLoss       float64             `json:"final_loss"`
	ReferenceLoss   float64             `json:"reference_loss"`
	WeightsSha      string              `json:"weights_sha256"`
	ReferenceSha    string              `json:"reference_weights_sha256"`
	Emulated        []string            `json:"emulated"`
	RankCPUMs       float64             `json:"rank_cpu_ms_per_iteration"` // all rank processes, user and system, without the first iterations
	Error           string              `json:"error,omitempty"`
}

// IncidentStory is one incident with what was done about it.
type IncidentStory struct {
	ID                string         `json:"id"`
	State             string         `json:"state"`
	OnsetIteration    int64          `json:"onset_iteration"`
	DetectedIteration int64          `json:"detected_iteration"`
	RelievedIteration *int64         `json:"relieved_iteration"`
	Verdict           VerdictStory   `json:"verdict"`
	Actions           []ActionStory  `json:"actions"`
	Cost              map[string]any `json:"cost"`
}

// VerdictStory is a verdict as reports show it.
type VerdictStory struct {
	Cause      string   `json:"cause"`
	Also       []string `json:"also,omitempty"`
	Devices    []string `json:"devices"`
	Ranks      []int32  `json:"ranks"`
	Links      []string `json:"links"`
	Severity   int32    `json:"severity"`
	Confidence float64  `json:"confidence"`
	Evidence   []string `json:"evidence"`
}

// ActionStory is an action as reports show it.
type ActionStory struct {
	Rung              string  `json:"rung"`
	ProposedIteration int64   `json:"proposed_iteration"`
	DecidedBy         string  `json:"decided_by"`
	AppliedIteration  *int64  `json:"applied_iteration"`
	RevertedIteration *int64  `json:"reverted_iteration"`
	MicroBatches      []int32 `json:"micro_batches"`
	BeforeMs          float64 `json:"before_ms"`
	PredictedMs       float64 `json:"predicted_ms"`
	MeasuredMs        float64 `json:"measured_ms"`
	OverheadMs        float64 `json:"overhead_ms"`
	State             string  `json:"state"`   // where it ended, as the console shows it
	Outcome           string  `json:"outcome"` // "kept" when its gain was verified, also if it was undone after relief
}

const outcomeKept = "kept"

// Reference is the same job run unpaced and undisturbed.
type Reference struct {
	Loss float64
	Sha  string
}

// RunReference trains the same job, seed and layout without pacing and without
// faults, for the loss and the weights that the lab's run is compared with.
func RunReference(ctx context.Context, sc Scenario, opt Options) (Reference, error) {
	l := &Lab{sc: sc, opt: opt}
	cmd := exec.CommandContext(ctx, filepath.Join(opt.Bin, "falcon-trainer"), append([]string{"local"}, l.shapeArgs()...)...)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Join(opt.Bin, "lib"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		return Reference{}, fmt.Errorf("lab: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return Reference{}, fmt.Errorf("lab: can't start the reference run: %w", err)
	}
	rec := newRecords(1)
	readLines(out, func(ln line) { rec.add(0, ln) })
	if err := cmd.Wait(); err != nil {
		return Reference{}, fmt.Errorf("lab: the reference run failed: %w", err)
	}
	if len(rec.rows) == 0 {
		return Reference{}, fmt.Errorf("lab: the reference run printed no iteration")
	}
	return Reference{Loss: rec.rows[len(rec.rows)-1].Loss, Sha: rec.sha}, nil
}

// Report joins the lab's records with the engine's incidents. Call it after
// Run, while the engine still answers.
func (l *Lab) Report(ctx context.Context, client falconv1.ConsoleClient, ref Reference) (Report, error) {
	r := Report{
		Scenario: l.sc.Name, Build: l.opt.Build, Seed: l.opt.Seed, Layout: l.sc.Layout.Layout(), Ranks: len(l.ranks), Nodes: l.sc.Nodes,
		Injected: l.faults.injected, Iterations: l.records.rows[:l.records.done], Recoveries: []struct{}{},
		WeightsSha: l.records.sha, ReferenceLoss: ref.Loss, ReferenceSha: ref.Sha,
		Emulated: []string{"gpu pace", "link pace", "nvml counters", "nic counters"},
	}
	if slices.ContainsFunc(l.sc.Events, func(e Event) bool { return e.CPU != "" }) {
		r.Emulated = append(r.Emulated, "cpu contention")
	}
	if n := len(r.Iterations); n > 0 {
		r.FinalLoss = r.Iterations[n-1].Loss
		r.RankCPUMs = l.records.cpuPerIteration()
	}
	reply, err := client.Incidents(ctx, &falconv1.IncidentsRequest{})
	if err != nil {
		return r, fmt.Errorf("lab: the engine gave no incidents: %w", err)
	}
	r.Incidents, r.Validations = stories(reply), validations(reply)
	r.summarise(l.sc)
	return r, nil
}

func stories(reply *falconv1.IncidentsReply) []IncidentStory {
	out := []IncidentStory{}
	for i, in := range reply.GetIncidents() {
		s := IncidentStory{
			ID: in.GetId(), State: in.GetState(), OnsetIteration: in.GetOnsetIteration(), DetectedIteration: in.GetDetectedIteration(),
			RelievedIteration: known(in.GetRelievedIteration()), Verdict: verdictStory(in.GetVerdict()),
			Actions: []ActionStory{}, Cost: map[string]any{},
		}
		if i < len(reply.GetLadders()) {
			ladder := reply.GetLadders()[i]
			s.Cost["lost_gpu_hours"], s.Cost["lost_ms"] = ladder.GetLostGpuHours(), ladder.GetImpactMs()
			for _, a := range ladder.GetActions() {
				s.Actions = append(s.Actions, actionStory(a, s.RelievedIteration))
			}
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b IncidentStory) int { return int(a.OnsetIteration - b.OnsetIteration) })
	return out
}

// known turns the wire's −1 into null.
func known(i int64) *int64 {
	if i == falcon.NoIteration {
		return nil
	}
	return &i
}

func verdictStory(v *falconv1.Verdict) VerdictStory {
	out := VerdictStory{
		Cause: v.GetCause(), Also: v.GetAlso(), Devices: orEmpty(v.GetDevices()), Ranks: orEmpty(v.GetRanks()), Links: orEmpty(v.GetLinks()),
		Severity: v.GetSeverity(), Confidence: v.GetConfidence(), Evidence: []string{},
	}
	for _, e := range v.GetEvidence() {
		text := e.GetText()
		if e.GetAgainst() {
			text = "against: " + text
		}
		out.Evidence = append(out.Evidence, text)
	}
	return out
}

func orEmpty[T any](v []T) []T {
	if v == nil {
		return []T{}
	}
	return v
}

func actionStory(a *falconv1.Action, relieved *int64) ActionStory {
	s := ActionStory{
		Rung: a.GetRung(), ProposedIteration: a.GetProposedIteration(), DecidedBy: a.GetDecidedBy(),
		AppliedIteration: known(a.GetAppliedIteration()), RevertedIteration: known(a.GetRevertedIteration()),
		MicroBatches: orEmpty(a.GetMicroBatches()), BeforeMs: a.GetBeforeMs(), PredictedMs: a.GetPredictedMs(),
		MeasuredMs: a.GetMeasuredMs(), OverheadMs: a.GetOverheadMs(), State: a.GetState(), Outcome: a.GetState(),
	}
	undoneEarly := s.RevertedIteration != nil && (relieved == nil || *s.RevertedIteration < *relieved)
	if s.MeasuredMs > 0 && !undoneEarly {
		s.Outcome = outcomeKept
	}
	return s
}

// summarise fills the medians that INTERFACES promises; null where a window
// holds no iteration.
func (r *Report) summarise(sc Scenario) {
	if len(r.Injected) == 0 {
		r.HealthyMs = r.medianMs(int64(sc.WarmUp), math.MaxInt64)
		return
	}
	first := r.Injected[0].FirstIteration
	cleared := r.Injected[0].LastIteration + 1
	for _, in := range r.Injected {
		cleared = max(cleared, in.LastIteration+1)
	}
	r.HealthyMs = r.medianMs(int64(sc.WarmUp), first)
	applied, kept, reverted := r.actionTimes()
	slowEnd := cleared
	if applied != nil {
		slowEnd = min(slowEnd, *applied)
	}
	r.SlowMs = r.medianMs(first, slowEnd)
	if kept != nil {
		r.MitigatedMs = r.medianMs(*kept+2, cleared)
	}
	after := cleared
	if reverted != nil {
		after = max(after, *reverted)
	}
	r.AfterMs = r.medianMs(after+1, math.MaxInt64)
	if r.HealthyMs != nil && r.SlowMs != nil && r.MitigatedMs != nil && *r.SlowMs > *r.HealthyMs {
		v := (*r.SlowMs - *r.MitigatedMs) / (*r.SlowMs - *r.HealthyMs)
		r.SlowdownRemoved = &v
		r.bound()
	}
}

// bound is the share that the planner's own prediction would have removed.
func (r *Report) bound() {
	for _, in := range r.Incidents {
		for _, a := range in.Actions {
			if a.AppliedIteration != nil && a.PredictedMs > 0 {
				v := (*r.SlowMs - a.PredictedMs) / (*r.SlowMs - *r.HealthyMs)
				r.SlowdownBound = &v
			}
		}
	}
}

func (r *Report) actionTimes() (applied, kept, reverted *int64) {
	for _, in := range r.Incidents {
		for _, a := range in.Actions {
			if a.AppliedIteration == nil {
				continue
			}
			if applied == nil || *a.AppliedIteration < *applied {
				applied = a.AppliedIteration
			}
			if a.Outcome == outcomeKept {
				kept = a.AppliedIteration
			}
			if a.RevertedIteration != nil {
				reverted = a.RevertedIteration
			}
		}
	}
	return applied, kept, reverted
}

// medianMs is the median over unpaused iterations from..to−1.
func (r *Report) medianMs(from, to int64) *float64 {
	var v []float64
	for _, it := range r.Iterations {
		if it.Index >= from && it.Index < to && it.PausedMs == 0 {
			v = append(v, it.Ms)
		}
	}
	if len(v) == 0 {
		return nil
	}
	slices.Sort(v)
	m := (v[(len(v)-1)/2] + v[len(v)/2]) / 2
	return &m
}

// WriteReport writes the report as JSON, 0600, whole or not at all.
func WriteReport(path string, r Report) error {
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	tmp := path + "." + strconv.Itoa(os.Getpid())
	if err := os.WriteFile(tmp, append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("lab: can't write the report: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("lab: can't write the report: %w", err)
	}
	return nil
}
