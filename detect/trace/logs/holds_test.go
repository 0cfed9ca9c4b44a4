package logs

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadsCounters(t *testing.T) {
	for file, want := range map[string]Counter{
		"dcgm.prom": {
			"lke529760-766837-0a634ab30000 GPU 0", "DCGM_FI_DEV_SM_CLOCK", 1, 2310, 2310, 2310,
			2310,
		},
		"dmon.txt": {"GPU 0", "DRAMA", 5, 0, 0, 0, 0},
	} {
		b, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		s, err := ReadCounters(bytes.NewReader(b))
		found := false
		for _, c := range s.Counters {
			found = found || c == want
		}
		if err != nil ||
			len(s.Counters) != 3 ||
			s.Devices != 1 ||
			len(s.Remarks) != 0 ||
			!found {
			t.Errorf("%s: %+v, %v", file, s, err)
		}
	}
}

// A throttled device and one with an Xid are named.
func TestRemarksOnDevices(t *testing.T) {
	var b strings.Builder
	for gpu := range 4 {
		mhz, xid := 1980, 0
		if gpu == 3 {
			mhz, xid = 1100, 79
		}
		fmt.Fprintf(&b,
			"DCGM_FI_DEV_SM_CLOCK{gpu=\"%d\",Hostname=\"n1\"} %d\nDCGM_FI_DEV_XID_ERRORS{gpu=\"%d\",Hostname=\"n1\",err_msg=\"a \\\"b\\\" } c\"} %d\n",
			gpu, mhz, gpu, xid)
	}
	s, err := ReadCounters(strings.NewReader(b.String()))
	got := strings.Join(s.Remarks, "; ")
	if err != nil ||
		s.Devices != 4 ||
		got != "n1 GPU 3: Xid 79 was reported (the counter keeps the last one); n1 GPU 3: mean SM clock 1100 MHz, 0.56 x the median of 4 GPUs" {
		t.Errorf("%s, %v", got, err)
	}
}

func TestReadsCollectives(t *testing.T) {
	var b strings.Builder
	for rank := range 4 {
		for sn := range 5 {
			us := 9000
			if rank == 2 {
				us = 3000
			}
			fmt.Fprintf(&b,
				`{"header":{"id":"0x7f","rank":%d,"n_ranks":4},"coll_perf":{"coll":"AllReduce","coll_sn":%d,"coll_msg_size_bytes":1024,"coll_exec_time_us":%d,"coll_busbw_gbs":40}}`+"\n",
				rank, sn, us)
		}
	}
	s, err := ReadCollectives(strings.NewReader(b.String()))
	if err != nil || s.Calls != 20 || len(s.Kinds) != 1 {
		t.Fatalf("%+v, %v", s, err)
	}
	k := s.Kinds[0]
	if k.Comm != "0x7f" ||
		k.Op != "AllReduce" ||
		k.Size != "1024" ||
		k.Ranks != 4 ||
		k.Us != 9000 ||
		k.GBs != 40 ||
		k.By[0] != (RankTime{"2", 3000}) ||
		len(k.By) != 4 {
		t.Errorf("%+v", k)
	}
	for file, want := range map[string]string{
		"inspector.jsonl": "AllReduce",
		"inspector.prom":  "ReduceScatter",
	} {
		in, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		s, err := ReadCollectives(bytes.NewReader(in))
		if err != nil ||
			s.Kinds[0].Op != want ||
			s.Kinds[0].Us == 0 ||
			s.Kinds[0].GBs == 0 {
			t.Errorf("%s: %+v, %v", file, s, err)
		}
	}
	for _, in := range []string{"", "x 5\n", "{}\n"} {
		_, err := ReadCollectives(strings.NewReader(in))
		if err == nil || !strings.Contains(err.Error(), "the file has no calls") {
			t.Errorf("%q: %v", in, err)
		}
		if _, err := ReadCounters(strings.NewReader(in)); err == nil ||
			!strings.Contains(err.Error(), "the file has no DCGM counters") {
			t.Errorf("%q: %v", in, err)
		}
	}
}

// seeds adds the real lines of the files that match.
func seeds(f *testing.F, pattern string) {
	files, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		if filepath.Base(file) == "fuzz" {
			continue
		}
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
}

func FuzzText(f *testing.F) {
	seeds(f, "*.log")
	f.Fuzz(func(t *testing.T, in []byte) { fuzzFrame(t, readText, in) })
}

func FuzzJSON(f *testing.F) {
	seeds(f, "*.jsonl")
	f.Add([]byte(wandbHistory()))
	f.Fuzz(func(t *testing.T, in []byte) { fuzzFrame(t, readObjects, in) })
}

func FuzzMLLog(f *testing.F) {
	seeds(f, "mlperf*.log")
	f.Fuzz(func(t *testing.T, in []byte) { fuzzFrame(t, readMLLog, in) })
}

func fuzzFrame(t *testing.T, decode func(io.Reader) (*frame, error), in []byte) {
	fr, err := decode(bytes.NewReader(in))
	checkSentence(t, err)
	if err != nil {
		return
	}
	for _, s := range fr.cols {
		if len(s.values) > len(fr.lines) {
			t.Fatalf("%d numbers in %d rows", len(s.values), len(fr.lines))
		}
	}
	_, err = fr.series(Want{Items: 100})
	checkSentence(t, err)
}

func FuzzCounters(f *testing.F) {
	seeds(f, "d*.prom")
	seeds(f, "dmon.txt")
	f.Fuzz(func(t *testing.T, in []byte) {
		s, err := ReadCounters(bytes.NewReader(in))
		checkSentence(t, err)
		for _, c := range s.Counters {
			checkClean(t, c.Device+c.Name)
			if c.Mean-c.Mean != 0 || c.Min > c.Max {
				t.Fatalf("%+v", c)
			}
		}
		checkClean(t, strings.Join(s.Remarks, ""))
	})
}

func FuzzCollectives(f *testing.F) {
	seeds(f, "inspector.*")
	f.Fuzz(func(t *testing.T, in []byte) {
		s, err := ReadCollectives(bytes.NewReader(in))
		checkSentence(t, err)
		for _, k := range s.Kinds {
			checkClean(t, k.Comm+k.Op+k.Size)
			if len(k.By) == 0 || k.Calls == 0 {
				t.Fatalf("%+v", k)
			}
		}
	})
}

func FuzzSniff(f *testing.F) {
	seeds(f, "*")
	f.Fuzz(func(t *testing.T, in []byte) {
		g := Sniff(in)
		checkClean(t, g.Format+g.Why)
		if err := g.Err(); (err == nil) == (g.Kind == Nothing) {
			t.Fatalf("%+v, %v", g, err)
		}
	})
}
