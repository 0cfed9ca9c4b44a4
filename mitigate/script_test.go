package mitigate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/sentencetest"
	"github.com/failslow/falcon/mitigate/cost"
)

// script plays commands into a planner, and keeps what an engine's journal
// would: "restart" goes on with a new planner that knows no more than that.
type script struct {
	t       *testing.T
	p       *Planner
	now     time.Time
	job     Job
	policy  SetPolicy
	orders  uint64
	actions []falcon.Action
	impacts map[string]Impact
	last    map[string][]Input // by incident: newest word and speeds
	open    []string           // incidents in order
	given   func(Input) Input  // what the planner is given of an input
	did     []string           // what was persisted, ordered and asked for, without sentences
}

func newScript(t *testing.T) *script {
	return &script{
		t: t,
		p: New(Config{OverheadsMs: map[falcon.Rung]float64{
			falcon.RungS3: 400,
			falcon.RungS4: 3000,
		}}),
		now:     time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC),
		policy:  SetPolicy{falcon.Policy{Mode: falcon.ModeApprove}},
		impacts: map[string]Impact{},
		last:    map[string][]Input{},
		given:   func(in Input) Input { return in },
	}
}

// scriptNames are the fields that name a thing, a person, a kind or a mode.
var scriptNames = []string{
	"ID", "Incident", "Action", "PlanHash", "By", "From", "DecidedBy", "DecidedFrom",
	"Approval", "Hours", "Tests",
}

// play steps the commands of one paragraph and drains the planner.
func (sc *script) play(cmds string) []string {
	var out []string
	for _, line := range strings.Split(cmds, "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, rest, _ := strings.Cut(line, " ")
		a := args{sc.t, name, pairs(rest)}
		switch name {
		case "ladder":
			out = append(out, showLadder(sc.p, a.v["id"])...)
		case "tick":
			sc.now = sc.now.Add(time.Duration(a.num("s") * float64(time.Second)))
			sc.p.Tick(sc.now)
			out = append(out, sc.drain()...)
		case "restart":
			out = append(out, sc.restart()...)
		default:
			out = append(out, sc.step(a)...)
		}
	}
	return out
}

func (sc *script) step(a args) []string {
	var out []string
	for _, in := range sc.inputs(a) {
		switch in := in.(type) {
		case Decision:
			if err := sc.p.Check(in); err != nil {
				out = append(out, "refused: "+err.Error())
			}
		case Job:
			sc.job = in
		case SetPolicy:
			sc.policy = in
		case Incident:
			if !slices.Contains(sc.open, in.Incident.ID) {
				sc.open = append(sc.open, in.Incident.ID)
			}
			sc.last[in.Incident.ID] = []Input{in}
		case Speeds:
			sc.last[in.Incident] = append(sc.last[in.Incident][:1], in)
		}
		sc.p.Step(sc.now, sc.given(in))
		out = append(out, sc.drain()...)
	}
	return out
}

// restart is the engine's way of bringing a planner back.
func (sc *script) restart() []string {
	overheads := sc.p.overheads.measuredMeans()
	sc.job.MicroBatches = sc.p.job.desc.MicroBatches
	sc.job.Placement = sc.p.job.desc.Placement
	sc.p = New(*sc.p.cfg)
	in := []Input{sc.job, sc.policy}
	back := Restored{
		Actions:     slices.Clone(sc.actions),
		NextOrder:   sc.orders + 1,
		OverheadsMs: overheads,
	}
	for _, id := range sc.open {
		if v, ok := sc.impacts[id]; ok {
			back.Impacts = append(back.Impacts, v)
		}
	}
	in = append(in, back)
	for _, id := range sc.open {
		in = append(in, sc.last[id]...)
	}
	var out []string
	for _, v := range in {
		sc.p.Step(sc.now, sc.given(v))
		out = append(out, sc.drain()...)
	}
	return out
}

