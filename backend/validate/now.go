package validate

import (
	"maps"
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/detect/passes"
)

// Now is what a validation in progress is at.
type Now struct {
	Step    string // "gemm", "ids", "pass"; empty = no test runs
	Pass    int    // of step "pass"
	Again   bool   // of what was slow, once more
	Pairs   []passes.Pair
	Awaited []falcon.Rank // ascending
	Held    time.Time     // since when all ranks are quiet, zero = not
	Ends    time.Time     // when the ranks let go by themselves, zero = not held yet
}

var stepNames = map[falconv1.TestKind]string{
	falconv1.TestKind_TEST_KIND_GEMM: "gemm", falconv1.TestKind_TEST_KIND_ID: "ids", falconv1.TestKind_TEST_KIND_LINK: "pass",
}

// Now tells what the validation in progress is at; the zero value when none is.
func (m *Machine) Now() Now {
	if !m.active {
		return Now{}
	}
	out := Now{Held: m.quietAt}
	if m.armed {
		out.Ends = m.lifeEnds
	}
	if m.v.State != falcon.ValidationTesting || len(m.steps) == 0 {
		return out
	}
	s := m.steps[0]
	out.Step, out.Again, out.Awaited = stepNames[s.kind], s.again, slices.Sorted(maps.Keys(m.awaited))
	if s.kind == falconv1.TestKind_TEST_KIND_LINK {
		out.Pass, out.Pairs = s.pass, slices.Clone(m.schedule[s.pass].Pairs)
	}
	return out
}
