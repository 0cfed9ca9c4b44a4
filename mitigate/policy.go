package mitigate

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/failslow/falcon"
)

// ErrBadPolicy is wrapped by every error about a policy that makes no sense.
var ErrBadPolicy = errors.New("mitigate: bad policy")

// Bounds of a policy.
const (
	countdownMostS = 24 * 3600 // seconds that a proposal waits for a veto, at most
	perHourMost    = 1000
	undoMostS      = 3600 // a plan that is older than that is not what was approved
)

var variants = []falcon.Variant{
	falcon.VariantFence,
	falcon.VariantReplace,
	falcon.VariantRestart,
	falcon.VariantDrop,
}

// ValidatePolicy says in one sentence what is wrong with a policy and what to write instead.
func ValidatePolicy(p falcon.Policy) error {
	switch p.Mode {
	case falcon.ModeObserve, falcon.ModeApprove, falcon.ModeAuto:
	default:
		return fmt.Errorf("%w: mode %q is none of observe, approve, auto", ErrBadPolicy, p.Mode)
	}
	if p.Cap != "" && p.Cap.Level() == 0 {
		return fmt.Errorf("%w: cap %q is none of S1, S2, S3, S4", ErrBadPolicy, p.Cap)
	}
	if p.Mode == falcon.ModeAuto &&
		p.Cap == falcon.RungS4 &&
		p.Owner == "" &&
		p.Rungs[falcon.RungS4].Approval == "" {
		return fmt.Errorf(
			"%w: cap S4 lets the job be restarted without a person: name an owner who answers for that",
			ErrBadPolicy,
		)
	}
	for _, r := range slices.Sorted(maps.Keys(p.Rungs)) {
		if err := validateRung(p, r, p.Rungs[r]); err != nil {
			return err
		}
	}
	switch p.Tests {
	case "", falcon.ApprovalAuto, falcon.ApprovalPerson, falcon.ApprovalNever:
	default:
		return fmt.Errorf("%w: tests %q is none of auto, person, never", ErrBadPolicy, p.Tests)
	}
	if _, _, err := parseHours(p.Hours); err != nil {
		return err
	}
	return validateVariants(p)
}

func validateRung(p falcon.Policy, r falcon.Rung, v falcon.RungPolicy) error {
	if r.Level() < 2 {
		return fmt.Errorf("%w: rungs names %q; only S2, S3 and S4 need an approval", ErrBadPolicy, r)
	}
	switch v.Approval {
	case "", falcon.ApprovalPerson, falcon.ApprovalNever:
	case falcon.ApprovalAuto:
		if r.Level() > p.Cap.Level() {
			return fmt.Errorf(
				"%w: %s is to act by itself above the cap %q: raise the cap to %s, or let %s wait for a person",
				ErrBadPolicy, r, p.Cap, r, r,
			)
		}
		if r == falcon.RungS4 && p.Owner == "" {
			return fmt.Errorf("%w: S4 restarts the job without a person: name an owner who answers for that",
				ErrBadPolicy)
		}
	default:
		return fmt.Errorf("%w: approval %q of %s is none of auto, person, never", ErrBadPolicy, v.Approval, r)
	}
	if !(v.Countdown >= 0 && v.Countdown <= countdownMostS) || math.IsNaN(v.Countdown) {
		return fmt.Errorf("%w: countdown_s %v of %s is not between 0 and %d",
			ErrBadPolicy, v.Countdown, r, countdownMostS)
	}
	if !(v.Undo >= 0 && v.Undo <= undoMostS) {
		return fmt.Errorf("%w: undo_s %v of %s is not between 0 (at once) and %d",
			ErrBadPolicy, v.Undo, r, undoMostS)
	}
	if v.Second && v.Approval != falcon.ApprovalNever && mayActAlone(p, r) {
		return fmt.Errorf(
			"%w: %s wants a second approver and is to act by itself: let it wait (approval: person), or take second away",
			ErrBadPolicy, r,
		)
	}
	if v.PerHour < 0 || v.PerHour > perHourMost {
		return fmt.Errorf("%w: per_hour %d of %s is not between 0 (no limit) and %d",
			ErrBadPolicy, v.PerHour, r, perHourMost)
	}
	return nil
}

func validateVariants(p falcon.Policy) error {
	for i, v := range p.Variants {
		switch {
		case !slices.Contains(variants, v):
			return fmt.Errorf("%w: variant %q of S4 is none of fence, replace, restart, drop",
				ErrBadPolicy, v)
		case slices.Contains(p.Variants[:i], v):
			return fmt.Errorf("%w: variant %q of S4 is listed twice", ErrBadPolicy, v)
		case v == falcon.VariantDrop && !p.AllowDrop:
			return fmt.Errorf("%w: variant drop changes the batch: set allow_drop, or take it off the list",
				ErrBadPolicy)
		}
	}
	return nil
}

// parseHours reads "22:00-06:00" as minutes of the day in UTC; the end is not
// part of it. Empty means always: 0, 0.
func parseHours(s string) (from, to int, err error) {
	if s == "" {
		return 0, 0, nil
	}
	a, b, ok := strings.Cut(s, "-")
	from, okFrom := parseMinute(a)
	to, okTo := parseMinute(b)
	if !ok || !okFrom || !okTo || from == to {
		return 0, 0, fmt.Errorf(
			"%w: hours %q are not two different times of the day in UTC, such as 22:00-06:00",
			ErrBadPolicy, s,
		)
	}
	return from, to, nil
}

func parseMinute(s string) (int, bool) {
	if len(s) != 5 || s[2] != ':' {
		return 0, false
	}
	h, err := strconv.ParseUint(s[:2], 10, 8)
	m, err2 := strconv.ParseUint(s[3:], 10, 8)
	if err != nil || err2 != nil || h > 23 || m > 59 {
		return 0, false
	}
	return int(h)*60 + int(m), true
}

// withinHours reports whether now lies in the hours in which rungs may act by themselves.
// Hours that can't be read allow nothing: the safe side.
func withinHours(hours string, now time.Time) bool {
	from, to, err := parseHours(hours)
	if err != nil || from == to {
		return err == nil
	}
	minute := now.UTC().Hour()*60 + now.UTC().Minute()
	if from < to {
		return from <= minute && minute < to
	}
	return minute >= from || minute < to
}

// approval is what policy wants before rung r (falcon.ApprovalAuto, …), whatever the hour.
func approval(p falcon.Policy, r falcon.Rung) string {
	switch {
	case p.Rungs[r].Approval == falcon.ApprovalNever:
		return falcon.ApprovalNever
	case p.Rungs[r].Second, !mayActAlone(p, r):
		return falcon.ApprovalPerson
	}
	return falcon.ApprovalAuto
}

// mayActAlone reports whether only the clock keeps rung r from acting by itself.
func mayActAlone(p falcon.Policy, r falcon.Rung) bool {
	return p.Mode == falcon.ModeAuto &&
		p.Rungs[r].Approval != falcon.ApprovalPerson &&
		r.Level() <= p.Cap.Level() &&
		(r != falcon.RungS4 || p.Owner != "")
}

// s4Variants lists how S4 may be taken, best first.
func s4Variants(p falcon.Policy) []falcon.Variant {
	out := p.Variants
	if len(out) == 0 {
		out = variants
	}
	if p.AllowDrop {
		return out
	}
	return slices.DeleteFunc(slices.Clone(
		out,
	), func(v falcon.Variant) bool { return v == falcon.VariantDrop })
}
