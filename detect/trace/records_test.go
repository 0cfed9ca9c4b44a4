package trace

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/failslow/falcon"
)

// spans is a small trace of spans: two replicas of two stages, three steps;
// replica 1's first stage computes twice as long.
func spans(named bool) string {
	var b strings.Builder
	b.WriteByte('[')
	for dp := range 2 {
		for pp := range 2 {
			for step := range 3 {
				ms := 10.0
				if dp == 1 && pp == 0 {
					ms = 20
				}
				args := fmt.Sprintf(`"step":%d`, step)
				tid := pp
				if named {
					tid = 10*pp + dp // as tools number threads: names tell, not order
				}
				fmt.Fprintf(&b,
					`{"ph":"X","name":"forward-compute","pid":%d,"tid":%d,"ts":%d,"dur":%g,"args":{%s}},`,
					dp, tid, step*100000, ms*400, args)
				fmt.Fprintf(&b,
					`{"ph":"X","name":"backward-compute","pid":%d,"tid":%d,"ts":%d,"dur":%g,"args":{%s}},`,
					dp, tid, step*100000+30000, ms*600, args)
				fmt.Fprintf(&b,
					`{"ph":"X","name":"grads-reduce-scatter","pid":%d,"tid":%d,"ts":%d,"dur":500,"args":{%s}},`,
					dp, tid, step*100000+60000, args)
			}
			if named {
				fmt.Fprintf(&b,
					`{"ph":"M","name":"thread_name","pid":%d,"tid":%d,"args":{"name":"PP rank %d, TP rank 0, compute"}},`,
					dp, 10*pp+dp, pp)
			}
		}
		if named {
			fmt.Fprintf(&b, `{"ph":"M","name":"process_name","pid":%d,"args":{"name":"DP rank [%d]"}},`,
				dp, dp)
		}
	}
	return strings.TrimSuffix(b.String(), ",") + "]"
}

func timelineOf(t *testing.T, want Shape, docs ...string) Timeline {
	t.Helper()
	var rec Records
	for i, doc := range docs {
		if err := rec.Add(fmt.Sprintf("rank%d.json", i), strings.NewReader(doc)); err != nil {
			t.Fatal(err)
		}
	}
	line, ok, err := rec.Timeline(want)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	return line
}

func TestTimelineOfSpans(t *testing.T) {
	for name, doc := range map[string]string{
		"named":        spans(true),
		"by order":     spans(false),
		"in an object": `{"displayTimeUnit":"ms","traceEvents":` + spans(true) + `,"otherData":{"a":[1,2]}}`,
	} {
		line := timelineOf(t, Shape{}, doc)
		if line.Layout != (falcon.Layout{TP: 1, DP: 2, PP: 2}) ||
			len(line.Workers) != 4 ||
			len(line.Steps) != 3 ||
			(line.Assumed == "") != (name != "by order") {
			t.Fatalf("%s: %+v", name, line)
		}
		for i, want := range []string{"dp0/pp0", "dp1/pp0", "dp0/pp1", "dp1/pp1"} {
			w := line.Workers[i]
			ms := 10.0
			if i == 1 {
				ms = 20
			}
			if w.Name != want ||
				int(w.Rank) != i ||
				w.Count != 3 ||
				w.ComputeMs[2] != ms ||
				len(w.Calls) != 3 ||
				w.Calls[0].Dimension != falcon.DimDP ||
				w.Calls[0].DurationMs != 0.5 {
				t.Errorf("%s: %+v", name, w)
			}
		}
	}
}

