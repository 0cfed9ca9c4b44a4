package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/lab"
)

// wantedIncident is what one incident of a report must say: all faults of one kind that
// were injected at the same iteration.
type wantedIncident struct {
	cause          falcon.Cause
	devices, links []string
	first, last    int64
	during         bool // it begins while another fault is in force
}

// causes says what an injected kind must be taken for.
var causes = map[string]falcon.Cause{
	"gpu":     falcon.CauseGPU,
	"cpu":     falcon.CauseCPU,
	"link":    falcon.CauseNetwork,
	"work":    falcon.CauseNotHardware,
	"data":    falcon.CauseNotHardware,
	"lengths": falcon.CauseNotHardware,
}

// truths folds a report's injected faults into the incidents that it must have.
func truths(injected []lab.Injected) []wantedIncident {
	var out []wantedIncident
	for _, in := range injected {
		i := slices.IndexFunc(out, func(s wantedIncident) bool {
			return s.first == in.FirstIteration && s.cause == causes[in.Kind]
		})
		if i < 0 {
			during := slices.ContainsFunc(out, func(s wantedIncident) bool {
				return in.FirstIteration <= s.last
			})
			out = append(out, wantedIncident{
				cause:  causes[in.Kind],
				first:  in.FirstIteration,
				last:   in.LastIteration,
				during: during,
			})
			i = len(out) - 1
		}
		out[i].devices = append(out[i].devices, in.Devices...)
		out[i].links = append(out[i].links, in.Links...)
		out[i].last = max(out[i].last, in.LastIteration)
	}
	for i := range out {
		slices.Sort(out[i].devices)
		slices.Sort(out[i].links)
	}
	return out
}

// Bounds of when an incident is reported, in iterations.
const (
	onsetLate  = 5  // to know the onset of a fault in a healthy job
	duringLate = 40 // of a fault that others hide: a profile must find it
	reliefLate = 70 // after the clearing
	// hostAhead is how far the hosts, whose iterations the lab counts, run ahead of the
	// devices: what clears when a host begins an iteration is gone on its device that
	// much earlier.
	hostAhead = 2
)

// judgeTruth: one incident per injected fault, with its cause and exactly its devices
// and links, known in time, relieved in time; the loss is the reference's.
func judgeTruth(r lab.Report) []string {
	want := truths(r.Injected)
	var bad []string
	if len(r.Incidents) != len(want) {
		bad = append(bad, fmt.Sprintf("%d incidents, want %d", len(r.Incidents), len(want)))
	}
	for _, w := range want {
		bad = append(bad, judgeIncident(r, w)...)
	}
	return append(bad, judgeLoss(r)...)
}

func judgeIncident(r lab.Report, w wantedIncident) []string {
	var announced []string
	for _, in := range r.Incidents {
		v := in.Verdict
		if v.Cause == string(w.cause) &&
			slices.Equal(v.Devices, w.devices) &&
			slices.Equal(v.Links, w.links) {
			return append(judgeTimes(in, w), judgeRanks(r, v)...)
		}
		announced = append(announced, fmt.Sprintf("%s %v %v at %d",
			v.Cause, v.Devices, v.Links, in.OnsetIteration))
	}
	return []string{fmt.Sprintf("no incident says %s %v %v at %d; told: %s",
		w.cause, w.devices, w.links, w.first, strings.Join(announced, ", "))}
}

// judgeRanks: the ranks are those that live on the devices. Links' ranks are
// not judged: they are whoever uses them.
func judgeRanks(r lab.Report, v lab.VerdictReport) []string {
	var want []int32
	for _, d := range v.Devices {
		device := falcon.Device(d)
		node, err := strconv.Atoi(strings.TrimPrefix(string(device.Node()), "n"))
		if err != nil {
			return []string{"device " + d + " is none of the lab's"}
		}
		want = append(want, int32(node*r.Ranks/r.Nodes+device.Index()))
	}
	if want != nil && !slices.Equal(v.Ranks, want) {
		return []string{fmt.Sprintf("ranks %v, want %v", v.Ranks, want)}
	}
	return nil
}

func judgeTimes(in lab.IncidentReport, w wantedIncident) []string {
	var bad []string
	limit := int64(onsetLate)
	if w.during {
		limit = duringLate
	}
	if late := in.DetectedIteration - w.first; late < 0 || late > limit {
		bad = append(bad, fmt.Sprintf("onset of iteration %d known at %d", w.first, in.DetectedIteration))
	}
	cleared := w.last + 1
	if in.RelievedIteration == nil ||
		*in.RelievedIteration < cleared-hostAhead ||
		*in.RelievedIteration > cleared+reliefLate {
		bad = append(bad, fmt.Sprintf("relieved %s, cleared at %d", show(in.RelievedIteration), cleared))
	}
	return bad
}

