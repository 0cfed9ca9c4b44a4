package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/failslow/falcon"
)

func TestPlanLadder(t *testing.T) {
	for in, want := range map[string]falcon.Rung{
		`{"healthy_ms":200,"iterations":[400],"cause":"gpu_degradation","overheads_ms":{"S2":500,"S3":7000}}`:                                                                                 "",
		`{"healthy_ms":200,"iterations":[400,400,400],"cause":"gpu_degradation","overheads_ms":{"S2":500,"S3":7000},"gains":{"S2":0.7}}`:                                                      falcon.RungS2,
		`{"healthy_ms":200,"iterations":[900,900,900,900,900,900,900,900,900,900,900],"cause":"network_congestion","overheads_ms":{"S2":500,"S3":7000}}`:                                      falcon.RungS3,
		`{"healthy_ms":200,"iterations":[900,900,900,900,900,900,900,900,900,900,900],"cause":"gpu_degradation","overheads_ms":{"S2":500,"S3":7000},"taken":["S2"]}`:                          falcon.RungS3,
		`{"healthy_ms":200,"iterations":[900,900],"cause":"gpu_degradation","overheads_ms":{"S2":500},"policy":{"mode":"observe"}}`:                                                           "",
		`{"healthy_ms":200,"iterations":[900,900],"cause":"gpu_degradation","overheads_ms":{"S2":500},"policy":{"mode":"auto","cap":"S4","owner":"ml-oncall","rungs":{"S2":{"per_hour":4}}}}`: falcon.RungS2,
	} {
		text, err := planWith("ladder", in)
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		var out ladderPlan
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			t.Fatal(err)
		}
		got := falcon.Rung("")
		if out.Propose != nil {
			got = *out.Propose
		}
		if got != want || len(out.Rungs) != 4 || out.Why == "" {
			t.Errorf("%s: %s; want to propose %q", in, text, want)
		}
	}
}

func TestPlanLadderOnBadInput(t *testing.T) {
	for in, want := range map[string]string{
		``:                                       "empty",
		`{"iterations":[1]}`:                     "healthy_ms is missing",
		`{"healthy_ms":200}`:                     "cause is missing",
		`{"healthy_ms":0,"cause":"unknown"}`:     "positive time",
		`{"healthy_ms":200,"cause":"\u001b[1m"}`: "is none of",
		`{"healthy_ms":200,"cause":"unknown","gains":{"S2":12}}`:                                         "gains_ms",
		`{"healthy_ms":200,"cause":"unknown","overheads_ms":{"S9":12}}`:                                  "S9",
		`{"healthy_ms":200,"cause":"unknown","policy":{"mode":"auto","cap":"S4"}}`:                       "owner",
		`{"healthy_ms":200,"cause":"unknown","policy":{"cap":"S4"}}`:                                     "observe, approve, auto",
		`{"healthy_ms":200,"cause":"unknown","policy":{"mode":"auto","rungs":{"S2":{"approvals":"x"}}}}`: "approvals",
	} {
		out, err := planWith("ladder", in)
		if err == nil ||
			out != "" ||
			!strings.Contains(err.Error(), want) ||
			strings.ContainsAny(err.Error(), "\n\x1b") ||
			!errors.Is(err, errUsage) {
			t.Errorf("%q: output %q, error %v; want one sentence with %q and exit 2", in, out, err, want)
		}
	}
}

func FuzzPlanLadder(f *testing.F) {
	f.Add(`{"healthy_ms":200,"iterations":[400,400,400],"cause":"gpu_degradation","overheads_ms":{"S2":50,"S3":7000},"gains":{"S2":0.7},"gains_ms":{"S3":100},"taken":["S2"],"gpus":8}`)
	f.Add(`{"healthy_ms":2,"cause":"facility","policy":{"mode":"auto","cap":"S4","owner":"a","hours":"22:00-06:00","variants":["restart"]}}`)
	f.Fuzz(func(t *testing.T, in string) { oneAnswer(t, in, planLadder) })
}
