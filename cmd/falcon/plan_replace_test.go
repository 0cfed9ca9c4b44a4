package main

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/failslow/falcon/mitigate"
)

func TestPlanReplace(t *testing.T) {
	text, err := planWith("replace", `{"ranks":1000,"step_ms":200,"slow_ratio":1.4,"remaining_s":864000,"replace_s":90,"spares":1}`)
	if err != nil {
		t.Fatal(err)
	}
	var out replacePlan
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	if out.Best != mitigate.RemedyReplace || out.BreakEvenS == nil || math.Abs(*out.BreakEvenS-90_000) > 1e-6 || len(out.Remedies) != 4 {
		t.Errorf("%s", text)
	}
	if text, err = planWith("replace", `{"ranks":1000,"step_ms":200,"slow_ratio":1.4,"remaining_s":864000,"replace_s":90,"spares":0}`); err != nil || !strings.Contains(text, `"break_even_s":null`) {
		t.Errorf("%s, %v", text, err)
	}
}

func TestPlanReplaceOnBadInput(t *testing.T) {
	for in, want := range map[string]string{
		``:            "empty",
		`{"ranks":8}`: "step_ms is missing",
		`{"ranks":8,"step_ms":200,"slow_ratio":0.5,"remaining_s":1,"replace_s":90}`:                "slow_ratio 0.5",
		`{"ranks":-8,"step_ms":200,"slow_ratio":1.5,"remaining_s":1,"replace_s":90}`:               "ranks -8",
		`{"ranks":8,"step_ms":200,"slow_ratio":1.5,"remaining_s":1,"replace_s":90,"replica":1}`:    `no field "replica"`,
		`{"ranks":8,"step_ms":1e300,"slow_ratio":1.5,"remaining_s":1,"replace_s":90,"spares":1}`:   "step_ms",
		`{"ranks":"8","step_ms":1,"slow_ratio":1.5,"remaining_s":1,"replace_s":90,"spares":1}`:     "ranks",
		`{"ranks":8,"step_ms":1,"slow_ratio":1.5,"remaining_s":1,"replace_s":90,"spares":1} trail`: "exactly one",
	} {
		out, err := planWith("replace", in)
		if err == nil || out != "" || !strings.Contains(err.Error(), want) || strings.ContainsAny(err.Error(), "\n\x1b") || !errors.Is(err, errUsage) {
			t.Errorf("%q: output %q, error %v; want one sentence with %q and exit 2", in, out, err, want)
		}
	}
}

func FuzzPlanReplace(f *testing.F) {
	f.Add(`{"ranks":1000,"step_ms":200,"slow_ratio":1.4,"remaining_s":864000,"replace_s":90,"spares":1}`)
	f.Add(`{"ranks":2,"step_ms":1,"slow_ratio":1,"remaining_s":0,"replace_s":0,"spare_wait_s":3,"micro_batches":5,"replica_ranks":2,"drop_s":7}`)
	f.Fuzz(func(t *testing.T, in string) { oneAnswer(t, in, planReplace) })
}

// oneAnswer holds a decoder to a plan that JSON can hold, or one sentence.
func oneAnswer[P any](t *testing.T, in string, solve func(*P) (any, error)) {
	t.Helper()
	out, err := solveOne(strings.NewReader(in), solve)
	if err != nil {
		if strings.ContainsAny(err.Error(), "\n\x1b") || err.Error() == "" {
			t.Errorf("%q: %q is not one clean sentence", in, err)
		}
		return
	}
	if _, err := json.Marshal(out); err != nil {
		t.Errorf("%q: %v", in, err)
	}
}
