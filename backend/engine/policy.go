package engine

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/mitigate"
	"github.com/failslow/falcon/recovery"
)

// The policy comes from the configuration and from approvers. What an approver
// sets is in the journal and holds over restarts, until the configuration says
// something else than when it was set: then the configuration is newer. Only
// a freeze is never lifted by a configuration.

// configured names the configuration as the source of a policy.
const configured = "configuration"

// policyKeeper holds the policy in force, and gives it to the machines.
type policyKeeper struct {
	*shared
}

// policyHash identifies a configured policy.
func policyHash(p falcon.Policy) string {
	p.Frozen = false
	return shortHash(p)
}

// adoptConfigured takes the configured policy where it is newer.
func (pk *policyKeeper) adoptConfigured(now time.Time) {
	was, hash := pk.state.policy, policyHash(pk.cfg.Policy)
	next := policyRecord{
		Policy:  pk.cfg.Policy,
		Version: was.Version + 1,
		File:    hash,
		By:      configured,
	}
	switch {
	case was.Version == 0:
	case was.File == hash:
		return
	case was.File == "" && was.By != configured: // of a journal that did not note the configuration
		next.Policy = was.Policy
		next.By = was.By
		next.Role = was.Role
		next.From = was.From
	default:
		next.Policy.Frozen = was.Policy.Frozen
	}
	if was.Version != 0 && !next.Policy.Equal(was.Policy) {
		pk.oplog.logf("policy", 1, "", "the configured policy has changed and holds now: %s",
			policyText(next.Policy))
	}
	pk.batch.apply(record(now, kindPolicy, next))
}

// source says where a policy came from.
func (r policyRecord) source() string {
	if r.From != "" {
		return r.From
	}
	return r.By
}

// policyText is a policy on one line.
func policyText(p falcon.Policy) string {
	var text phrase
	text.add(true, "mode %s, cap %s, frozen %v", p.Mode, p.Cap, p.Frozen)
	for _, r := range sortedKeys(p.Rungs) {
		v := p.Rungs[r]
		text.add(true, "; %s", r)
		text.add(v.Approval != "", " %s", v.Approval)
		text.add(v.Countdown > 0, " after %g s", v.Countdown)
		text.add(v.PerHour > 0, " %d an hour", v.PerHour)
		text.add(v.Second, " by two people")
		text.add(v.Undo > 0, " with %g s to undo", v.Undo)
	}
	text.add(p.Hours != "", "; by itself %s UTC", p.Hours)
	text.add(p.Tests != "", "; tests %s", p.Tests)
	text.add(len(p.Variants) > 0, "; S4 by %s", strings.Join(convert.Strings(p.Variants), ", "))
	text.add(p.AllowDrop, "; replicas may be dropped")
	if r := p.Recovery; r != (falcon.RecoveryPolicy{}) {
		text.add(true, "; recovery %s", cmp.Or(r.Approval, falcon.ApprovalAuto))
		text.add(r.Countdown > 0, " after %g s", r.Countdown)
		text.add(r.PerHour > 0, " %d an hour", r.PerHour)
		text.add(r.InPlace > 0, ", %d an hour in place", r.InPlace)
		text.add(r.FenceAlone, ", a silent agent is enough to fence")
		text.add(r.AllowShrink, ", replicas may be given up")
	}
	text.add(p.Owner != "", "; owner %s", p.Owner)
	return text.String()
}

// phrase is a sentence of parts, of which some are left out.
type phrase struct{ strings.Builder }

func (p *phrase) add(when bool, format string, args ...any) {
	if when {
		fmt.Fprintf(p, format, args...)
	}
}

// policyFrom is a policy as a console sent it, its texts cleaned.
func policyFrom(p *falconv1.Policy) falcon.Policy {
	out := convert.PolicyFromProto(p)
	out.Owner = clean(out.Owner)
	out.Hours = clean(out.Hours)
	out.Recovery.Approval = clean(out.Recovery.Approval)
	out.Tests = clean(out.Tests)
	rungs := out.Rungs
	if rungs != nil {
		out.Rungs = make(map[falcon.Rung]falcon.RungPolicy, len(rungs))
	}
	for name, r := range rungs {
		r.Approval = clean(r.Approval)
		out.Rungs[falcon.Rung(clean(string(name)))] = r
	}
	for i, v := range out.Variants {
		out.Variants[i] = falcon.Variant(clean(string(v)))
	}
	return out
}

// SetPolicy replaces the policy that has the version named in p. mayLoosen is
// for approvers: others may only freeze.
func (e *Engine) SetPolicy(
	ctx context.Context,
	who Actor,
	mayLoosen bool,
	p *falconv1.Policy,
) (*falconv1.Policy, error) {
	var out *falconv1.Policy
	err := e.decideInLoop(ctx, func() (refused error) {
		out, refused = e.policies.replacePolicy(who, mayLoosen, p)
		return refused
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (pk *policyKeeper) replacePolicy(
	who Actor,
	mayLoosen bool,
	p *falconv1.Policy,
) (*falconv1.Policy, error) {
	was := pk.state.policy
	next := policyFrom(p)
	if p.GetRecovery() == nil { // of a console that does not know of it
		next.Recovery = was.Policy.Recovery
	}
	if err := CheckPolicy(next); err != nil {
		return nil, err
	}
	if p.GetVersion() != was.Version {
		return nil, fmt.Errorf(
			"%w: you saw policy version %d and it is version %d now (mode %s, cap %s, frozen %v, set by %s); look again",
			ErrStale, p.GetVersion(), was.Version, was.Policy.Mode, was.Policy.Cap,
			was.Policy.Frozen, was.By,
		)
	}
	if freezing := was.Policy; !mayLoosen {
		freezing.Frozen = true
		if !next.Equal(freezing) {
			return nil, fmt.Errorf(
				"%w: an operator may freeze; anything else in the policy needs an approver",
				ErrDenied,
			)
		}
	}
	now := pk.cfg.Now()
	rec := policyRecord{
		Policy:  next,
		Version: was.Version + 1,
		File:    was.File,
		By:      who.Name,
		Role:    who.Role,
		From:    who.From,
	}
	pk.batch.addRecords(record(now, kindPolicy, rec))
	pk.oplog.logf("policy", 0, "", "policy: %s (by %s)", policyText(next), who.Name)
	pk.oplog.audit(now, who, auditEntry{Verb: "set policy", About: policyText(next)})
	pk.plan.Step(now, mitigate.SetPolicy{Policy: next})
	pk.rec.Step(now, recovery.SetPolicy{Policy: next})
	return convert.PolicyToProto(next, rec.Version), nil
}

// CheckPolicy says what is wrong with a policy.
func CheckPolicy(p falcon.Policy) error {
	if err := mitigate.ValidatePolicy(p); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := recovery.ValidatePolicy(p.Recovery); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}
