package decision

import (
	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
)

// ofPolicy is what questions about the policy have in common. The engine refuses
// a policy of an older version, so that none is stale here.
type ofPolicy struct{ general }

// Subject implements Question.
func (ofPolicy) Subject() string { return "policy" }

// SetMode asks who may act.
type SetMode struct {
	ofPolicy
	Policy  *falconv1.Policy // as it was shown
	Options []*falconv1.Policy
	Chosen  int
}

func newSetMode(p *falconv1.Policy) *SetMode {
	q := &SetMode{Policy: p, Options: modeOptions(p)}
	for i := range q.Options {
		if q.InForce(i) {
			q.Chosen = i
		}
	}
	return q
}

// modeOptions are the policies to choose from; all else of the policy stays. S4 acts
// by itself only where the policy file says so and names an owner.
func modeOptions(p *falconv1.Policy) []*falconv1.Policy {
	with := func(mode falcon.Mode, top string) *falconv1.Policy {
		q := proto.CloneOf(p)
		q.Mode = string(mode)
		q.Cap = top
		return q
	}
	return []*falconv1.Policy{
		with(falcon.ModeObserve, p.Cap), with(falcon.ModeApprove, p.Cap),
		with(falcon.ModeAuto, "S2"), with(falcon.ModeAuto, "S3"),
	}
}

// InForce reports whether option i is the mode that was shown.
func (q *SetMode) InForce(i int) bool {
	o, auto := q.Options[i], phrase.ActsAlone(q.Policy)
	if o.Mode == string(falcon.ModeAuto) {
		return auto && o.Cap == q.Policy.Cap
	}
	return !auto &&
		(o.Mode == q.Policy.Mode ||
			o.Mode == string(falcon.ModeApprove) && q.Policy.Mode == string(falcon.ModeAuto))
}

// Move moves the choice.
func (q *SetMode) Move(by int) {
	q.Chosen = max(0, min(len(q.Options)-1, q.Chosen+by))
}

// Request implements Question.
func (q *SetMode) Request(Typed) Request {
	return Request{Policy: q.Options[q.Chosen]}
}

// Unfreeze asks whether the engine may act again.
type Unfreeze struct {
	ofPolicy
	Policy *falconv1.Policy
}

// Stale implements Question.
func (*Unfreeze) Stale(live *page.State) string {
	if !live.Snap().GetPolicy().GetFrozen() {
		return "somebody has unfrozen it already"
	}
	return ""
}

// Request implements Question.
func (q *Unfreeze) Request(Typed) Request {
	p := proto.CloneOf(q.Policy)
	p.Frozen = false
	return Request{Policy: p}
}
