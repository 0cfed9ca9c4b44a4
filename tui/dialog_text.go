package tui

import (
	"cmp"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/page/ladder"
	"github.com/failslow/falcon/tui/page/recovery"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// dialogLines are what a dialog says, in w columns: what has changed since it
// opened and what happens without an answer, then what it asks.
func dialogLines(q decision.Question, live *page.State, w int) []page.Line {
	return slices.Concat(
		changedLines(q, live, w),
		countdownLines(q, live, w),
		approvalLines(q, live, w),
		pastLines(q, live, w),
		askedLines(q, live, w),
	)
}

// askedLines say what the dialog asks, as it was when it opened.
func askedLines(q decision.Question, live *page.State, w int) []page.Line {
	switch q := q.(type) {
	case *decision.Approve:
		return approveLines(q, w)
	case *decision.Veto:
		return append(planLines(&q.Proposal, w),
			wrapLines(
				themes.Text,
				"Nothing is changed in the job. The plan is not proposed again for this incident unless it changes.",
				w,
			)...,
		)
	case *decision.Take:
		return takeLines(q, w)
	case *decision.TakeBack:
		return undoQuestionLines(q, live, w)
	case *decision.SetMode:
		return modeLines(q, w)
	case *decision.Freeze:
		return wrapLines(
			themes.Text,
			"Nothing new is dispatched from now on, for everybody: countdowns stop, and what is approved waits. What is under way goes on.",
			w,
		)
	case *decision.EndTest:
		return wrapLines(
			themes.Text,
			"The ranks are let go and the job trains on at once. What was not measured yet stays unknown.",
			w,
		)
	case *decision.Unfreeze:
		return wrapLines(
			themes.Text,
			"The engine may propose and dispatch actions again, in mode "+
				phrase.Mode(unfrozenPolicy(q.Policy))+".",
			w,
		)
	case *decision.Recovery:
		return recoveryLines(q, live, w)
	case *decision.Demand:
		return demandLines(q, live, w)
	case *decision.Test:
		return testLines(q.Test, live.Roster.World(), w)
	case *decision.Leave:
		return wrapLines(themes.Text, q.Note, w)
	}
	return nil
}

func wrapLines(role themes.Role, text string, w int) []page.Line {
	var out []page.Line
	for _, l := range widget.Wrap(text, w) {
		out = append(out, page.Line{Text: l, Role: role})
	}
	return out
}

// changedLines describe how the plan differs from the one that the dialog showed.
func changedLines(q decision.Question, live *page.State, w int) []page.Line {
	var list []string
	switch q := q.(type) {
	case *decision.Approve:
		list = planChanges(q.Action, q.Now(live))
	case *decision.Veto:
		list = planChanges(q.Action, q.Now(live))
	case *decision.Take:
		if now := q.Now(live); now.GetPlanHash() != "" && now.PlanHash != q.Rung.PlanHash {
			list = ladder.Changes(ladder.PlanOfRung(q.Rung), ladder.PlanOfRung(now))
		}
	}
	var out []page.Line
	for i, text := range list {
		if i == 0 {
			out = wrapLines(themes.Urgent, " CHANGED since this dialog opened ", w)
		}
		out = append(out, wrapLines(themes.Warn, "  "+text, w)...)
	}
	return out
}

func planChanges(asked, now *falconv1.Action) []string {
	if now.GetId() != asked.Id || now.PlanHash == asked.PlanHash {
		return nil
	}
	return ladder.Changes(ladder.PlanOf(asked), ladder.PlanOf(now))
}

// countdownLines say when policy approves what the dialog is about by itself.
func countdownLines(q decision.Question, live *page.State, w int) []page.Line {
	asked := questionAction(q)
	now := live.ProposalOf(q.Incident())
	if asked == nil || now.GetId() != asked.Id {
		return nil
	}
	left, ok := page.Countdown(live, now)
	if !ok {
		return nil
	}
	return wrapLines(
		themes.Auto,
		" AUTOMATIC: policy approves this in "+
			phrase.Seconds(left)+
			"; a veto or "+
			live.Key(key.Global, key.Freeze)+
			" stops it ",
		w,
	)
}

// questionAction is the action that a question is about, or nil.
func questionAction(q decision.Question) *falconv1.Action {
	switch q := q.(type) {
	case *decision.Approve:
		return q.Action
	case *decision.Veto:
		return q.Action
	}
	return nil
}

// approvalLines say who has approved, and what an approval here would begin.
func approvalLines(q decision.Question, live *page.State, w int) []page.Line {
	switch q := q.(type) {
	case *decision.Veto:
		now := q.Now(live)
		if text := page.Standing(live, now); text != "" && now.GetId() == q.Action.Id {
			return wrapLines(
				themes.Auto,
				" "+now.Rung+" is "+text+decision.FirstReason(now)+" ",
				w,
			)
		}
	case *decision.Approve:
		now := q.Now(live)
		if now.GetId() != q.Action.Id {
			return nil
		}
		if phrase.Waits(now) {
			text := " " +
				phrase.Approvers(now) +
				" has approved this" +
				decision.FirstReason(now) +
				"; your approval is the second "
			return append(wrapLines(themes.Auto, text, w), undoLines(live, now.Rung, w)...)
		}
		return append(secondLines(live, now.Rung, w), undoLines(live, now.Rung, w)...)
	case *decision.Take:
		return append(secondLines(live, q.Rung.Rung, w), undoLines(live, q.Rung.Rung, w)...)
	}
	return nil
}

func secondLines(live *page.State, rung string, w int) []page.Line {
	if !decision.WantsTwo(live, rung) {
		return nil
	}
	return wrapLines(
		themes.Warn,
		"Two people have to approve "+rung+": nothing happens until another person has approved it.",
		w,
	)
}

func undoLines(live *page.State, rung string, w int) []page.Line {
	undo := decision.Undo(live, rung)
	if undo <= 0 {
		return nil
	}
	return wrapLines(
		themes.Text,
		fmt.Sprintf("It goes out %s after the approval; until then %s withdraws it.",
			phrase.Seconds(undo), live.Key(key.Global, key.Veto)),
		w,
	)
}

// planLines describe what would be done to the job, and the prediction.
func planLines(p *decision.Proposal, w int) []page.Line {
	a := p.Action
	out := wrapLines(
		themes.Title,
		fmt.Sprintf("%s for %s, plan %s: %s",
			a.Rung, a.Incident, a.PlanHash, phrase.Does(a.Rung, a.Variant)),
		w,
	)
	if p.What != "" {
		out = append(out, wrapLines(themes.Text, "Plan: "+p.What, w)...)
	}
	if plan := phrase.Plan(a.Previous, a.MicroBatches, w-34); plan != "" {
		out = append(out, wrapLines(themes.Text, "Plan: micro-batches a replica "+plan, w)...)
	}
	for _, l := range ladder.Preview(a.Preview) {
		out = append(out, wrapLines(themes.Text, l, w)...)
	}
	gain := fmt.Sprintf("Predicted: %s → %s an iteration (%s)",
		phrase.Ms(a.BeforeMs), phrase.Ms(a.PredictedMs), phrase.Change(a.BeforeMs, a.PredictedMs))
	if a.OverheadMs > 0 { // else the reason below says what is known of it
		gain += ", switch costs " + phrase.Ms(a.OverheadMs)
	}
	return append(out, wrapLines(themes.Text, gain, w)...)
}

// impacts are what carrying a rung out does to the job meanwhile.
var impacts = map[falcon.Rung]string{
	falcon.RungS3: "Impact: the job pauses at an iteration boundary while the ranks named exchange their state; no process ends.",
	falcon.RungS4: "Impact: all processes of the job end after a checkpoint and are started again; nothing trains until they are up.",
}

// fenceImpact is the impact of an S4 that a recovery carries out.
const fenceImpact = "Impact: the node is fenced and its processes end; the spare's take their ranks, with the state of replicas. All other processes stay; nothing trains for the seconds of the recovery, and at most one iteration is run again."

func impact(rung, variant string) string {
	if rung == string(falcon.RungS4) && variant == string(falcon.VariantFence) {
		return fenceImpact
	}
	return impacts[falcon.Rung(rung)]
}

func approveLines(q *decision.Approve, w int) []page.Line {
	out := planLines(&q.Proposal, w)
	if text := impact(q.Action.Rung, q.Action.Variant); text != "" {
		out = append(out, wrapLines(themes.Warn, text, w)...)
	}
	if q.Action.Why != "" {
		out = append(out, wrapLines(themes.Text, "When proposed: "+q.Action.Why, w)...)
	}
	out = append(out, wrapLines(
		themes.Title,
		"Evidence: "+phrase.Verdict(q.Verdict)+phrase.Confidence(q.Verdict),
		w,
	)...)
	out = append(out, ladder.EvidenceLines(q.Verdict, w)...)
	wrong := cmp.Or(q.IfWrong,
		"the gain is measured; without one the plan is reverted by itself, and when the fault clears, too")
	return append(out, wrapLines(themes.Text, "If wrong: "+wrong, w)...)
}

func takeLines(q *decision.Take, w int) []page.Line {
	g := q.Rung
	out := wrapLines(
		themes.Title,
		phrase.RungName(g)+" for "+q.Incident()+", plan "+g.PlanHash+": "+phrase.Does(g.Rung, g.Variant),
		w,
	)
	out = append(out, wrapLines(themes.Text, ladder.Explain(g, w), w)...)
	if g.PredictedMs > 0 {
		out = append(out, wrapLines(
			themes.Text,
			"Predicted: "+
				phrase.Ms(g.PredictedMs)+
				" an iteration, "+
				phrase.Ms(g.GainMs)+
				" less than now; it costs "+
				phrase.Ms(g.OverheadMs),
			w,
		)...)
	}
	if decision.Restarts(g.Rung, g.Variant) {
		out = append(out, wrapLines(
			themes.Warn,
			"All processes of the job end after a checkpoint and are started again.",
			w,
		)...)
	} else if g.Variant == string(falcon.VariantFence) {
		out = append(out, wrapLines(themes.Warn, fenceImpact, w)...)
	}
	return append(out, wrapLines(themes.Title, "Evidence: "+phrase.Verdict(q.Verdict), w)...)
}

// modeTexts explain the options of the mode, in their order.
var modeTexts = [...]string{
	"only watch: nothing is proposed for execution",
	"every rung waits for a person",
	"S2 acts by itself, higher rungs wait for a person",
	"S2 and S3 act by themselves, a restart (S4) waits",
}

func modeLines(q *decision.SetMode, w int) []page.Line {
	var out []page.Line
	for i, o := range q.Options {
		sign := "  ○ "
		role := themes.Text
		if i == q.Chosen {
			sign = "▸ ● "
			role = themes.Selected
		}
		text := fmt.Sprintf("%s%-10s %s", sign, phrase.Mode(unfrozenPolicy(o)), modeTexts[i])
		if q.InForce(i) {
			text += " (now)"
		}
		out = append(out, page.Line{Text: widget.Cut(text, w), Role: role})
	}
	return append(out, recoveryModeLines(q.Options[q.Chosen], w)...)
}

// recoveryModeLines say who lets recoveries begin under a policy, which the mode alone does not.
func recoveryModeLines(p *falconv1.Policy, w int) []page.Line {
	p = proto.CloneOf(p)
	p.Frozen = false
	switch {
	case p.GetRecovery() == nil:
		return nil
	case p.GetMode() == string(falcon.ModeObserve) ||
		p.GetRecovery().GetApproval() == falcon.ApprovalPerson:
		return wrapLines(themes.Text, "Recoveries of lost processes wait for a person too.", w)
	}
	return wrapLines(themes.Warn, "Recoveries of lost processes begin WITHOUT a person all the same.", w)
}

// unfrozenPolicy is the policy that would hold without the freeze.
func unfrozenPolicy(p *falconv1.Policy) *falconv1.Policy {
	return &falconv1.Policy{Mode: p.Mode, Cap: p.Cap}
}

// consequences are what each decision on a recovery leads to.
var consequences = map[decision.Verb]string{
	decision.VerbApprove: "All healthy ranks leave their collectives and park; the lost ones are replaced on their devices or on a spare; state comes from replicas, or else from the checkpoint. Healthy processes go on unless the reason above says otherwise.",
	decision.VerbDeny:    "Nothing is done about the fault: the job stays stopped until an operator acts.",
	decision.VerbEnded:   "Look at these nodes first, or have their power cut: if a rank of the job still runs there, two jobs will train and write the same checkpoints. The recovery goes on at once, on other nodes.",
	decision.VerbAbort:   "The recovery ends here. The job stays stopped: all its processes, those of survivors too, are ordered to end.",
}

func recoveryLines(q *decision.Recovery, live *page.State, w int) []page.Line {
	now := live.Recovering()
	if now.GetId() != q.Recovery.Id {
		now = q.Recovery
	}
	out := wrapLines(
		themes.Title,
		q.Recovery.Id+": "+phrase.Faults(q.Recovery.Faults),
		w,
	)
	if q.Recovery.Reason != "" {
		out = append(out, wrapLines(themes.Warn, "It waits because "+q.Recovery.Reason, w)...)
	}
	for _, f := range q.Recovery.Faults {
		for _, e := range f.Evidence {
			out = append(out, wrapLines(themes.Text, "+ "+e, w)...)
		}
	}
	if q.Verb == decision.VerbApprove {
		out = append(out, moveLines(now, live, w)...)
	}
	out = append(out, wrapLines(themes.Text, consequences[q.Verb], w)...)
	sum := 0.0
	for _, ms := range now.GetPredictedMs() {
		sum += ms
	}
	if q.Verb == decision.VerbApprove && sum > 0 {
		out = append(out, wrapLines(
			themes.Text,
			"Predicted: "+phrase.Ms(sum)+" until the job trains again.",
			w,
		)...)
	}
	return out
}

func demandLines(q *decision.Demand, live *page.State, w int) []page.Line {
	switch q.Verb {
	case decision.VerbLift:
		return wrapLines(
			themes.Text,
			"What "+q.Node+
				" sends is taken again, and it may be used as a spare. Lift a fence only once the node is sound.",
			w,
		)
	case decision.VerbBar:
		return barLines(q, live, w)
	case decision.VerbUnbar:
		return wrapLines(themes.Text, q.Node+" may be used as a spare again, by S4 and by recoveries.", w)
	case decision.VerbRenew:
		device := live.Roster.View(q.Ranks[0]).GetDevice()
		return append(
			wrapLines(
				themes.Title,
				"The process of "+phrase.Ranks(q.Ranks, 1)+" on "+device+" ends and is replaced",
				w,
			),
			wrapLines(
				themes.Text,
				"All other ranks park meanwhile; its state comes from a replica. No further approval is asked for.",
				w,
			)...,
		)
	}
	out := wrapLines(themes.Title, q.Node+" holds "+phrase.Ranks(q.Ranks, 6), w)
	out = append(out, wrapLines(
		themes.Text,
		"Everything from the node is refused from now on; its processes end, and its ranks are replaced on a spare. All other ranks park meanwhile. No further approval is asked for.",
		w,
	)...)
	out = append(out, suspicionLines(live, q.Node, w)...)
	for _, x := range live.Feed.Recoveries.GetExposures() {
		if x.GetDomain() == q.Node {
			out = append(out, wrapLines(themes.Warn, recovery.Explain(live, x), w)...)
		}
	}
	return out
}

// suspicionLines say what open incidents have against a node, and warn where they
// have nothing: the node may be the wrong one.
func suspicionLines(live *page.State, node string, w int) []page.Line {
	for _, i := range live.Snap().GetIncidents() {
		if i.GetState() == string(falcon.IncidentLocated) &&
			names(i.GetVerdict(), falcon.Node(node)) {
			return wrapLines(
				themes.Text,
				i.GetId()+" names it: "+phrase.Verdict(i.GetVerdict()),
				w,
			)
		}
	}
	return wrapLines(themes.Warn, "No open incident names "+node+": it may be healthy.", w)
}

// names reports whether a verdict names a device of a node, or a link that ends there.
func names(v *falconv1.Verdict, node falcon.Node) bool {
	on := func(d string) bool { return falcon.Device(d).Node() == node }
	ends := func(s string) bool {
		l, err := falcon.ParseLink(s)
		return err == nil && (l.A == node || l.B == node)
	}
	return slices.ContainsFunc(v.GetDevices(), on) || slices.ContainsFunc(v.GetLinks(), ends)
}

// testLines say what is about to happen to the job.
func testLines(r *falconv1.ValidateRequest, world, w int) []page.Line {
	what := "links " + phrase.Few(r.Links, namesMost)
	if r.Gemm {
		what += ", and the GPUs at their ends"
	}
	if len(r.Links) == 0 {
		what = testedText(r) + " of " + testedRanks(r.Ranks, world)
	}
	out := wrapLines(themes.Title, "Test "+what, w)
	out = append(out, wrapLines(
		themes.Text,
		"The job runs on to an iteration boundary two or more iterations ahead and is held there while the tests run, usually well under a second; nothing trains meanwhile. Paused time is not counted as slow.",
		w,
	)...)
	return append(out, wrapLines(
		themes.Text,
		"If wrong: where no consistent boundary exists nothing is held and the reason is shown. X ends it at once; the ranks resume by themselves at their deadline, even without console and agents.",
		w,
	)...)
}

// namesMost is how many names a dialog lists before it only counts.
const namesMost = 8

func testedText(r *falconv1.ValidateRequest) string {
	switch {
	case r.Gemm && r.LinkTest:
		return "GPUs and the links"
	case r.Gemm:
		return "the GPUs"
	}
	return "the links"
}

func testedRanks(ranks []int32, world int) string {
	if len(ranks) == 0 {
		return fmt.Sprintf("all %s ranks", phrase.Count(int64(world)))
	}
	return phrase.Ranks(ranks, namesMost)
}