// Spans may come as their beginnings and ends, nested.
func TestTimelineOfBeginningsAndEnds(t *testing.T) {
	line := timelineOf(
		t,
		Shape{},
		`[{"ph":"E","pid":0,"tid":0,"ts":1},
		{"ph":"B","name":"step","pid":0,"tid":0,"ts":10},{"ph":"B","name":"forward","pid":0,"tid":0,"ts":1000,"args":{"dp_rank":0,"stage":0,"step":3}},
		{"ph":"B","name":"forward","pid":0,"tid":1,"ts":1500,"args":{"dp_rank":0,"stage":1,"step":3}},
		{"ph":"E","pid":0,"tid":0,"ts":5000},{"ph":"E","pid":0,"tid":0,"ts":6000},{"ph":"E","pid":0,"tid":1,"ts":2500}]`,
	)
	if len(line.Workers) != 2 ||
		line.Workers[0].ComputeMs[0] != 4 ||
		line.Workers[1].ComputeMs[0] != 1 {
		t.Fatalf("%+v", line)
	}
	var rec Records
	deep := "[" + strings.Repeat(`{"ph":"B","name":"forward","ts":1},`, 100) + `{}]`
	if err := rec.Add("x.json", strings.NewReader(deep)); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
}

// kineto is one rank's device trace of two steps.
func kineto(rank int, gemmUs, callUs float64) string {
	return fmt.Sprintf(
		`{"schemaVersion":1,"distributedInfo":{"backend":"nccl","rank":%d,"world_size":2},"traceEvents":[
	{"ph":"X","cat":"user_annotation","name":"ProfilerStep#4","pid":9,"tid":9,"ts":1,"dur":99},
	{"ph":"X","cat":"user_annotation","name":"ProfilerStep#5","pid":9,"tid":9,"ts":100,"dur":99},
	{"ph":"X","cat":"cpu_op","name":"aten::backward","pid":9,"tid":9,"ts":1,"dur":77},
	{"ph":"s","cat":"ac2g","name":"ac2g","id":5,"pid":9,"tid":9,"ts":1},
	{"ph":"X","cat":"kernel","name":"sm90_gemm","pid":0,"tid":7,"ts":1.5,"dur":%g,"args":{"stream":7}},
	{"ph":"X","cat":"kernel","name":"sm90_gemm","pid":0,"tid":7,"ts":100.5,"dur":%g,"args":{"stream":7}},
	{"ph":"X","cat":"gpu_user_annotation","name":"nccl:all_reduce","pid":0,"tid":20,"ts":50,"dur":%g,"args":{}},
	{"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)","pid":0,"tid":20,"ts":50,"dur":%g,
	 "args":{"Collective name":"allreduce","In msg nelems":1024,"dtype":"BFloat16","Group size":2,"Process Group Name":"0","Process Group Ranks":"[0, 1]"}}]}`,
		rank, gemmUs, gemmUs, callUs, callUs,
	)
}

func TestTimelineOfKineto(t *testing.T) {
	line := timelineOf(t, Shape{}, kineto(0, 2000, 900), kineto(1, 1000, 1900))
	if line.Layout != (falcon.Layout{TP: 1, DP: 2, PP: 1}) ||
		len(line.Workers) != 2 ||
		len(line.Steps) != 0 {
		t.Fatalf("%+v", line)
	}
	for i, w := range line.Workers {
		call := w.Calls[0]
		if w.Count != 2 ||
			w.ComputeMs[0] != 2/float64(i+1) ||
			len(w.Calls) != 1 ||
			call.Op != falcon.OpAllReduce ||
			call.Bytes != 2048 ||
			call.Size != 2 ||
			call.Dimension != falcon.DimDP {
			t.Errorf("%+v", w)
		}
	}
	if line := timelineOf(
		t,
		Shape{TP: 2},
		kineto(0, 1, 1),
		kineto(1, 1, 1),
	); line.Layout != (falcon.Layout{TP: 2, DP: 1, PP: 1}) ||
		line.Assumed != "" {
		t.Errorf("%+v", line)
	}
}