// judgeNotHardware: moreover nothing is done about it.
func judgeNotHardware(r lab.Report) []string {
	bad := judgeTruth(r)
	for _, in := range r.Incidents {
		if len(in.Actions)+len(in.Verdict.Ranks) != 0 {
			bad = append(bad, fmt.Sprintf("ranks %v, actions %+v, want none", in.Verdict.Ranks, in.Actions))
		}
	}
	return bad
}

// judgeReason: moreover the job's own work is named, with the rank whose data come late and no
// other, and nothing is done about it.
func judgeReason(reason falcon.Reason) func(lab.Report) []string {
	return func(r lab.Report) []string {
		bad := judgeTruth(r)
		var late []int32
		for _, in := range r.Injected {
			if in.Rank != nil {
				late = append(late, int32(*in.Rank))
			}
		}
		for _, in := range r.Incidents {
			v := in.Verdict
			if v.Reason != string(reason) ||
				!slices.Equal(v.Ranks, late) && len(v.Ranks)+len(late) > 0 ||
				len(in.Actions) != 0 {
				bad = append(bad, fmt.Sprintf("%q, ranks %v, actions %+v, want %q, ranks %v and no action",
					v.Reason, v.Ranks, in.Actions, reason, late))
			}
		}
		return bad
	}
}

// judgeLinks: moreover the timing alone did not name the links: a test of them
// did, in a pause that let go of the job.
func judgeLinks(r lab.Report) []string {
	bad := judgeTruth(r)
	named := map[string]bool{}
	for _, v := range r.Validations {
		for _, l := range v.Links {
			if v.State == falcon.ValidationDone && l.Slow {
				named[l.Link] = true
			}
		}
	}
	for _, in := range r.Injected {
		for _, l := range in.Links {
			if !named[l] {
				bad = append(bad, fmt.Sprintf("no finished test shows %s slow; validations: %s",
					l, showValidations(r)))
			}
		}
	}
	return bad
}

func showValidations(r lab.Report) string {
	var out []string
	for _, v := range r.Validations {
		out = append(out, fmt.Sprintf("%s %s %s", v.ID, v.State, v.Reason))
	}
	return strings.Join(out, ", ")
}

// judgeS2: moreover S2 was applied once, was worth at least floor of the
// slowdown, and was undone after the relief, with healthy speed again within 3 %.
func judgeS2(floor float64) func(lab.Report) []string {
	return func(r lab.Report) []string {
		bad := judgeTruth(r)
		if len(r.Incidents) != 1 {
			return bad
		}
		bad = append(bad, judgeAction(r, r.Incidents[0], floor)...)
		if r.AfterMs == nil ||
			r.HealthyMs == nil ||
			math.Abs(*r.AfterMs-*r.HealthyMs) > 0.03**r.HealthyMs {
			bad = append(bad, fmt.Sprintf("after %s ms, healthy %s ms",
				showMs(r.AfterMs), showMs(r.HealthyMs)))
		}
		return bad
	}
}

func judgeAction(r lab.Report, in lab.IncidentReport, floor float64) []string {
	for i, a := range in.Actions {
		// A dearer rung may be worth proposing after S2; without an approval nothing comes of it.
		if i == 0 && (a.Rung != "S2" || a.AppliedIteration == nil || a.Outcome != "kept") ||
			i > 0 && (a.DecidedBy != "" || a.AppliedIteration != nil || a.Outcome != "expired") {
			return []string{fmt.Sprintf("actions %+v, want one S2, kept, and proposals at most", in.Actions)}
		}
	}
	if len(in.Actions) == 0 {
		return []string{"no action, want S2"}
	}
	var bad []string
	cleared := r.Injected[0].LastIteration + 1
	if rev := in.Actions[0].RevertedIteration; rev == nil || *rev > cleared+reliefLate+5 {
		bad = append(bad, "reverted at "+show(rev))
	}
	if r.SlowdownRemoved == nil || *r.SlowdownRemoved < floor {
		bad = append(bad, fmt.Sprintf("slowdown removed %s, want %v", showMs(r.SlowdownRemoved), floor))
	}
	return bad
}

// judgeS3: moreover nodes changed places once, on all ranks, to the gain of at
// least floor of the slowdown; after the relief they stayed, as all nodes are alike, or were
// put back where a busy machine made the job slower; and the weights are the reference's to the bit.
func judgeS3(floor float64) func(lab.Report) []string {
	return func(r lab.Report) []string {
		bad := append(judgeLinks(r), judgeSums(r)...)
		all := actionsOf(r)
		if len(all) != 1 ||
			all[0].Rung != "S3" ||
			all[0].Outcome != "kept" ||
			all[0].State != string(falcon.ActionRetained) && all[0].RevertedIteration == nil {
			return append(bad, fmt.Sprintf(
				"actions %+v, want one S3, kept, and retained or undone at the end",
				all,
			))
		}
		if r.SlowdownRemoved == nil || *r.SlowdownRemoved < floor {
			bad = append(bad, fmt.Sprintf("slowdown removed %s, want %v", showMs(r.SlowdownRemoved), floor))
		}
		for _, s := range r.Swaps {
			if len(s.Applied) != r.Ranks || s.ControlMs > 1000 {
				bad = append(bad, fmt.Sprintf("swap %+v, want all %d ranks and at most 1 s beyond copies",
					s, r.Ranks))
			}
		}
		return bad
	}
}

