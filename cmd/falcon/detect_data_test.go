package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// realFile is a file of the shared records, which are outside of the repository.
func realFile(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join("..", "..", "..", "shared", "data", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no shared records here: %v", err)
	}
	return path
}

func TestDetectWorkersOnRealRecords(t *testing.T) {
	// Read off the rows of job 3: workers 6 to 9 leave their level of about 710
	// one after another from here on and never come back, no other worker does.
	const job3Turns = 212
	for name, want := range map[string]func(workersReport) bool{
		"workers/bytedance_AR.csv": func(r workersReport) bool {
			return r.Workers == 16 &&
				len(r.Flagged) == 1 &&
				r.Flagged[0].Worker == "dp0/pp0" &&
				r.Flagged[0].Onset == 0 &&
				r.Flagged[0].Relief == nil
		},
		"workers/pai_job_2.csv": func(r workersReport) bool {
			return r.Workers == 10 && len(r.Flagged) == 0
		},
		"workers/pai_job_3.csv": func(r workersReport) bool {
			ok := r.Workers == 10 && len(r.Flagged) == 4
			for i, f := range r.Flagged {
				ok = ok &&
					f.Worker == fmt.Sprint(6+i) &&
					f.Onset >= job3Turns &&
					f.Onset <= job3Turns+10
			}
			return ok
		},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := detectRun("", "workers", realFile(t, name), "--json")
			var doc workersReport
			if err != nil ||
				json.Unmarshal([]byte(out), &doc) != nil ||
				!want(doc) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// The true periods of the sequences, by their notes.
func TestDetectCallsOnRealRecords(t *testing.T) {
	for name, period := range map[string]int{
		"hta_ddp404": 404, "hta_dlrm16": 17, "hta_nccl_cfg": 7, "tracelens_resnet_mi300": 4,
		"bytedance_AR_dp0_pp0_tp0": 69, "bytedance_AR_dp1_pp1_tp0": 132,
	} {
		t.Run(name, func(t *testing.T) {
			out, err := detectRun("", "calls", realFile(t, "calls/"+name+".csv"), "--json")
			var doc callsReport
			if err != nil || json.Unmarshal([]byte(out), &doc) != nil {
				t.Fatal(err, out)
			}
			if doc.Period == nil && doc.Reason == "" || doc.Period != nil && *doc.Period != period {
				t.Errorf("%s", out)
			}
		})
	}
}
