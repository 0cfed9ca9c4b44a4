package phrase

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// What a state is in a sentence, one table for each thing that has states: now
// is for a screen, which shows the newest only; logged is for a line in a
// stream, where each change is one. Words in braces are filled in.
type sentences struct{ now, logged string }

// stage is an action's state, as far as its sentence depends on it.
type stage int

const (
	otherStage stage = iota
	proposed
	halfApproved // one of two has approved
	withdrawable // approved; a veto withdraws it
	ordering
	dispatched
	applied
	kept
	keptUnmeasured
	reverting
	reverted
	retained
	vetoed
	withdrawn
)

var actionSentences = map[stage]sentences{
	proposed: {
		"{action} proposed{why}",
		"{action} proposed: {plan}predicted {predicted}; waits for a decision",
	},
	halfApproved: {
		"{action} approved by {who}; waits for a second approver",
		"{action} approved by {who}, waits for a second approver",
	},
	withdrawable: {
		"{action} approved by {who}; a veto withdraws it until it acts",
		"{action} approved by {who}, acts at {deadline} unless it is withdrawn",
	},
	ordering: {
		"{action} approved{by}; being ordered",
		"{action} approved by {who}, waits to be ordered",
	},
	dispatched: {"{action} approved by {who}; {underway}", "{action} dispatched, decided by {who}"},
	applied: {
		"{action} in force since iteration {applied}; the gain is being measured",
		"{action} in force from iteration {applied}, decided by {who}",
	},
	kept:           {"{action} kept: {measured}", "{action} kept: {measured}"},
	keptUnmeasured: {"{action} kept", "{action} kept"},
	reverting:      {"{action} is being reverted{why}", "{action} reverting{why}"},
	reverted: {
		"{action} reverted at iteration {reverted}{why}",
		"{action} reverted from iteration {reverted}{why}",
	},
	retained: {
		"{action} ended, the ranks stay at their places{why}",
		"{action} ended, the ranks stay at their places{why}",
	},
	vetoed: {"{action} vetoed{by}{why}", "{action} vetoed{by}{why}"},
	withdrawn: {
		"{action} approved by {who}, withdrawn{by}{why}",
		"{action}, approved by {who}, withdrawn{by}{why}",
	},
	otherStage: {"{action} {state}{why}", "{action} {state}{why}"},
}

// takenSentences are how a rung that has been taken is in force.
var takenSentences = map[stage]string{
	applied:        "In force since iteration {applied}{approved}; its gain is being measured",
	kept:           "In force since iteration {applied}{approved}, and kept: {measured}",
	keptUnmeasured: "In force since iteration {applied}{approved}, and kept",
}

func actionStage(a *falconv1.Action) stage {
	switch falcon.ActionState(a.GetState()) {
	case falcon.ActionProposed:
		if Waits(a) {
			return halfApproved
		}
		return proposed
	case falcon.ActionApproved:
		if a.DeadlineUnixNs != 0 {
			return withdrawable
		}
		return ordering
	case falcon.ActionDispatched:
		return dispatched
	case falcon.ActionApplied:
		return applied
	case falcon.ActionKept:
		if a.MeasuredMs <= 0 {
			return keptUnmeasured
		}
		return kept
	case falcon.ActionReverting:
		return reverting
	case falcon.ActionReverted:
		return reverted
	case falcon.ActionRetained:
		return retained
	case falcon.ActionVetoed:
		if Approvers(a) != "" {
			return withdrawn
		}
		return vetoed
	case falcon.ActionFailed, falcon.ActionExpired:
	}
	return otherStage
}

// Action is the state of an action, in one line.
func Action(a *falconv1.Action) string {
	return fillAction(actionSentences[actionStage(a)].now, a)
}

// ActionLogged is what has become of an action, for a stream.
func ActionLogged(a *falconv1.Action) string {
	return fillAction(actionSentences[actionStage(a)].logged, a)
}

// Taken is the state of a rung that has been taken.
func Taken(a *falconv1.Action) string {
	if text, ok := takenSentences[actionStage(a)]; ok {
		return fillAction(text, a)
	}
	return Action(a)
}

// Measured is what came of an action beside what was predicted.
func Measured(a *falconv1.Action) string {
	return fmt.Sprintf("%s → %s measured (%s), predicted %s",
		Ms(a.BeforeMs), Ms(a.MeasuredMs), Change(a.BeforeMs, a.MeasuredMs), Ms(a.PredictedMs))
}

