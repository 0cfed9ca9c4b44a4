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

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Report is what a run showed: the injected truth, the trainers' own clocks
// and Falcon's account of it, side by side. Its fields are a promise to users;
// in JSON those of its parts are inlined.
type Report struct {
	Setup
	Injected   []Injected  `json:"injected"`
	Iterations []Iteration `json:"iterations"`
	Medians
	Incidents []IncidentReport `json:"incidents"`
	// pauses of the job and what was measured in them, oldest first
	Validations []falcon.Validation `json:"validations"`
	Swaps       []SwapReport        `json:"swaps"`    // placements, as the ranks report them
	Restarts    []Restart           `json:"restarts"` // generations started from a checkpoint
	Kills       []Kill              `json:"kills"`    // deaths that the scenario dealt
	Stalls      []Stall             `json:"stalls"`   // of single ranks, that the scenario brought
	// between one change of faults or actions and the next
	Phases     []Phase          `json:"phases"`
	Recoveries []RecoveryReport `json:"recoveries"`
	Training
	Emulated []string `json:"emulated"`
	// all rank processes, user and system, without the first iterations
	RankCPUMs float64 `json:"rank_cpu_ms_per_iteration"`
	Error     string  `json:"error,omitempty"`
}

// Setup is what was played.
type Setup struct {
	Scenario string        `json:"scenario"`
	Build    string        `json:"build"` // version of the binary that played it
	Seed     int64         `json:"seed"`
	Layout   falcon.Layout `json:"layout"`
	Ranks    int           `json:"ranks"`
	Nodes    int           `json:"nodes"`  // in use at the start
	Spares   int           `json:"spares"` // beyond them
}

// Medians are the iteration times of the run's stretches, null where one holds no
// iteration.
type Medians struct {
	HealthyMs       *float64 `json:"healthy_ms"`
	SlowMs          *float64 `json:"slow_ms"`
	MitigatedMs     *float64 `json:"mitigated_ms"`
	AfterMs         *float64 `json:"after_ms"` // after the last revert
	SlowdownRemoved *float64 `json:"slowdown_removed"`
	SlowdownBound   *float64 `json:"slowdown_removed_bound"` // what the cost model predicts as possible
}

// Training is what was trained, beside the reference run.
type Training struct {
	FinalLoss     float64 `json:"final_loss"`
	ReferenceLoss float64 `json:"reference_loss"`
	WeightsSha    string  `json:"weights_sha256"`
	ReferenceSha  string  `json:"reference_weights_sha256"`
	WeightsNote   string  `json:"weights_note"` // whether the two hashes must be equal, and why not
	SamplesNote   string  `json:"samples_note"` // whether every iteration saw the reference's samples
}

const outcomeKept = "kept"

// Reference is the same job run unpaced and undisturbed.
type Reference struct {
	Loss float64
	Sha  string
	Rows []Iteration
}

// politeNice leaves the machine to paced labs, and still gets a share of one that is busy otherwise.
const politeNice = 10

