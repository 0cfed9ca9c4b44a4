package main

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/trace/judge"
)

func TestDetectProfile(t *testing.T) {
	// The example of --help must work.
	_, doc, _ := strings.Cut(detectProfileHelp, "standard input:\n")
	doc, _, _ = strings.Cut(doc, "\n\ndurations_ms")
	out, err := detectRun(doc, "profile", "-", "--json")
	var r judge.ProfileReport
	if err != nil || json.Unmarshal([]byte(out), &r) != nil {
		t.Fatal(err, out)
	}
	if len(r.Groups) != 1 ||
		len(r.Ranks) != 1 ||
		r.Ranks[0].Rank != 2 ||
		!slices.Equal(r.Groups[0].Awaited, []falcon.Rank{2}) ||
		r.Ranks[0].Rule == "" ||
		r.Groups[0].Rule == "" {
		t.Errorf("%s", out)
	}
	if out, err := detectRun(doc, "profile", "-"); err != nil ||
		!strings.Contains(out, "rank 2 (dp 2, stage 0, tp 0): self time 40 ms is 2 x") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := detectRun(
		doc,
		"profile",
		"-",
		"--json",
		"--suspect", "2.5",
		"--wait-over", "9",
	); err != nil ||
		!strings.Contains(out, `"ranks": []`) ||
		!strings.Contains(out, `"groups": []`) {
		t.Errorf("%v\n%s", err, out)
	}
}

// arTimeline writes the shared per-worker times of a real job as a Chrome
// trace with one lane a worker.
func arTimeline(t *testing.T) string {
	t.Helper()
	in, err := os.Open(realFile(t, "workers/bytedance_AR.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	rows, err := csv.NewReader(in).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var events []string
	for _, r := range rows[1:] { // step,dp,pp,tp,step_ms,fwd_compute_ms,bwd_compute_ms,dp_comm_ms
		for i, name := range []string{"forward-compute", "backward-compute", "grads-reduce-scatter"} {
			events = append(events, fmt.Sprintf(
				`{"ph":"X","name":%q,"pid":%s,"tid":%s,"ts":%s%d,"dur":%s000,"args":{"step":%s,"dp_rank":%s,"stage":%s}}`,
				name, r[1], r[2], r[0], i, strings.Split(r[5+i], ".")[0], r[0], r[1], r[2],
			))
		}
	}
	path := filepath.Join(t.TempDir(), "timeline.json")
	if err := os.WriteFile(path, []byte("["+strings.Join(events, ",\n")+"]"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDetectTraceNamesTheWorkerOfARealJob(t *testing.T) {
	out, err := detectRun("", "trace", arTimeline(t), "--json")
	var r judge.TraceReport
	if err != nil || json.Unmarshal([]byte(out), &r) != nil {
		t.Fatal(err, out)
	}
	if !slices.Equal(r.Ranks, []falcon.Rank{0}) ||
		r.Layout == nil ||
		*r.Layout != (falcon.Layout{TP: 1, DP: 4, PP: 4}) ||
		len(r.Workers) != 16 ||
		r.Workers[0].Worker != "dp0/pp0" ||
		!r.Workers[0].Slow ||
		r.Cause != falcon.CauseUnknown {
		t.Errorf("%s", out)
	}
	for _, w := range r.Workers[1:] {
		if w.Slow {
			t.Errorf("%+v", w)
		}
	}
}

func writeDumps(t *testing.T, name func(rank int) string) string {
	t.Helper()
	dir := t.TempDir()
	for rank := range 3 {
		ms := 12
		if rank == 1 {
			ms = 3
		}
		var entries []string
		for seq := range 4 {
			entries = append(entries, fmt.Sprintf(
				`{"record_id":%d,"process_group":["0","default_pg"],"collective_seq_id":%d,"profiling_name":"nccl:all_reduce","duration_ms":%d,"input_sizes":[[8]],"state":"completed"}`,
				seq, seq, ms,
			))
		}
		doc := `{"version":"2.10","pg_config":{"0":{"name":"0","desc":"default_pg","ranks":"[0, 1, 2]"}},"entries":[` + strings.Join(
			entries,
			",",
		) + `]}`
		if err := os.WriteFile(filepath.Join(dir, name(rank)), []byte(doc), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestDetectTraceOfDumps(t *testing.T) {
	for _, name := range []func(int) string{
		func(r int) string { return fmt.Sprintf("dump_rank%d.json", r) },
		func(r int) string { return fmt.Sprintf("nccl_trace_%d", r) },
	} {
		out, err := detectRun("", "trace", writeDumps(t, name), "--json")
		var r judge.TraceReport
		if err != nil || json.Unmarshal([]byte(out), &r) != nil {
			t.Fatal(err, out)
		}
		if r.Source != "flight_recorder" ||
			!slices.Equal(r.Ranks, []falcon.Rank{1}) ||
			r.Workers[0].WaitMs != 36 ||
			r.Workers[1].WaitMs != 0 ||
			r.Workers[1].TransferMs != 12 {
			t.Errorf("%s", out)
		}
	}
}

func TestDetectFilesFail(t *testing.T) {
	dir := t.TempDir()
	mixed := writeDumps(t, func(r int) string { return fmt.Sprintf("rank%d.json", r) })
	if err := os.WriteFile(
		filepath.Join(mixed, "timeline.json"),
		[]byte(`[{"ph":"X","name":"forward","pid":0,"tid":0,"ts":1,"dur":5}]`),
		0o600,
	); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args  []string
		stdin string
		want  string
		usage bool
	}{
		"absent trace": {[]string{"trace", filepath.Join(dir, "none")}, "", "there is no file", false},
		"empty folder": {[]string{"trace", dir}, "", "has no files", false},
		"both kinds":   {[]string{"trace", mixed}, "", "give one kind", false},
		"pickle": {
			[]string{"trace", "-"},
			"\x80\x04\x95",
			"standard input: malformed input: this is a Python pickle that can't be read: malformed pickle: it breaks off",
			false,
		},
		"pickled call": {
			[]string{"trace", "-"},
			"\x80\x02cos\nsystem\n(X\x01\x00\x00\x00xtR.",
			"refused: the pickle wants to import or call something (GLOBAL at byte 2)",
			false,
		},
		"truncated": {[]string{"trace", "-"}, `[{"ph":"X"`, "breaks off", false},
		"nothing in it": {
			[]string{"trace", "-"},
			`[{"ph":"X","name":"gc","dur":1}]`,
			"no computation or communication events",
			false,
		},
		"small layout": {
			[]string{"trace", "-", "--dp", "1"},
			`[{"ph":"X","name":"forward","dur":9,"args":{"rank":7}}]`,
			"can't hold rank 7",
			false,
		},
		"profile folder": {[]string{"profile", dir}, "", "is a folder", false},
		"profile text":   {[]string{"profile", "-"}, "step,ms", "no JSON", false},
		"suspect": {
			[]string{"profile", "-", "--suspect", "1"},
			"",
			"--suspect 1 must be over 1", true,
		},
		"wait":       {[]string{"trace", "-", "--wait-over", "NaN"}, "", "--wait-over NaN", true},
		"peers":      {[]string{"profile", "-", "--min-peers", "0"}, "", "--min-peers 0", true},
		"negative":   {[]string{"trace", "-", "--tp", "-1"}, "", "can't be negative", true},
		"two traces": {[]string{"trace", "a", "b"}, "", "give one FILE", true},
	} {
		_, err := detectRun(c.stdin, c.args...)
		if err == nil ||
			errors.Is(err, errUsage) != c.usage ||
			!strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
