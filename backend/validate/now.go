package validate

import (
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/detect/passes"
)

// Now is the present step of a validation in progress.
type Now struct {
	Step    string // "gemm", "ids", "pass"; empty = no test runs
	Pass    int    // of step "pass"
	Again   bool   // a slow result is measured once more
	Pairs   []passes.Pair
	Awaited []falcon.Rank // ascending
	Held    time.Time     // since when all ranks are quiet, zero = not
	Ends    time.Time     // when the ranks resume by themselves, zero = not held yet
}

var stepNames = map[falconv1.TestKind]string{
	falconv1.TestKind_TEST_KIND_GEMM: "gemm",
	falconv1.TestKind_TEST_KIND_ID:   "ids",
	falconv1.TestKind_TEST_KIND_LINK: "pass",
}

// Now is the present step of the validation in progress; the zero value when none is.
func (m *Machine) Now() Now {
	if !m.active {
		return Now{}
	}
	out := Now{Held: m.quietAt}
	if m.armed {
		out.Ends = m.lifeEnds
	}
	if m.v.State == falcon.ValidationTesting {
		m.tests.now(&out)
	}
	return out
}