// The process groups that Megatron describes tell the layout.
func TestTimelineReadsTheLayoutOffGroups(t *testing.T) {
	l := falcon.Layout{TP: 2, DP: 2, PP: 2}
	var docs []string
	for r := range 8 {
		events := `{"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":1,"dur":9}`
		for i, g := range []struct {
			desc string
			dim  falcon.Dimension
		}{
			{"TENSOR_MODEL_PARALLEL_GROUP", falcon.DimTP},
			{"DATA_PARALLEL_GROUP_WITH_CP", falcon.DimDP},
			{"PIPELINE_MODEL_PARALLEL_GROUP", falcon.DimPP},
			{"TENSOR_AND_DATA_PARALLEL_GROUP", falcon.DimWorld},
		} {
			ranks := strings.ReplaceAll(
				fmt.Sprint(l.Peers(falcon.Rank(r), g.dim)),
				" ",
				", ",
			)
			call, op := "allreduce", "AllReduce"
			if g.dim == falcon.DimPP {
				call, op = "recv", "SendRecv"
			}
			events += fmt.Sprintf(
				`,{"ph":"X","cat":"kernel","name":"ncclDevKernel_%s","pid":0,"tid":9,"ts":%d,"dur":5,"args":{"Collective name":%q,"In msg nelems":8,"Process Group Name":"%d","Process Group Description":%q,"Process Group Ranks":%q}}`,
				op, 10+i, call, i, g.desc, ranks,
			)
		}
		docs = append(docs, fmt.Sprintf(`{"distributedInfo":{"rank":%d,"world_size":8},"traceEvents":[%s]}`,
			r, events))
	}
	line := timelineOf(t, Shape{}, docs...)
	if line.Layout != l || line.Assumed != "" || len(line.Workers) != 8 {
		t.Fatalf("%+v", line)
	}
	for _, w := range line.Workers {
		if len(w.Calls) != 3 ||
			w.Calls[0].Dimension != falcon.DimTP ||
			w.Calls[1].Dimension != falcon.DimDP ||
			w.Calls[0].Comm == w.Calls[1].Comm ||
			w.Calls[2].Dimension != "" {
			t.Errorf("%+v", w)
		}
	}
}

func packed(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text) // a buffer takes all
	_ = w.Close()
	return b.String()
}

func TestRecordsUnpack(t *testing.T) {
	line := timelineOf(t, Shape{}, packed(spans(true)))
	if len(line.Workers) != 4 {
		t.Errorf("%+v", line)
	}
}

func dump(entries string) string {
	return `{"version":"2.10","pg_config":{"0":{"name":"0","desc":"default_pg","ranks":"[0, 1]"},"1":[0]},"pg_status":{},"entries":[` + entries + `]}`
}

const oneEntry = `{"record_id":7,"pg_id":0,"process_group":["0","default_pg"],"collective_seq_id":3,"p2p_seq_id":0,"op_id":3,
	"profiling_name":"nccl:all_reduce","time_created_ns":1724779239936775119,"duration_ms":1.5,"input_sizes":[[3,4],[2]],"input_dtypes":["Float"],
	"output_sizes":[[3,4]],"state":"completed","time_discovered_started_ns":1724779239936775120,"time_discovered_completed_ns":null,"retired":true,"timeout_ms":600000,"is_p2p":false}`

func TestDumpsRead(t *testing.T) {
	var rec Records
	for _, name := range []string{"nccl_trace_1", "dump_rank0.json"} {
		if err := rec.Add(name, strings.NewReader(dump(oneEntry))); err != nil {
			t.Fatal(err)
		}
	}
	d := rec.Dumps()
	if len(d) != 2 ||
		d[0].Rank != 0 ||
		d[1].Rank != 1 ||
		len(d[0].Groups["0"].Ranks) != 2 {
		t.Fatalf("%+v", d)
	}
	e := d[0].Entries[0]
	if e.Group != "0" ||
		e.Seq != 3 ||
		e.Op != falcon.OpAllReduce ||
		e.State != EntryCompleted ||
		e.DurationMs != 1.5 ||
		e.Elements != 14 ||
		e.EndedNs != 0 ||
		e.PointToPnt {
		t.Errorf("%+v", e)
	}
}

