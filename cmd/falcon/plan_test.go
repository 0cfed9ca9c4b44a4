package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func plan(in string) (string, error) { return planWith("microbatch", in) }

func planWith(command, in string) (string, error) {
	return planArgs(in, command, "-")
}

func planArgs(in string, args ...string) (string, error) {
	root := newRoot()
	var out bytes.Buffer
	root.SetArgs(append([]string{"plan"}, args...))
	root.SetIn(strings.NewReader(in))
	root.SetOut(&out)
	err := root.Execute()
	return strings.TrimSpace(out.String()), err
}

func TestPlanMicrobatch(t *testing.T) {
	for in, want := range map[string]string{
		`{"micro_batch_ms":[1,1,2,1],"total":32,"stages":1}`:                                `{"micro_batches":[9,9,5,9],"iteration_ms":10,"even_iteration_ms":16,"optimal":true}`,
		`{"micro_batch_ms":[1,1],"total":5}`:                                                `{"micro_batches":[2,3],"iteration_ms":3,"even_iteration_ms":3,"optimal":true}`,
		`{"micro_batch_ms":[1,2],"total":6,"stages":2,"max":[3,6]}`:                         `{"micro_batches":[3,3],"iteration_ms":8,"even_iteration_ms":8,"optimal":true}`,
		`{"micro_batch_ms":[1,2],"total":6,"stages":2,"fill_ms":[1,2],"multiple_of":[2,2]}`: `{"micro_batches":[4,2],"iteration_ms":4,"even_iteration_ms":6,"optimal":true}`,
	} {
		if got, err := plan(in); err != nil || got != want {
			t.Errorf("%s: got %s, %v; want %s", in, got, err, want)
		}
	}
}

func TestPlanMicrobatchOnBadInput(t *testing.T) {
	for in, want := range map[string]string{
		``:                                             "standard input: the input is empty; give one JSON object",
		`[1]`:                                          "can't be a array",
		`{"micro_batch_ms":[1,1]`:                      "no JSON object",
		`{"micro_batch_ms":[1,1],"total":2} {}`:        "exactly one",
		`{"micro_batch_ms":[1,1]}`:                     "total is missing",
		`{"micro_batch_ms":[1,1],"total":1.5}`:         "total can't be a number 1.5",
		`{"micro_batch_ms":[1,"x"],"total":2}`:         "micro_batch_ms",
		`{"micro_batch_ms":[1,1],"totall":2}`:          `no field "totall"`,
		`{"micro_batch_ms":[1,0],"total":4}`:           "must be a positive number",
		`{"micro_batch_ms":[1,1],"total":1}`:           "no split meets the bounds",
		`{"micro_batch_ms":[1,1e400],"total":2}`:       "micro_batch_ms",
		`{"micro_batch_ms":[1,1],"total":4,"min":[1]}`: "min has 1 entries for 2 replicas",
		`{"micro_batch_ms":[],"total":4}`:              "empty",
		"{\"\x1b[31m\":1}":                             "",
	} {
		out, err := plan(in)
		if err == nil ||
			out != "" ||
			!strings.Contains(err.Error(), want) ||
			strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%q: output %q, error %v; want one sentence with %q", in, out, err, want)
		}
	}
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