// RunReference trains the same job, seed and layout without pacing and without
// faults, for the loss and the weights that the lab's run is compared with.
func RunReference(ctx context.Context, sc Scenario, opt Options) (Reference, error) {
	l := &Lab{sc: sc, opt: opt}
	cmd := exec.CommandContext(
		ctx,
		filepath.Join(opt.Bin, "falcon-trainer"),
		append([]string{"local"}, l.shapeArgs()...)...,
	)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Join(opt.Bin, "lib"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		return Reference{}, fmt.Errorf("lab: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return Reference{}, fmt.Errorf("lab: can't start the reference run: %w", err)
	}
	// It computes without a pause; a paced lab beside it must not feel that. The
	// ranks that it starts inherit it.
	_ = unix.Setpriority(unix.PRIO_PROCESS, cmd.Process.Pid, politeNice)
	rec := newRecords(1)
	readLines(out, func(ln line) { rec.addLine(0, ln) })
	if err := cmd.Wait(); err != nil {
		return Reference{}, fmt.Errorf("lab: the reference run failed: %w", err)
	}
	if len(rec.rows) == 0 {
		return Reference{}, fmt.Errorf("lab: the reference run printed no iteration")
	}
	return Reference{Loss: rec.rows[len(rec.rows)-1].Loss, Sha: rec.sha, Rows: rec.rows}, nil
}

// Report joins the lab's records with the engine's incidents. Call it after
// Run, while the engine still answers.
func (l *Lab) Report(ctx context.Context, client falconv1.ConsoleClient, ref Reference) (Report, error) {
	layout := l.sc.Layout.Layout()
	r := Report{
		Setup: Setup{
			Scenario: l.sc.Name,
			Build:    l.opt.Build,
			Seed:     l.opt.Seed,
			Layout:   layout,
			Ranks:    layout.World(),
			Nodes:    l.sc.Nodes,
			Spares:   l.sc.Spares,
		},
		Injected:   emptyIfNil(l.faults.injected),
		Iterations: l.records.rows[:l.records.done],
		Swaps:      l.records.orders.swapReports(),
		Restarts:   emptyIfNil(l.records.restarts),
		Training: Training{
			ReferenceLoss: ref.Loss,
			ReferenceSha:  ref.Sha,
			WeightsSha:    l.records.sha,
			WeightsNote:   l.records.weightsNote(ref),
			SamplesNote:   l.records.samplesNote(ref),
		},
		Emulated: []string{"gpu pace", "link pace", "nvml counters", "nic counters"},
	}
	r.Emulated = append(r.Emulated, l.sc.emulatedParts()...)
	if n := len(r.Iterations); n > 0 {
		r.FinalLoss = r.Iterations[n-1].Loss
		r.RankCPUMs = l.records.cpuPerIteration()
	}
	reply, err := client.Incidents(ctx, &falconv1.IncidentsRequest{})
	if err != nil {
		return r, fmt.Errorf("lab: the engine gave no incidents: %w", err)
	}
	r.Incidents, r.Validations = incidentReports(reply), []falcon.Validation{}
	for _, v := range slices.Backward(reply.GetValidations()) { // oldest first
		r.Validations = append(r.Validations, convert.ValidationFromProto(v))
	}
	if r.Recoveries, err = l.recoveries(ctx, client); err != nil {
		return r, err
	}
	if r.Stalls, err = l.stalls.reports(ctx, client); err != nil {
		return r, err
	}
	r.Kills = emptyIfNil(l.kills) // with the recoveries that saw them
	r.summarise(l.sc)
	return r, nil
}

// emulatedParts names what the scenario models beyond every lab's silicon.
func (s Scenario) emulatedParts() []string {
	var out []string
	if slices.ContainsFunc(s.Events, func(e Event) bool { return e.CPU != "" }) {
		out = append(out, "cpu contention")
	}
	if s.StateMB > 0 {
		out = append(out, "size of a GPU's state", "pace of its copies")
	}
	if s.DiskMBs > 0 {
		out = append(out, "pace of the checkpoints' storage")
	}
	if slices.ContainsFunc(s.Events, func(e Event) bool { return e.OnAction != "" }) {
		out = append(out, "a fault that an action brings")
	}
	return out
}

// weightsNote describes what the two hashes of the weights can show.
func (r *records) weightsNote(ref Reference) string {
	switch {
	case ref.Sha == "":
		return "no reference was run"
	case r.sha == "":
		return "the job did not come to its end"
	case r.uneven:
		return "an S2 split was in force: sums were taken in another order, the losses agree and the hashes need not"
	case r.fewer:
		return "replicas were given up: sums were taken in another order, the losses agree and the hashes need not"
	}
	return "must be equal: no S2 split was in force"
}

// samplesNote compares all iterations with the reference's: which samples they
// saw, and the loss, which is a function of these and of the weights before.
func (r *records) samplesNote(ref Reference) string {
	switch {
	case len(ref.Rows) == 0:
		return "no reference was run"
	case r.uneven:
		return "an S2 split was in force: replicas saw other shares of the samples"
	}
	same, apart := SamplesEqual, 0.0
	if r.fewer {
		same, apart = SamplesShared, lossApart
	}
	for _, row := range r.rows[:r.done] {
		if row.Untold || row.Index >= int64(len(ref.Rows)) {
			continue
		}
		want := ref.Rows[row.Index]
		if row.Sample != want.Sample ||
			!(math.Abs(row.Loss-want.Loss) <= apart*math.Abs(want.Loss)) {
			return fmt.Sprintf(
				"iteration %d began with sample %d and had loss %v, the reference's with %d and %v",
				row.Index, row.Sample, row.Loss, want.Sample, want.Loss,
			)
		}
	}
	return same
}

// lossApart is how far losses of the same samples may lie apart, relatively,
// where they were summed up in another order.
const lossApart = 1e-4

// SamplesEqual is the note of a run in which all iterations were the
// reference's.
const SamplesEqual = "every iteration has the reference's samples and its loss to the bit"

// SamplesShared is the note of a run that has given replicas up, and none of its
// batch.
const SamplesShared = "every iteration has the reference's samples, over fewer replicas, and its loss to 1e-4"

// summarise fills the medians; null where a window
// holds no iteration.
func (r *Report) summarise(sc Scenario) {
	r.Phases = r.cutPhases()
	if len(r.Injected) == 0 {
		r.HealthyMs = r.medianPtr(int64(sc.WarmUp), math.MaxInt64)
		return
	}
	first := r.Injected[0].FirstIteration
	cleared := r.Injected[0].LastIteration + 1
	for _, in := range r.Injected {
		cleared = max(cleared, in.LastIteration+1)
	}
	r.HealthyMs = r.medianPtr(int64(sc.WarmUp), first)
	applied, kept, reverted := r.actionTimes()
	slowEnd := cleared
	if applied != nil {
		slowEnd = min(slowEnd, *applied)
	}
	r.SlowMs = r.medianPtr(first, slowEnd)
	if kept != nil {
		r.MitigatedMs = r.medianPtr(*kept+2, cleared)
	}
	after := cleared
	if reverted != nil {
		after = max(after, *reverted)
	}
	r.AfterMs = r.medianPtr(after+1, math.MaxInt64)
	if r.HealthyMs != nil &&
		r.SlowMs != nil &&
		r.MitigatedMs != nil &&
		*r.SlowMs > *r.HealthyMs {
		v := (*r.SlowMs - *r.MitigatedMs) / (*r.SlowMs - *r.HealthyMs)
		r.SlowdownRemoved = &v
		r.predictRemoved()
	}
}

// predictRemoved is the share that the planner's own prediction for the last action that
// was kept would have removed, or for the last at all.
func (r *Report) predictRemoved() {
	var last *ActionReport
	for _, a := range r.appliedActions() {
		better := last == nil ||
			(a.Outcome == outcomeKept) == (last.Outcome == outcomeKept) &&
				*a.AppliedIteration > *last.AppliedIteration ||
			a.Outcome == outcomeKept && last.Outcome != outcomeKept
		if a.PredictedMs > 0 && better {
			last = &a
		}
	}
	if last != nil {
		v := (*r.SlowMs - last.PredictedMs) / (*r.SlowMs - *r.HealthyMs)
		r.SlowdownBound = &v
	}
}

// actionTimes are the first iteration of any action, of the last one that was
// kept, and of the last that was undone.
func (r *Report) actionTimes() (applied, kept, reverted *int64) {
	later := func(have, v *int64) *int64 {
		if v == nil || have != nil && *have >= *v {
			return have
		}
		return v
	}
	for _, a := range r.appliedActions() {
		if applied == nil || *a.AppliedIteration < *applied {
			applied = a.AppliedIteration
		}
		if a.Outcome == outcomeKept {
			kept = later(kept, a.AppliedIteration)
		}
		reverted = later(reverted, a.RevertedIteration)
	}
	return applied, kept, reverted
}

// appliedActions are those that took force, of all incidents.
func (r *Report) appliedActions() []ActionReport {
	var out []ActionReport
	for _, in := range r.Incidents {
		for _, a := range in.Actions {
			if a.AppliedIteration != nil {
				out = append(out, a)
			}
		}
	}
	return out
}

// medianPtr is the median over unpaused iterations from..to−1, nil where there
// are none.
func (r *Report) medianPtr(from, to int64) *float64 {
	ms, n := r.medianBetween(from, to)
	if n == 0 {
		return nil
	}
	return &ms
}

// WriteReport writes the report as JSON, 0600, whole or not at all.
func WriteReport(path string, r Report) error {
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	return replaceFile(path, string(b))
}