func judgeLoss(r lab.Report) []string {
	d := math.Abs(r.FinalLoss - r.ReferenceLoss)
	if !(d <= 1e-4*math.Abs(r.ReferenceLoss)) {
		return []string{fmt.Sprintf("loss %v, reference %v", r.FinalLoss, r.ReferenceLoss)}
	}
	return nil
}

func show(v *int64) string {
	if v == nil {
		return "never"
	}
	return strconv.FormatInt(*v, 10)
}

func showMs(v *float64) string {
	if v == nil {
		return "none"
	}
	return strconv.FormatFloat(*v, 'f', 3, 64)
}

// The judge passes what is right and says what is wrong, one thing at a time.
func TestJudge(t *testing.T) {
	relieved := int64(150)
	good := func() lab.Report {
		return lab.Report{
			Setup: lab.Setup{Ranks: 8, Nodes: 8},
			Injected: []lab.Injected{
				{Kind: "link", Links: []string{"n1-n2"}, FirstIteration: 40, LastIteration: 149},
				{Kind: "gpu", Devices: []string{"n6.g0"}, FirstIteration: 95, LastIteration: 149},
			},
			Incidents: []lab.IncidentReport{
				{
					DetectedIteration: 43,
					RelievedIteration: &relieved,
					Verdict: lab.VerdictReport{
						Cause: "network_congestion",
						Links: []string{"n1-n2"},
						Ranks: []int32{0, 1},
					},
				},
				{
					DetectedIteration: 101,
					RelievedIteration: &relieved,
					Verdict: lab.VerdictReport{
						Cause:   "gpu_degradation",
						Devices: []string{"n6.g0"},
						Ranks:   []int32{6},
					},
				},
			},
		}
	}
	if bad := judgeTruth(good()); bad != nil {
		t.Errorf("a right report: %v", bad)
	}
	for want, spoil := range map[string]func(*lab.Report){
		"1 incidents, want 2": func(r *lab.Report) { r.Incidents = r.Incidents[:1] },
		"no incident says gpu_degradation [n6.g0]": func(r *lab.Report) {
			r.Incidents[1].Verdict.Devices = []string{"n5.g0"}
		},
		"no incident says network_congestion": func(r *lab.Report) {
			r.Incidents[0].Verdict.Links = []string{"n1-n2", "n2-n3"}
		},
		"known at 60": func(r *lab.Report) {
			r.Incidents[0].DetectedIteration = 60
		},
		"relieved never": func(r *lab.Report) {
			r.Incidents[1].RelievedIteration = nil
		},
		"ranks [5], want [6]": func(r *lab.Report) {
			r.Incidents[1].Verdict.Ranks = []int32{5}
		},
		"loss 2, reference 0": func(r *lab.Report) { r.FinalLoss = 2 },
	} {
		r := good()
		spoil(&r)
		if got := strings.Join(judgeTruth(r), "; "); !strings.Contains(got, want) {
			t.Errorf("want %q, the judge says %q", want, got)
		}
	}
	rank := 2
	stalled := func(reason string, ranks ...int32) lab.Report {
		return lab.Report{
			Injected: []lab.Injected{{
				Kind:           "data",
				Rank:           &rank,
				FirstIteration: 40,
				LastIteration:  149,
			}},
			Incidents: []lab.IncidentReport{{
				DetectedIteration: 43,
				RelievedIteration: &relieved,
				Verdict: lab.VerdictReport{
					Cause:  "not_hardware",
					Reason: reason,
					Ranks:  ranks,
				},
			}},
		}
	}
	if bad := judgeReason(falcon.ReasonData)(stalled("data_stall", 2)); bad != nil {
		t.Errorf("a right reason: %v", bad)
	}
	for _, r := range []lab.Report{
		stalled("data_stall", 3),
		stalled("", 2),
		stalled("garbage_collection", 2),
		stalled("data_stall"),
	} {
		if bad := judgeReason(falcon.ReasonData)(r); bad == nil {
			t.Errorf("passes: %+v", r.Incidents[0].Verdict)
		}
	}
	if bad := judgeLinks(good()); len(bad) != 1 ||
		!strings.Contains(bad[0], "no finished test shows n1-n2 slow") {
		t.Errorf("without a validation: %v", bad)
	}
}