func (sc *script) drain() []string {
	var out []string
	r := sc.p.Ready()
	if blank := sentencetest.Blank(r, scriptNames...); !r.Empty() {
		blank.Notes = nil
		did, err := json.Marshal(blank)
		if err != nil {
			sc.t.Fatal(err)
		}
		sc.did = append(sc.did, string(did))
	}
	for _, n := range r.Notes {
		out = append(out, fmt.Sprintf("note %s: %s", n.Kind, n.Text))
	}
	for _, a := range r.Actions {
		out = append(out,
			fmt.Sprintf(
				"action %s %s plan=%s m=%v before=%.1f predicted=%.1f measured=%.1f overhead=%.1f by=%s",
				a.ID, a.State, a.PlanHash, a.MicroBatches, a.BeforeMs, a.PredictedMs, a.MeasuredMs,
				a.OverheadMs, a.DecidedBy,
			)+more(a),
		)
		i := slices.IndexFunc(sc.actions, func(o falcon.Action) bool {
			return o.ID == a.ID
		})
		if i >= 0 {
			sc.actions[i] = a
		} else {
			sc.actions = append(sc.actions, a)
		}
	}
	for _, o := range r.Orders {
		sc.orders = o.ID
		switch o.Kind {
		case falcon.OrderPlacement:
			out = append(out, fmt.Sprintf("order %d epoch %d %s %v",
				o.ID, o.Epoch, o.Kind, o.Blocks))
		case falcon.OrderCheckpoint:
			out = append(out, fmt.Sprintf("order %d epoch %d %s leave=%v",
				o.ID, o.Epoch, o.Kind, o.Leave))
		default:
			out = append(out, fmt.Sprintf("order %d epoch %d %s %v",
				o.ID, o.Epoch, o.Kind, o.MicroBatches))
		}
	}
	if l := r.Launch; l != nil {
		out = append(out, fmt.Sprintf("launch generation %d on %v resume=%v",
			l.Generation, l.Placement, l.Resume))
	}
	if r.Look != "" {
		out = append(out, "look "+r.Look)
	}
	for _, f := range r.Fences {
		out = append(out, fmt.Sprintf("fence %s: %s for %s by %s",
			f.Action, f.Node, f.Spare, f.By))
	}
	for _, a := range r.Acted {
		text := fmt.Sprintf("acted %s %s from %d reverted=%v", a.Incident, a.Rung, a.Iteration, a.Reverted)
		if a.Unchanged {
			text += " unchanged"
		}
		out = append(out, text)
	}
	for _, v := range r.Impacts {
		sc.impacts[v.Incident] = v
	}
	sc.p.Advance()
	return out
}

func more(a falcon.Action) string {
	out := ""
	if a.Phase != "" {
		out += " phase=" + string(a.Phase)
	}
	if a.DeadlineUnixNs != 0 {
		out += " until=" + time.Unix(0, a.DeadlineUnixNs).UTC().Format(time.TimeOnly)
	}
	for _, v := range a.Approvals {
		out += " approval=" + v.By
	}
	if a.ErrorShare != 0 {
		out += fmt.Sprintf(" error=%.3f", a.ErrorShare)
	}
	return out
}

func showLadder(p *Planner, id string) []string {
	l, ok := p.Ladder(id)
	if !ok {
		return []string{"no ladder"}
	}
	out := []string{fmt.Sprintf("impact %.1f ms, lost %.6f GPU-h, proposal %v",
		l.ImpactMs, l.LostGPUh, l.Proposal != nil)}
	for _, r := range l.Rungs {
		name := string(r.Rung)
		if r.Variant != "" {
			name += "/" + string(r.Variant)
		}
		if r.Next {
			name += " next"
		}
		out = append(out, fmt.Sprintf(
			"%s applicable=%v current=%v overhead=%.1f gain=%.1f break_even=%d predicted=%.1f clock=%.1f due_in=%.0f %s: %s",
			name, r.Applicable, r.Current, r.OverheadMs, r.GainMs, r.BreakEven, r.PredictMs,
			r.ClockMs, r.DueInMs, r.Approval, r.Reason,
		))
	}
	return out
}

// args are a command's words.
type args struct {
	t    *testing.T
	name string
	v    map[string]string
}

func (a args) num(k string) float64 {
	v, err := strconv.ParseFloat(a.v[k], 64)
	if err != nil {
		a.t.Fatalf("%s: %s=%q is no number", a.name, k, a.v[k])
	}
	return v
}

func (a args) maybe(k string) float64 {
	if a.v[k] == "" {
		return 0
	}
	return a.num(k)
}

func (a args) words(k string) []string {
	if a.v[k] == "" {
		return nil
	}
	return strings.Split(a.v[k], ",")
}

func (a args) list(k string) []float64 {
	var out []float64
	for _, f := range a.words(k) {
		out = append(out, args{a.t, a.name, map[string]string{k: f}}.num(k))
	}
	return out
}

