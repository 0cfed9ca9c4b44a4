package phrase

import (
	"testing"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func TestApprovers(t *testing.T) {
	by := func(names ...string) (out []*falconv1.Approval) {
		for _, n := range names {
			out = append(out, &falconv1.Approval{By: n})
		}
		return out
	}
	for _, c := range []struct {
		a     *falconv1.Action
		want  string
		waits bool
	}{
		{nil, "", false},
		{&falconv1.Action{State: "proposed"}, "", false},
		{&falconv1.Action{State: "proposed", Approvals: by("maria")}, "maria", true},
		{
			&falconv1.Action{State: "approved", DecidedBy: "li", Approvals: by("maria", "li")},
			"maria and li",
			false,
		},
		{&falconv1.Action{State: "kept", DecidedBy: "policy"}, "policy", false},
		{&falconv1.Action{State: "vetoed", DecidedBy: "li"}, "", false},
		{&falconv1.Action{State: "vetoed", DecidedBy: "li", Approvals: by("maria", "maria")}, "maria", false},
	} {
		if got := Approvers(c.a); got != c.want || Waits(c.a) != c.waits {
			t.Errorf("%v: %q, waits %v", c.a, got, Waits(c.a))
		}
	}
	if a := (&falconv1.Action{Approvals: by("Maria")}); !Has(a, "maria") || Has(a, "li") {
		t.Error("names differ in case only")
	}
}