func fillAction(text string, a *falconv1.Action) string {
	who := Approvers(a)
	plan := Plan(a.Previous, a.MicroBatches, 60)
	if plan != "" {
		plan = "micro-batches " + plan + ", "
	}
	return strings.NewReplacer(
		"{action}",
		a.Rung+" ("+Does(a.Rung, a.Variant)+")",
		"{state}",
		a.State,
		"{who}",
		who,
		"{why}",
		Because(a),
		"{by}",
		Prefixed(" by ", a.DecidedBy),
		"{approved}",
		Prefixed(", approved by ", who),
		"{plan}",
		plan,
		"{underway}",
		underWay(a),
		"{predicted}",
		Predicted(a),
		"{measured}",
		Measured(a),
		"{deadline}",
		time.Unix(0, a.DeadlineUnixNs).UTC().Format("15:04:05Z"),
		"{applied}",
		Iteration(a.AppliedIteration),
		"{reverted}",
		Iteration(a.RevertedIteration),
	).Replace(text)
}

// Predicted is the change of the iteration time that an action promises.
func Predicted(a *falconv1.Action) string {
	return fmt.Sprintf("%s → %s (%s)",
		Ms(a.BeforeMs), Ms(a.PredictedMs), Change(a.BeforeMs, a.PredictedMs))
}

var incidentSentences = map[falcon.IncidentState]sentences{
	falcon.IncidentVerified: {
		"slowdown verified; a profile looks for the culprit",
		"slow since iteration {onset}, verified at {detected}: {change}",
	},
	falcon.IncidentLocated: {"{verdict}", "{verdict}{confidence}"},
	falcon.IncidentRelieved: {
		"the fault has cleared",
		"the fault has cleared, healthy again from iteration {relieved}",
	},
	falcon.IncidentClosed: {"closed; nothing was changed", "closed"},
}

// Incident is the state of an incident on which nothing has been done.
func Incident(i *falconv1.Incident) string {
	return fillIncident(incidentSentence(i).now, i) + Prefixed(", ", Again(i))
}

// departed is an incident that ended as what it names left the job.
var departed = sentences{
	"{parts} left the job; the fault may last there",
	"{parts} left the job, healthy again from iteration {relieved}; the fault may last there",
}

func incidentSentence(i *falconv1.Incident) sentences {
	if i.GetDeparted() && falcon.IncidentState(i.GetState()) == falcon.IncidentRelieved {
		return departed
	}
	return incidentSentences[falcon.IncidentState(i.GetState())]
}

// IncidentLogged is what has become of an incident, for a stream.
func IncidentLogged(i *falconv1.Incident) string {
	return fillIncident(incidentSentence(i).logged, i) + Prefixed(", ", Again(i))
}

func fillIncident(text string, i *falconv1.Incident) string {
	if text == "" {
		return i.GetState()
	}
	return strings.NewReplacer(
		"{onset}",
		Iteration(i.OnsetIteration),
		"{detected}",
		Iteration(i.DetectedIteration),
		"{relieved}",
		Iteration(i.RelievedIteration),
		"{verdict}",
		Verdict(i.Verdict),
		"{parts}",
		parts(i.GetVerdict()),
		"{confidence}",
		Confidence(i.GetVerdict()),
		"{change}",
		Slowdown(i),
	).Replace(text)
}

// parts names the devices and links of a verdict.
func parts(v *falconv1.Verdict) string {
	return Few(append(slices.Clone(v.GetDevices()), v.GetLinks()...), 3)
}

// Slowdown is the change of the iteration time that an incident is about: from the level just
// before it, beside which the healthy one stands where that is another.
func Slowdown(i *falconv1.Incident) string {
	before := Before(i)
	t := fmt.Sprintf("%s → %s (%s)",
		Ms(before), Ms(i.GetSlowMs()), Change(before, i.GetSlowMs()))
	if before != i.GetHealthyMs() {
		t += ", healthy " + Ms(i.GetHealthyMs())
	}
	return t
}

// Before is the iteration time that an incident began from; see falcon.Incident.
func Before(i *falconv1.Incident) float64 {
	return falcon.Incident{HealthyMs: i.GetHealthyMs(), BeforeMs: i.GetBeforeMs()}.Before()
}
