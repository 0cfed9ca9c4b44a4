package engine

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/convert"
)

// allOfIt is a policy with every field set.
func allOfIt() falcon.Policy {
	return falcon.Policy{
		Mode:      falcon.ModeAuto,
		Cap:       falcon.RungS3,
		Owner:     "maria",
		Hours:     "22:00-06:00",
		AllowDrop: true,
		Tests:     falcon.ApprovalPerson,
		Rungs: map[falcon.Rung]falcon.RungPolicy{
			falcon.RungS2: {Approval: falcon.ApprovalAuto, PerHour: 4},
			falcon.RungS3: {Approval: falcon.ApprovalPerson, Countdown: 30, Undo: 10, Second: true},
		},
		Variants: []falcon.Variant{falcon.VariantRestart, falcon.VariantDrop},
		Recovery: falcon.RecoveryPolicy{
			Approval:    falcon.ApprovalPerson,
			Countdown:   5,
			FenceAlone:  true,
			AllowShrink: true,
			InPlace:     3,
			PerHour:     6,
		},
	}
}

func TestPolicyOnTheWireIsWhole(t *testing.T) {
	p := allOfIt()
	v := reflect.ValueOf(p)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if v.Field(i).IsZero() && name != "Frozen" {
			t.Errorf("the test does not set %s", name)
		}
	}
	p.Frozen = true
	if got := policyFrom(convert.PolicyToProto(p, 7)); !got.Equal(p) {
		t.Errorf("%+v became %+v", p, got)
	}
	if got := policyFrom(convert.PolicyToProto(
		falcon.Policy{Mode: falcon.ModeApprove},
		1,
	)); !got.Equal(falcon.Policy{Mode: falcon.ModeApprove}) {
		t.Errorf("a short policy became %+v", got)
	}
	for _, want := range []string{
		"mode auto, cap S3, frozen true", "S2 auto 4 an hour",
		"S3 person after 30 s by two people with 10 s to undo", "22:00-06:00 UTC", "restart, drop",
		"owner maria",
		"recovery person after 5 s 6 an hour, 3 an hour in place, a silent agent is enough to fence, replicas may be given up",
	} {
		if got := policyText(p); !strings.Contains(got, want) {
			t.Errorf("%q does not say %q", got, want)
		}
	}
}

// An approver's policy holds over restarts until the configuration changes; a
// freeze holds even then.
func TestConfiguredPolicyAndTheJournal(t *testing.T) {
	inBubble(t, func(b *bench) {
		start := func() falcon.Policy {
			b.start()
			b.turn()
			return b.engine.state.policy.Policy
		}
		set := func(p falcon.Policy) {
			b.inLoop(func() {
				if _, err := b.engine.policies.replacePolicy(
					tester,
					true,
					convert.PolicyToProto(p, b.engine.state.policy.Version),
				); err != nil {
					b.t.Error(err)
				}
			})
		}
		b.policy = allOfIt()
		if got := start(); !got.Equal(allOfIt()) {
			b.t.Errorf("configured: %+v", got)
		}
		frozen := falcon.Policy{
			Mode:   falcon.ModeApprove,
			Cap:    falcon.RungS1,
			Owner:  "maria",
			Frozen: true,
		}
		set(frozen)
		_ = b.halt()
		if got := start(); !got.Equal(frozen) {
			b.t.Errorf("after a restart: %+v", got)
		}
		_ = b.halt()
		b.policy.Hours = "20:00-06:00"
		want := b.policy
		want.Frozen = true
		if got := start(); !got.Equal(want) || b.engine.state.policy.By != configured {
			b.t.Errorf("after the configuration has changed: %+v by %s", got, b.engine.state.policy.By)
		}
	})
}

func TestPolicyThatMakesNoSense(t *testing.T) {
	for _, bad := range []falcon.Policy{
		{},
		{Mode: falcon.ModeAuto, Cap: "S9"},
		{Mode: falcon.ModeAuto, Cap: falcon.RungS4},
		{Mode: falcon.ModeApprove, Hours: "always"},
		{Mode: falcon.ModeApprove, Variants: []falcon.Variant{falcon.VariantDrop}},
	} {
		if err := CheckPolicy(bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if err := CheckPolicy(allOfIt()); err != nil {
		t.Error(err)
	}
}
