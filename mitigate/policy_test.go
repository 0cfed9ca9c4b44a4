package mitigate

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon"
)

func TestValidatePolicySaysWhatIsWrong(t *testing.T) {
	auto := func(f func(*falcon.Policy)) falcon.Policy {
		p := falcon.Policy{
			Mode:  falcon.ModeAuto,
			Cap:   falcon.RungS4,
			Owner: "oncall",
			Rungs: map[falcon.Rung]falcon.RungPolicy{},
		}
		f(&p)
		return p
	}
	rung := func(r falcon.Rung, v falcon.RungPolicy) falcon.Policy {
		return auto(func(p *falcon.Policy) { p.Rungs[r] = v })
	}
	for want, p := range map[string]falcon.Policy{
		`mode "" is none`: {},
		`cap "S9"`:        {Mode: falcon.ModeAuto, Cap: "S9"},
		"name an owner":   {Mode: falcon.ModeAuto, Cap: falcon.RungS4},
		"above the cap": {
			Mode:  falcon.ModeAuto,
			Cap:   falcon.RungS2,
			Rungs: map[falcon.Rung]falcon.RungPolicy{falcon.RungS3: {Approval: falcon.ApprovalAuto}},
		},
		"only S2, S3 and S4": rung(falcon.RungS1, falcon.RungPolicy{}),
		"none of auto":       rung(falcon.RungS2, falcon.RungPolicy{Approval: "maybe"}),
		"countdown_s -1":     rung(falcon.RungS2, falcon.RungPolicy{Countdown: -1}),
		"countdown_s NaN":    rung(falcon.RungS2, falcon.RungPolicy{Countdown: math.NaN()}),
		"undo_s -1":          rung(falcon.RungS3, falcon.RungPolicy{Undo: -1}),
		"undo_s NaN":         rung(falcon.RungS3, falcon.RungPolicy{Undo: math.NaN()}),
		"undo_s 3601":        rung(falcon.RungS3, falcon.RungPolicy{Undo: 3601}),
		"S3 wants a second": rung(falcon.RungS3, falcon.RungPolicy{
			Second:   true,
			Approval: falcon.ApprovalAuto,
		}),
		// within the cap of auto
		"S2 wants a second":   rung(falcon.RungS2, falcon.RungPolicy{Second: true}),
		"per_hour -2":         rung(falcon.RungS2, falcon.RungPolicy{PerHour: -2}),
		`hours "22-6"`:        auto(func(p *falcon.Policy) { p.Hours = "22-6" }),
		`hours "06:00-06:00"`: auto(func(p *falcon.Policy) { p.Hours = "06:00-06:00" }),
		`hours "24:00-06:00"`: auto(func(p *falcon.Policy) { p.Hours = "24:00-06:00" }),
		`variant "reboot"`: auto(func(p *falcon.Policy) {
			p.Variants = []falcon.Variant{"reboot"}
		}),
		"allow_drop": auto(func(p *falcon.Policy) {
			p.Variants = []falcon.Variant{falcon.VariantDrop}
		}),
		`"replace" of S4 is listed`: auto(func(p *falcon.Policy) {
			p.Variants = []falcon.Variant{falcon.VariantReplace, falcon.VariantReplace}
		}),
	} {
		err := ValidatePolicy(p)
		if !errors.Is(err, ErrBadPolicy) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", p, err, want)
		}
	}
	for _, p := range []falcon.Policy{
		{Mode: falcon.ModeObserve},
		{Mode: falcon.ModeAuto, Cap: falcon.RungS3},
		auto(func(p *falcon.Policy) {
			p.Hours = "22:00-06:30"
			p.AllowDrop = true
			p.Variants = []falcon.Variant{falcon.VariantDrop}
		}),
		{
			Mode:  falcon.ModeAuto,
			Cap:   falcon.RungS4,
			Rungs: map[falcon.Rung]falcon.RungPolicy{falcon.RungS4: {Approval: falcon.ApprovalPerson}},
		},
		{
			Mode: falcon.ModeApprove,
			Cap:  falcon.RungS4,
			Rungs: map[falcon.Rung]falcon.RungPolicy{falcon.RungS4: {
				Second: true,
				Undo:   3600,
			}},
		},
		{
			Mode:  falcon.ModeAuto,
			Cap:   falcon.RungS2,
			Rungs: map[falcon.Rung]falcon.RungPolicy{falcon.RungS3: {Second: true}},
		},
		rung(falcon.RungS4, falcon.RungPolicy{Second: true, Approval: falcon.ApprovalPerson}),
		rung(falcon.RungS4, falcon.RungPolicy{Second: true, Approval: falcon.ApprovalNever}),
	} {
		if err := ValidatePolicy(p); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

func TestApprovalByModeCapAndOwner(t *testing.T) {
	never := map[falcon.Rung]falcon.RungPolicy{
		falcon.RungS2: {Approval: falcon.ApprovalNever},
		falcon.RungS3: {Approval: falcon.ApprovalAuto},
	}
	two := map[falcon.Rung]falcon.RungPolicy{falcon.RungS2: {Second: true}} // also where it was not validated
	for _, c := range []struct {
		p    falcon.Policy
		want [3]string // S2, S3, S4
	}{
		{
			falcon.Policy{Mode: falcon.ModeApprove, Cap: falcon.RungS4, Owner: "x"},
			[3]string{"person", "person", "person"},
		},
		{falcon.Policy{Mode: falcon.ModeAuto, Cap: falcon.RungS3}, [3]string{"auto", "auto", "person"}},
		{falcon.Policy{Mode: falcon.ModeAuto, Cap: falcon.RungS4}, [3]string{"auto", "auto", "person"}},
		{
			falcon.Policy{Mode: falcon.ModeAuto, Cap: falcon.RungS4, Owner: "x"},
			[3]string{"auto", "auto", "auto"},
		},
		{
			falcon.Policy{Mode: falcon.ModeAuto, Cap: falcon.RungS2, Rungs: never},
			[3]string{"never", "person", "person"},
		},
		{
			falcon.Policy{Mode: falcon.ModeAuto, Cap: falcon.RungS3, Rungs: two},
			[3]string{"person", "auto", "person"},
		},
	} {
		for i, r := range []falcon.Rung{falcon.RungS2, falcon.RungS3, falcon.RungS4} {
			if got := approval(c.p, r); got != c.want[i] {
				t.Errorf("%+v: %s is %s, want %s", c.p, r, got, c.want[i])
			}
		}
	}
}

func TestHoursWrapMidnight(t *testing.T) {
	at := func(h, m int) time.Time {
		return time.Date(2026, 1, 2, h, m, 0, 0, time.UTC)
	}
	for _, c := range []struct {
		hours string
		at    time.Time
		want  bool
	}{
		{"", at(12, 0), true},
		{"22:00-06:00", at(22, 0), true},
		{"22:00-06:00", at(5, 59), true},
		{"22:00-06:00", at(6, 0), false},
		{"22:00-06:00", at(12, 0), false},
		{"08:00-09:30", at(9, 29), true},
		{"08:00-09:30", at(9, 30), false},
		{"nonsense", at(9, 0), false},
	} {
		if got := withinHours(c.hours, c.at); got != c.want {
			t.Errorf("%q at %s: %v", c.hours, c.at.Format(time.TimeOnly), got)
		}
	}
}

func TestVariantsInPolicyOrder(t *testing.T) {
	p := falcon.Policy{Variants: []falcon.Variant{falcon.VariantDrop, falcon.VariantRestart}}
	if got := s4Variants(p); !slices.Equal(got, []falcon.Variant{falcon.VariantRestart}) {
		t.Errorf("without leave to drop: %v", got)
	}
	p.AllowDrop = true
	if got := s4Variants(p); !slices.Equal(got, p.Variants) {
		t.Errorf("with leave to drop: %v", got)
	}
	if got := s4Variants(falcon.Policy{}); !slices.Equal(got, []falcon.Variant{
		falcon.VariantFence,
		falcon.VariantReplace,
		falcon.VariantRestart,
	}) {
		t.Errorf("default: %v", got)
	}
}
