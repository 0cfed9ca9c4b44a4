package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/trace/hang"
	"github.com/failslow/falcon/detect/trace/judge"
)

// realHangs are the shared dumps of real hangs with the ranks that a fault was
// injected into.
var realHangs = map[string]struct {
	ranks []falcon.Rank
	kind  hang.Kind
}{
	"gpu_error_1st": {[]falcon.Rank{12, 14}, hang.Device},
	"lock_gil_1st":  {[]falcon.Rank{9, 14}, hang.Behind},
}

func TestDetectTraceOfRealHangs(t *testing.T) {
	for name, want := range realHangs {
		t.Run(name, func(t *testing.T) {
			dir := realFile(t, "flight/"+name)
			start := time.Now()
			out, err := detectRun("", "trace", dir, "--json")
			took := time.Since(start)
			var r judge.TraceReport
			if err != nil || json.Unmarshal([]byte(out), &r) != nil {
				t.Fatal(err, out)
			}
			if !slices.Equal(r.Ranks, want.ranks) ||
				r.Hang == nil ||
				r.Hang.Culprits[0].Kind != want.kind ||
				r.Hang.Waiting != 14 ||
				took > time.Second {
				t.Errorf("in %v\n%s", took, out)
			}
			t.Logf("%v in %v", r.Ranks, took)
			if out, err := detectRun("", "trace", dir); err != nil ||
				!strings.Contains(out, fmt.Sprintf("ranks %v", want.ranks)) ||
				!strings.Contains(out, "next") ||
				strings.Contains(out, "fault_injection") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// Without the dumps of one or two ranks the verdict names no other rank, and an
// invalid dump is like a missing one.
func TestDetectTraceOfRealHangsWithDumpsMissing(t *testing.T) {
	for name, want := range realHangs {
		dir := realFile(t, "flight/"+name)
		for gone := range 16 {
			part := t.TempDir()
			for rank := range 16 {
				raw, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("_dump_%d", rank)))
				if err != nil {
					t.Fatal(err)
				}
				if rank == gone {
					raw = raw[:len(raw)/2]
				}
				if err := os.WriteFile(
					filepath.Join(part, fmt.Sprintf("_dump_%d", rank)),
					raw,
					0o600,
				); err != nil {
					t.Fatal(err)
				}
			}
			out, err := detectRun("", "trace", part, "--json")
			var r judge.TraceReport
			if err != nil || json.Unmarshal([]byte(out), &r) != nil {
				t.Fatal(err, out)
			}
			for _, rank := range r.Ranks {
				if !slices.Contains(want.ranks, rank) {
					t.Errorf("%s without %d: %v\n%s", name, gone, r.Ranks, out)
				}
			}
			if !strings.Contains(out, "Ignored:") ||
				!slices.Contains(want.ranks, falcon.Rank(gone)) && !slices.Equal(r.Ranks, want.ranks) {
				t.Errorf("%s without %d: %v\n%s", name, gone, r.Ranks, out)
			}
		}
	}
}