func (sc *script) inputs(a args) []Input {
	switch a.name {
	case "job":
		return []Input{a.job()}
	case "policy":
		return []Input{SetPolicy{a.policy()}}
	case "iterations":
		var out []Input
		for i := int64(a.num("from")); i <= int64(a.num("to")); i++ {
			it := Iteration{Index: i, Ms: a.num("ms")}
			for _, n := range a.words("unheard") {
				it.Unheard = append(it.Unheard, falcon.Node(n))
			}
			out = append(out, it)
		}
		return out
	case "incident":
		return []Input{Incident{a.incident()}}
	case "speeds":
		return []Input{Speeds{Incident: a.v["id"], SelfMs: a.list("ms")}}
	case "profile":
		return []Input{Speeds{
			Incident: a.v["id"],
			Profile:  a.profile(sc.p.job.desc),
		}}
	case "measured": // seconds ago=: when the profile was asked for
		return []Input{Measured{Begun: sc.now.Add(-time.Duration(a.maybe("ago") * float64(time.Second)))}}
	case "decide":
		hash := a.v["hash"]
		if _, now := sc.p.incidents.findAction(func(x *falcon.Action) bool {
			return x.ID == a.v["action"]
		}); now != nil && hash == "now" {
			hash = now.PlanHash
		}
		return []Input{Decision{
			Action:   a.v["action"],
			PlanHash: hash,
			Approve:  a.v["approve"] == "true",
			By:       a.v["by"],
			Reason:   a.v["reason"],
			Incident: a.v["incident"],
			Rung:     falcon.Rung(a.v["rung"]),
			Variant:  falcon.Variant(a.v["variant"]),
			Undo:     a.v["undo"] == "true",
		}}
	case "commit":
		c := Committed{
			Order:     uint64(a.num("order")),
			Iteration: int64(a.num("at")),
			Status:    int32(a.num("status")),
			Resume:    int64(a.maybe("resume")),
		}
		if steps := a.list("steps"); len(steps) == 4 {
			c.Swap = &falcon.Swap{
				StepMs:  [4]float64(steps),
				MovedMB: a.maybe("moved"),
			}
		}
		return []Input{c}
	case "undeliverable":
		return []Input{Undeliverable{
			Order:  uint64(a.num("order")),
			Reason: a.v["reason"],
		}}
	case "left":
		return []Input{Left{Order: uint64(a.num("order")), Reason: a.v["reason"]}}
	case "fenced":
		return []Input{a.fenced(sc.p.job.desc)}
	case "launched":
		return []Input{Launched{
			Generation: uint64(a.num("generation")),
			Failed:     a.v["failed"],
		}}
	}
	a.t.Fatalf("unknown command %q", a.name)
	return nil
}

// job: per=G puts G ranks on each of the nodes n0, n1, …; on= names the nodes.
func (a args) job() Job {
	l := falcon.Layout{
		TP: int(a.maybe("tp")),
		DP: int(a.maybe("dp")),
		PP: int(a.maybe("pp")),
	}
	if text := a.v["mesh"]; text != "" {
		mesh, err := falcon.ParseMesh(text)
		if err != nil {
			a.t.Fatal(err)
		}
		l = falcon.LayoutOf(mesh)
	}
	var m []int32
	for _, v := range a.list("m") {
		m = append(m, int32(v))
	}
	out := Job{
		Epoch:        uint64(a.num("epoch")),
		Layout:       l,
		Unknown:      a.v["unknown"],
		MicroBatches: m,
		GPUs:         l.World(),
		CanLaunch:    a.v["launch"] == "true",
	}
	out.Can = allCan
	if _, given := a.v["can"]; given { // these alone
		list := a.words("can")
		has := func(what string) bool { return slices.Contains(list, what) }
		out.Can = falcon.Can{
			Declared:   !has("unknown"),
			Park:       has("park"),
			Split:      has("split"),
			Place:      has("place"),
			Checkpoint: has("checkpoint"),
		}
	}
	if per := int(a.maybe("per")); per > 0 {
		nodes := a.words("on")
		for r := range l.World() {
			node := fmt.Sprintf("n%d", r/per)
			if len(nodes) > 0 {
				node = nodes[r/per]
			}
			out.Placement = append(out.Placement, falcon.NewDevice(falcon.Node(node), r%per))
		}
	}
	for _, n := range a.words("spares") {
		out.Spares = append(out.Spares, falcon.Node(n))
	}
	for _, n := range a.words("barred") {
		node, who, _ := strings.Cut(n, ":")
		out.Barred = append(out.Barred, node+" is barred by "+who+" until 14:00Z: fan")
	}
	out.Parks = a.v["parks"] == "true"
	out.RecoveryMs = a.maybe("recovery")
	out.Recovered = a.v["recovered"] == "true"
	for _, n := range a.words("only") {
		out.OnlyCopies = append(out.OnlyCopies, falcon.Node(n))
	}
	return out
}

func (a args) fenced(j Job) Fenced {
	return Fenced{
		Action:     a.v["action"],
		Recovery:   a.v["recovery"],
		Failed:     a.v["failed"],
		Resume:     int64(a.maybe("resume")),
		Generation: uint64(a.maybe("generation")),
		Placement:  j.Placement,
	}
}

