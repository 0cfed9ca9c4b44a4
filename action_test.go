package falcon_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/failslow/falcon"
)

// actionJSON is an action as journals hold it. Its names are a promise: a new
// field is added here, and none is renamed.
const actionJSON = `{
	"id": "INC-0001/S3/2", "incident": "INC-0001", "rung": "S3", "state": "applied", "plan_hash": "9f2c",
	"micro_batches": [9, 7], "previous": [8, 8], "proposed_iteration": 10, "decided_by": "maria", "reason": "cheap",
	"applied_iteration": 20, "reverted_iteration": 30, "before_ms": 1.5, "predicted_ms": 2.5, "measured_ms": 3.5,
	"overhead_ms": 4.5, "why": "due", "order_id": 5, "revert_reason": "cleared", "revert_kind": "cleared", "job_epoch": 6, "base": [4, 4],
	"variant": "replace", "placement": ["n1.g0"], "home": ["n0.g0"],
	"preview": {
		"swaps": [["n0", "n1"]], "groups": [["n0.g1", "n1.g2"]], "left": {"dp": ["n0-n1"]}, "joined": {"pp": ["n1-n2"]}, "moved_mb": 64, "copy_ms": 50,
		"stages": [1], "replicas": [2], "splits": [9, 7], "traffic_mb": {"dp": 12}
	},
	"swap": {"step_ms": [1, 2, 3, 4], "moved_mb": 64}, "decided_from": "unix:1000", "decided_unix_ns": 7,
	"approvals": [{"by": "maria", "from": "host-a", "unix_ns": 8, "reason": "plain"}], "deadline_unix_ns": 9,
	"error_share": 0.5, "phase": "split", "resume_iteration": 11, "generation": 12, "launches": 13, "stopped_unix_ns": 14, "recovery": "REC-0001"
}`

func TestActionJSON(t *testing.T) {
	var a falcon.Action
	in := json.NewDecoder(bytes.NewReader([]byte(actionJSON)))
	in.DisallowUnknownFields()
	if err := in.Decode(&a); err != nil {
		t.Fatal(err)
	}
	wantFilled(t, reflect.ValueOf(a), "Action")
	out, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	var got, want map[string]any
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(actionJSON), &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("written again it is %s", out)
	}
}

// A new action has no fields but those that were always there, so that what
// reads journals and exports finds what it found before.
func TestEmptyActionJSON(t *testing.T) {
	var got map[string]any
	out, err := json.Marshal(falcon.Action{})
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{}
	for _, name := range []string{"id", "incident", "rung", "state", "plan_hash", "decided_by", "why"} {
		want[name] = ""
	}
	for _, name := range []string{
		"proposed_iteration", "applied_iteration", "reverted_iteration", "before_ms",
		"predicted_ms", "measured_ms", "overhead_ms",
	} {
		want[name] = 0.0
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("an empty action is %s", out)
	}
}

// wantFilled fails for a field that actionJSON lacks.
func wantFilled(t *testing.T, v reflect.Value, path string) {
	t.Helper()
	if v.IsZero() {
		t.Errorf("%s is not in the golden action", path)
	}
	switch v.Kind() {
	case reflect.Pointer:
		wantFilled(t, v.Elem(), path)
	case reflect.Struct:
		for i := range v.NumField() {
			wantFilled(t, v.Field(i), path+"."+v.Type().Field(i).Name)
		}
	}
}
