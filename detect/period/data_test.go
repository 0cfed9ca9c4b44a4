package period

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

func dataDir(t testing.TB) string {
	dir := os.Getenv("FALCON_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "data")
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no records at %s; set FALCON_DATA to their folder", dir)
	}
	return dir
}

func readCalls(t testing.TB, name string) []Call {
	file, err := os.Open(filepath.Join(dataDir(t), "calls", name))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	col := make(map[string]int)
	for i, h := range rows[0] {
		col[h] = i
	}
	names := make(map[string]int)
	intern := func(s string) int {
		if _, ok := names[s]; !ok {
			names[s] = len(names)
		}
		return names[s]
	}
	field := func(row []string, name string) string {
		if i, ok := col[name]; ok {
			return row[i]
		}
		return ""
	}
	var out []Call
	for _, row := range rows[1:] {
		us, err := strconv.ParseFloat(field(row, "t_us"), 64)
		if err != nil {
			t.Fatal(err)
		}
		bytes, _ := strconv.ParseInt(field(row, "bytes"), 10, 64)
		out = append(out, Call{
			Op:     uint32(intern("op" + field(row, "op"))),
			Comm:   uint64(intern("g" + field(row, "group"))),
			Bytes:  bytes,
			TimeNs: int64(us * 1e3),
		})
	}
	return out
}

func TestInferRecords(t *testing.T) {
	for name, want := range map[string]int{
		"hta_ddp404.csv": 404, "hta_dlrm16.csv": 17, "hta_nccl_cfg.csv": 7,
		"tracelens_resnet_mi300.csv": 4, "bytedance_AR_dp0_pp0_tp0.csv": 69,
		"bytedance_AR_dp1_pp1_tp0.csv": 132,
	} {
		t.Run(name, func(t *testing.T) {
			calls := readCalls(t, name)
			r, err := Infer(calls)
			if err != nil {
				t.Fatal(err)
			}
			if r.Period != want {
				t.Errorf("period %d, want %d (agreement %.3f)", r.Period, want, r.Agreement)
			}
			t.Logf("%d calls, period %d, agreement %.3f, by time %v, anchor %+v, iterations %.1f",
				len(calls), r.Period, r.Agreement, r.ByTime, r.Anchor, r.IterationsMs(calls))
		})
	}
}