func (a args) policy() falcon.Policy {
	out := falcon.Policy{
		Mode:      falcon.Mode(a.v["mode"]),
		Cap:       falcon.Rung(a.v["cap"]),
		Frozen:    a.v["frozen"] == "true",
		Owner:     a.v["owner"],
		Hours:     a.v["hours"],
		AllowDrop: a.v["drop"] == "true",
		Rungs:     map[falcon.Rung]falcon.RungPolicy{},
	}
	for _, v := range a.words("variants") {
		out.Variants = append(out.Variants, falcon.Variant(v))
	}
	for _, r := range []falcon.Rung{falcon.RungS2, falcon.RungS3, falcon.RungS4} {
		v := falcon.RungPolicy{
			Approval:  a.v[string(r)],
			Countdown: a.maybe("countdown." + string(r)),
			PerHour:   int(a.maybe("per_hour." + string(r))),
			Undo:      a.maybe("undo." + string(r)),
			Second:    slices.Contains(a.words("second"), string(r)),
		}
		if v != (falcon.RungPolicy{}) {
			out.Rungs[r] = v
		}
	}
	if err := ValidatePolicy(out); err != nil {
		a.t.Fatal(err)
	}
	return out
}

func (a args) incident() falcon.Incident {
	out := falcon.Incident{
		ID:                a.v["id"],
		State:             falcon.IncidentState(a.v["state"]),
		OnsetIteration:    int64(a.num("onset")),
		RelievedIteration: int64(a.num("relieved")),
		HealthyMs:         a.num("healthy"),
		SlowMs:            a.num("slow"),
		Verdict:           falcon.Verdict{Cause: falcon.Cause(a.v["cause"])},
	}
	for _, d := range a.words("devices") {
		out.Verdict.Devices = append(out.Verdict.Devices, falcon.Device(d))
	}
	for _, l := range a.words("links") {
		out.Verdict.Links = append(out.Verdict.Links, a.link(l))
	}
	for _, k := range a.words("evidence") {
		kind, against := strings.CutPrefix(k, "!")
		out.Verdict.Evidence = append(out.Verdict.Evidence, falcon.Evidence{
			Kind:    falcon.EvidenceKind(kind),
			Against: against,
		})
	}
	return out
}

func (a args) link(s string) falcon.Link {
	l, err := falcon.ParseLink(s)
	if err != nil {
		a.t.Fatal(err)
	}
	return l
}

// profile is what a window shows of a job: self times by device, what rings and
// pairs move (dp= and pp= in MB, mbs= in MB/s), and slow links (links=n0-n1:8).
func (a args) profile(j Job) falcon.JobProfile {
	var out falcon.JobProfile
	slow := map[falcon.Device]float64{}
	for _, w := range a.words("slow") {
		d, f, _ := strings.Cut(w, ":")
		slow[falcon.Device(d)] = args{a.t, a.name, map[string]string{"slow": f}}.num("slow")
	}
	for _, d := range j.Placement {
		out.SelfMs = append(out.SelfMs, a.num("self")*max(1, slow[d]))
	}
	links := cost.Links{InterMBs: a.num("mbs"), Ratio: map[falcon.Link]float64{}}
	for _, w := range a.words("links") {
		l, f, _ := strings.Cut(w, ":")
		links.Ratio[a.link(l)] = args{a.t, a.name, map[string]string{"links": f}}.num("links")
		out.Links = append(out.Links, falcon.LinkSpeed{
			Link:  a.link(l),
			Ratio: links.Ratio[a.link(l)],
		})
	}
	node := func(r falcon.Rank) falcon.Node { return j.Placement[r].Node() }
	for _, g := range j.Layout.Groups(falcon.DimDP) {
		var nodes []falcon.Node
		for _, r := range g.Ranks {
			nodes = append(nodes, node(r))
		}
		out.Groups = append(out.Groups, falcon.GroupTransfer{
			Dimension:  falcon.DimDP,
			Ranks:      g.Ranks,
			Op:         falcon.OpAllReduce,
			Calls:      1,
			Bytes:      int64(a.num("dp") * 1e6),
			TransferMs: links.RingMs(nodes, a.num("dp")),
		})
	}
	for _, g := range j.Layout.Groups(falcon.DimPP) {
		for i := 1; i < len(g.Ranks); i++ {
			x := g.Ranks[i-1]
			y := g.Ranks[i]
			calls := 2 * int(j.MicroBatches[j.Layout.Replica(x)])
			out.Groups = append(out.Groups, falcon.GroupTransfer{
				Dimension:  falcon.DimPP,
				Ranks:      []falcon.Rank{x, y},
				Op:         falcon.OpSend,
				Calls:      calls,
				Bytes:      int64(a.num("pp") * 1e6 * float64(calls)),
				TransferMs: float64(calls) * links.TransferMs(node(x), node(y), a.num("pp")),
			})
		}
	}
	return out
}