func TestRecordsRefuse(t *testing.T) {
	for in, want := range map[string]string{
		"":                       "empty",
		"[":                      "breaks off",
		spans(true)[:200]:        "breaks off",
		packed(spans(true))[:80]: "breaks off",
		"\x1f\x8bzzzzzzzzzz":     "gzip",
		"\x80\x02}q\x00":         "pickle",
		"step,ms\n1,2\n":         "no JSON",
		`"x"`:                    "neither a list of events",
		`{}`:                     "neither traceEvents",
		`{"traceEvents":{}}`:     "traceEvents is no list",
		`[1]`:                    "can't be a number",
		`[] []`:                  "more follows",
		`[{"ph":"X","name":"forward","dur":1e999}]`:                                                "out of range",
		`[{"ph":"X","name":"forward","dur":NaN}]`:                                                  "no JSON",
		`[{"ph":"X","name":"forward","pid":1,"dur":5,"args":{"step":` + strings.Repeat("[", 20000): "",
		dump(`{"record_id":1,"profiling_name":"x"}`):                                               "no collective_seq_id",
		dump(strings.Replace(
			oneEntry,
			`"completed"`,
			`"dancing\u001b"`,
			1,
		)): `state "dancing?"`,
		dump(strings.Replace(
			oneEntry,
			`1.5`,
			`1e999`,
			1,
		)): "can't be a number",
	} {
		var rec Records
		err := rec.Add("rank0.json", strings.NewReader(in))
		if !errors.Is(err, ErrMalformed) ||
			!strings.Contains(err.Error(), want) ||
			strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%.80q: %v", in, err)
		}
	}
	var rec Records
	if err := rec.Add("dump.json", strings.NewReader(dump(oneEntry))); !errors.Is(err, ErrMalformed) ||
		!strings.Contains(err.Error(), "the dump's rank is unknown") {
		t.Error(err)
	}
	_ = rec.Add("rank3", strings.NewReader(dump(oneEntry)))
	if err := rec.Add("other_rank3.json", strings.NewReader(dump(oneEntry))); !errors.Is(err, ErrMalformed) ||
		!strings.Contains(err.Error(), "rank 3 has a dump already") {
		t.Error(err)
	}
}

func TestRecordsAreBounded(t *testing.T) {
	var rec Records
	if err := rec.Add(
		"x.json",
		io.MultiReader(strings.NewReader(`[{"name":"`), endless{}),
	); !errors.Is(err, ErrTooLarge) {
		t.Errorf("endless text: %v", err)
	}
	far := `[{"ph":"X","name":"forward","pid":1,"tid":1,"dur":5,"args":{"dp_rank":1000000,"stage":1000000}}]`
	if err := rec.Add("y.json", strings.NewReader(far)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := rec.Timeline(Shape{}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a layout of 1e12 ranks: %v", err)
	}
}

func FuzzRecords(f *testing.F) {
	f.Add([]byte(spans(true)), []byte(kineto(0, 5, 5)), 0, 0)
	f.Add([]byte(dump(oneEntry)), []byte(dump(oneEntry)), 1, 2)
	f.Add([]byte(packed(spans(false))), []byte(`[]`), 0, 0)
	f.Add(
		[]byte(`[{"ph":"B","name":"forward","pid":0,"tid":0,"ts":1},{"ph":"E","pid":0,"tid":0,"ts":9}]`),
		[]byte(`[]`),
		0,
		0,
	)
	f.Fuzz(func(t *testing.T, first, second []byte, tp, pp int) {
		var rec Records
		checkSentence(t, rec.Add("rank0.json", bytes.NewReader(first)))
		checkSentence(t, rec.Add("rank1.json", bytes.NewReader(second)))
		line, ok, err := rec.Timeline(Shape{TP: max(tp, 0), PP: max(pp, 0)})
		checkSentence(t, err)
		if ok &&
			err == nil &&
			(len(line.Workers) == 0 || line.Layout.World() > MaxWorld) {
			t.Fatalf("%+v", line)
		}
	})
}
