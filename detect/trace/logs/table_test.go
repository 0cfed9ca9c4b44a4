package logs

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon/detect/trace"
	"github.com/failslow/falcon/detect/trace/column"
)

func read(in string, want Want) (Series, error) {
	return Read(strings.NewReader(in), want)
}

func packed(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text) // writes to a buffer do not fail
	_ = w.Close()
	return b.String()
}

// Tables as programs, spreadsheets and services write them.
func TestReadsTables(t *testing.T) {
	for name, c := range map[string]struct {
		in     string
		want   Want
		ms     []float64
		column string
		unit   string
		steps  []int64
	}{
		"duration": {
			"iter,ms,flag\n1,34,\n2,35,warm\n",
			Want{},
			[]float64{34, 35},
			"ms",
			"ms",
			[]int64{1, 2},
		},
		"loss behind it": {
			"timestamp,step,iter_time_ms,loss\n1.5,1,20,3.1\n1.6,2,21,3.0\n",
			Want{},
			[]float64{20, 21},
			"iter_time_ms",
			"ms",
			[]int64{1, 2},
		},
		"seconds": {
			"step,step_time_s\n1,0.5\n2,0.6\n",
			Want{},
			[]float64{500, 600},
			"step_time_s",
			"s",
			[]int64{1, 2},
		},
		"named": {
			"step,a,b\n1,2,3\n4,5,6\n",
			Want{Column: "A", Unit: "ms"},
			[]float64{2, 5},
			"a",
			"ms",
			[]int64{1, 4},
		},
		"no header": {
			"10\n20\n\n30\n",
			Want{Column: "column 1", Unit: "ms"},
			[]float64{10, 20, 30},
			"column 1",
			"ms",
			nil,
		},
		"tabs": {
			"step\tstep_ms\tnote\n1\t2.5\t\n2\t2.6\t\n",
			Want{},
			[]float64{2.5, 2.6},
			"step_ms",
			"ms",
			[]int64{1, 2},
		},
		"quoted":           {"\"a, b\",ms\n\"x, y\",7\n", Want{}, []float64{7}, "ms", "ms", nil},
		"byte order, CRLF": {"\ufeffms\r\n1e2\r\n", Want{}, []float64{100}, "ms", "ms", nil},
		"decimal commas": {
			"step;iter_time_ms;loss\n1;235,4;2,1\n2;1.236,5;2,0\n",
			Want{},
			[]float64{235.4, 1236.5},
			"iter_time_ms",
			"ms",
			[]int64{1, 2},
		},
		"thousands": {
			"step,iter_time_ms\n1,\"1,235.4\"\n2,\"1,236\"\n",
			Want{},
			[]float64{1235.4, 1236},
			"iter_time_ms",
			"ms",
			[]int64{1, 2},
		},
		"units in cells": {
			"step,step_time\n1,0.5 s\n2,0.6 s\n",
			Want{},
			[]float64{500, 600},
			"step_time",
			"s",
			[]int64{1, 2},
		},
		"escapes": {
			"step,ms\n\x1b[32m1,5\x1b[0m\n2,6\n",
			Want{},
			[]float64{5, 6},
			"ms",
			"ms",
			[]int64{1, 2},
		},
		"packed": {
			packed("step,ms\n1,5\n2,6\n"),
			Want{},
			[]float64{5, 6},
			"ms",
			"ms",
			[]int64{1, 2},
		},
		"comment": {
			"# made by a tool\nstep,ms\n1,5\n",
			Want{},
			[]float64{5},
			"ms",
			"ms",
			[]int64{1},
		},
		"header again": {
			"step,ms\n1,5\n2,6\nstep,ms\n3,7\n",
			Want{},
			[]float64{5, 6, 7},
			"ms",
			"ms",
			[]int64{1, 2, 3},
		},
		"rate": {
			"step,it/s\n1,2\n2,4\n",
			Want{},
			[]float64{500, 250},
			"it/s",
			"it/s",
			[]int64{1, 2},
		},
		"tokens": {
			"step,tokens_per_sec\n1,4096\n2,8192\n",
			Want{Items: 8192},
			[]float64{2000, 1000},
			"tokens_per_sec",
			"/s",
			[]int64{1, 2},
		},
		"wandb": {
			"Step,\"sun-7 - train/step_time_s\",\"sun-7 - train/step_time_s__MIN\",\"sun-7 - train/step_time_s__MAX\"\n" +
				"0,0.5,0.5,0.5\n1,,,\n2,0.6,0.6,0.6\n",
			Want{},
			[]float64{500, 600},
			"sun-7 - train/step_time_s",
			"s",
			[]int64{0, 2},
		},
		"holes and NaN": {
			"step,ms\n1,5\n2,\n3,NaN\n4,6\n",
			Want{},
			[]float64{5, 6},
			"ms",
			"ms",
			[]int64{1, 4},
		},
		"raw":            {"x\n0.5\n-0.3\n", Want{Raw: true}, []float64{0.5, -0.3}, "x", "", nil},
		"trailing comma": {"step,ms,\n1,5,\n2,6\n", Want{}, []float64{5, 6}, "ms", "ms", []int64{1, 2}},
		"json": {
			`{"step":1,"perf":{"step_time_ms":5}}` + "\n" +
				`{"step":2,"perf":{"step_time_ms":6},"loss":NaN}` + "\n",
			Want{},
			[]float64{5, 6},
			"perf.step_time_ms",
			"ms",
			[]int64{1, 2},
		},
		"json list": {
			"[{\"step\":1,\"ms\":5},\n {\"step\":2,\"ms\":6}]\n",
			Want{},
			[]float64{5, 6},
			"ms",
			"ms",
			[]int64{1, 2},
		},
		"wandb's history": {
			wandbHistory(),
			Want{},
			[]float64{500, 500, 500, 500},
			"train/step_time",
			"s",
			[]int64{0, 1, 2, 3},
		},
		"duration by unit": {
			"step,ms,loss\n1,5,2\n2,6,2\n",
			Want{Unit: "us"},
			[]float64{0.005, 0.006},
			"ms",
			"us",
			[]int64{1, 2},
		},
	} {
		s, err := read(c.in, c.want)
		if err != nil ||
			!near(s.Ms, c.ms) ||
			s.Column != c.column ||
			s.Unit != c.unit ||
			!slices.Equal(s.Steps, c.steps) ||
			s.Why == "" {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}

// wandbHistory has a time without a unit, which the clock column determines.
func wandbHistory() string {
	var b strings.Builder
	for i := range 4 {
		fmt.Fprintf(&b, `{"_step":%d,"_runtime":%g,"_timestamp":%g,"train/step_time":0.5,"loss":2.5}`+"\n",
			i, 10+0.52*float64(i), 1.7e9+0.52*float64(i))
	}
	return b.String()
}

// growing returns a table of n rows from a formula.
func growing(header string, n int, row func(i int) string) string {
	var b strings.Builder
	b.WriteString(header + "\n")
	for i := range n {
		b.WriteString(row(i) + "\n")
	}
	return b.String()
}

// Ambiguous or misleading files are refused with a sentence that has the remedy.
func TestRefusesWhatCouldMislead(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want Want
		text string
	}{
		"empty": {"", Want{}, "the file is empty"},
		"header only": {
			"step,ms\n",
			Want{},
			"the CSV has no numbers; give a log with such times, as in: step,iter_time_ms",
		},
		"no such column": {"a,b\n1,2\n", Want{Column: "ms"}, `no column "ms"; the CSV has a and b`},
		"loss": {
			"step,loss\n1,2.5\n2,2.4\n",
			Want{},
			"no column of the CSV is named as an iteration time; it has step and loss",
		},
		"loss called time": {
			"step,loss\n1,2.5\n2,2.4\n",
			Want{Column: "loss"},
			"the name of column loss does not identify a time",
		},
		"two times": {
			"step,iter_time_ms,step_time_ms\n1,2,3\n",
			Want{},
			"the CSV has iter_time_ms and step_time_ms, and each may be the time; choose one with --column",
		},
		"two runs of wandb": {
			"Step,\"a - train/step_time_s\",\"b - train/step_time_s\"\n1,2,3\n",
			Want{},
			"each may be the time",
		},
		"two runs, short name": {
			"Step,\"a - t_s\",\"b - t_s\"\n1,2,3\n",
			Want{Column: "t_s"},
			`"t_s" can be a - t_s and b - t_s`,
		},
		"no unit": {
			"step,step_time\n1,0.5\n2,0.6\n",
			Want{},
			"the unit of column step_time is unknown; set --unit ms or --unit s",
		},
		"unnamed numbers": {
			"10\n20\n30\n",
			Want{},
			"the name column 1 does not identify a time; if it is one, use --column 'column 1' --unit ms (or s)",
		},
		"x": {"x\n10\n20\n", Want{}, "the name x does not identify a time"},
		"word": {
			"step,ms\n1,2\n2,fast\n",
			Want{},
			`line 3: column ms holds "fast", which is not a number`,
		},
		"infinite": {"ms\n1\n1e999\n", Want{}, `line 3: column ms holds "1e999"`},
		"negative": {
			"ms\n1\n-1\n",
			Want{},
			"line 3: column ms holds -1, which is not an iteration time",
		},
		"zeros": {"ms\n1\n0\n0\n0\n", Want{}, "column ms is 0 in 3 of 4 rows"},
		"short row": {
			"a,b,ms\n1,2,3\n1\n4,5,6\n",
			Want{},
			"line 3: 1 columns, but the header has 3",
		},
		"quotes": {"a,ms\n1,2\n\"1,2\n", Want{}, "line 3: a quote is not closed"},
		"two readings": {
			"step,iter_time_ms\n1,\"1,235\"\n2,\"1,236\"\n",
			Want{},
			"the commas in column iter_time_ms may separate thousands or decimals",
		},
		"mixed units":        {"step,step_time\n1,0.5 s\n2,600 ms\n", Want{}, "mixes units"},
		"control characters": {"ms\n1\n\x1b]0;evil\x07x\x9b2J\n", Want{}, `column ms holds "x`},
		"control name":       {"a\x1b[2J\x07,b\nq,1\nq,2\n", Want{Column: "a"}, `column a holds "q"`},
		"unit against clock": {
			growing("timestamp,step,iter_time_ms", 30, func(i int) string {
				return fmt.Sprintf("%g,%d,0.71", 1.7e9+0.72*float64(i), i)
			}),
			Want{},
			"column iter_time_ms is in milliseconds by its name, but an iteration takes about 720 ms by the clock column",
		},
		"samples for steps": {
			growing("step,time_ms,value", 30, func(i int) string {
				return fmt.Sprintf("%d,%d,466.%d", 64*i, 1760032086237+466*i, i)
			}),
			Want{},
			"its step does not increase by 1, so it may count samples",
		},
		"clock and no step": {growing("timestamp,loss", 30, func(i int) string {
			return fmt.Sprintf("%g,2", 1.7e9+float64(i))
		}), Want{}, "if each row is one iteration, use --column timestamp"},
		"coarse clock": {growing("timestamp,step,loss", 30, func(i int) string {
			return fmt.Sprintf("%d,%d,2", 1700000000+i/2, i)
		}), Want{}, "too coarse for rows"},
		"tokens only": {
			"step,tokens_per_sec\n1,4096\n2,8192\n",
			Want{},
			"set --tokens to the number per iteration",
		},
		"column of tokens": {
			"step,tokens_per_sec\n1,4096\n",
			Want{Column: "tokens_per_sec"},
			"set --tokens",
		},
		"two runs": {
			"step,ms\n1,5\n2,5\n3,5\n1,9\n2,9\n",
			Want{},
			"the file has 2 runs (1: iterations 1 to 3 from line 2; 2: iterations 1 to 2 from line 5); choose one with --run 1 to 2",
		},
		"no third run": {"step,ms\n1,5\n2,5\n1,9\n", Want{Run: 3}, "--run 3: the file has 2 runs"},
		"zstd": {
			"\x28\xb5\x2f\xfd....",
			Want{},
			"compressed with zstd; decompress it first: zstd -d FILE",
		},
		"UTF-16": {"\xff\xfes\x00t\x00", Want{}, "iconv -f UTF-16"},
		"broken gzip": {
			packed("step,ms\n1,5\n" + strings.Repeat("2,6\n", 9999))[:60],
			Want{},
			"the gzip data is truncated",
		},
		"gzip header":    {"\x1f\x8bzzzzzzzzzz", Want{}, "the gzip header is broken"},
		"parquet":        {"PAR1....", Want{}, "Parquet table; convert it to CSV"},
		"sqlite":         {"SQLite format 3\x00", Want{}, "SQLite database"},
		"wandb's binary": {":W&B\xe1\xfe", Want{}, "export the run's history"},
		"binary":         {"\x7fELF\x00\x00", Want{}, "a binary file of an unknown format"},
		"pickle":         {"\x80\x02}q\x00.", Want{}, "falcon detect trace FILE"},
		"trace":          {`{"traceEvents":[{"ph":"X","ts":1}]}`, Want{}, "falcon detect trace FILE"},
		"trainer state": {
			"{\n \"best_metric\": null,\n \"log_history\": [\n",
			Want{},
			"trainer_state.json",
		},
		"broken json": {
			"{\"step\":1,\"ms\":5}\n{\"step\":2,,}\n{\"step\":3,\"ms\":7}\n",
			Want{},
			"line 2: the JSON is invalid",
		},
		"prose": {
			"training went well, thank you\nand it was, to be fair, quick\n",
			Want{},
			"no line has an iteration time",
		},
		"half a log": {
			" iteration 10/ 100 | elapsed time per iteration (ms): soon |\n",
			Want{},
			`holds "soon"`,
		},
		"newest first": {
			"step,ms\n5,1\n4,1\n3,1\n2,1\n",
			Want{},
			"the iteration numbers decrease; sort the file",
		},
		"container's log": {
			`{"log":"iteration 1\n","stream":"stdout","time":"2024-05-01T10:00:00Z"}` + "\n",
			Want{},
			"extract the program's output first: jq -j .log FILE",
		},
		"both units": {
			"iteration 1/ 9 | elapsed time per iteration (ms): 5000 |\niteration 2/ 9 | elapsed time per iteration (s): 5.0 |\n",
			Want{},
			"elapsed time per iteration (ms) and elapsed time per iteration (s), and each may be the time",
		},
		"two bars": {
			" 1/10 [00:05<00:45, 5.00s/it]\n 1/7 [00:05<00:45, 2.00s/it]\n",
			Want{},
			"each may be the time",
		},
		"only a ratio": {"step,step_time_ratio\n1,1.5\n2,1.6\n", Want{}, "no column of the CSV is named"},
		"two of a name": {
			"step,ms,ms\n1,5,6\n2,5,6\n",
			Want{},
			"ms and ms (column 3), and each may be the time",
		},
		"time of day": {"step,time\n1,00:01:23\n2,00:01:24\n", Want{}, `column time holds "00:01:23"`},
	} {
		s, err := read(c.in, c.want)
		if !errors.Is(err, trace.ErrMalformed) && !errors.Is(err, ErrUnclear) ||
			!strings.Contains(err.Error(), c.text) ||
			strings.ContainsFunc(err.Error(), isControl) {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}

// Ignored rows and assumptions are noted.
func TestSaysWhatToKnow(t *testing.T) {
	epoch := func(i int) float64 { return 1.7e9 + 5*float64(i) }
	for name, c := range map[string]struct {
		in    string
		want  Want
		ms    []float64
		steps []int64
		note  string
	}{
		"half a line": {
			"step,ms\n1,235\n2,236\n3,23",
			Want{},
			[]float64{235, 236},
			[]int64{1, 2},
			"the last line is incomplete",
		},
		"half a log line": {
			"iteration 1/ 9 | elapsed time per iteration (s): 105.2 |\niteration 2/ 9 | elapsed time per iteration (s): 10",
			Want{},
			[]float64{105200},
			[]int64{1},
			"the last line is incomplete",
		},
		"half an object": {
			"{\"step\":1,\"ms\":5}\n{\"step\":2,\"ms\":6",
			Want{},
			[]float64{5},
			[]int64{1},
			"the last object is incomplete",
		},
		"holes": {
			"step,ms\n1,5\n2,\n3,6\n",
			Want{},
			[]float64{5, 6},
			[]int64{1, 3},
			"1 of 3 rows have no number in this column",
		},
		"missing": {
			"step,ms\n1,5\n2,5\n3,6\n6,6\n",
			Want{},
			[]float64{5, 5, 6, 6},
			[]int64{1, 2, 3, 6},
			"2 iterations are missing, the first is 4",
		},
		"interval": {
			"iteration 10/ 100 | elapsed time per iteration (ms): 5 |\niteration 20/ 100 | elapsed time per iteration (ms): 6 |\n",
			Want{},
			[]float64{5, 6},
			[]int64{10, 20},
			"one in 10 iterations is logged",
		},
		"resumed": {
			"step,ms\n1,5\n2,5\n3,5\n2,6\n3,6\n4,6\n",
			Want{},
			[]float64{5, 5, 5, 6, 6, 6},
			[]int64{1, 2, 3, 2, 3, 4},
			"resumed at line 5: iteration 2 follows 3",
		},
		"second run": {
			"step,ms\n1,5\n2,5\n1,9\n2,9\n",
			Want{Run: 2},
			[]float64{9, 9},
			[]int64{1, 2},
			"",
		},
		"ranks in a column": {
			"step,rank,ms\n1,0,5\n1,1,9\n2,0,5\n2,1,9\n",
			Want{},
			[]float64{9, 9},
			[]int64{1, 2},
			"2 ranks write to the file: the slowest line of each iteration counts",
		},
		"rank prefixes": {
			"[default0]: iteration 1/ 9 | elapsed time per iteration (ms): 5 |\n[default7]: iteration 1/ 9 | elapsed time per iteration (ms): 6 |\n" +
				"[default7]: iteration 2/ 9 | elapsed time per iteration (ms): 7 |\n[default0]: iteration 2/ 9 | elapsed time per iteration (ms): 5 |\n",
			Want{},
			[]float64{6, 7},
			[]int64{1, 2},
			"2 ranks write",
		},
		"srun's prefixes": {
			" 7: iteration 1/ 9 | elapsed time per iteration (ms): 5 |\n13: iteration 1/ 9 | elapsed time per iteration (ms): 6 |\n" +
				"13: iteration 2/ 9 | elapsed time per iteration (ms): 7 |\n 7: iteration 2/ 9 | elapsed time per iteration (ms): 5 |\n",
			Want{},
			[]float64{6, 7},
			[]int64{1, 2},
			"2 ranks write",
		},
		"ranks without a prefix": {
			"step,ms\n1,5\n1,6\n2,5\n3,5\n2,8\n3,7\n",
			Want{},
			[]float64{6, 8, 7},
			[]int64{1, 2, 3},
			"an iteration has up to 2 lines",
		},
		"numbers of grep": {
			"1: iteration 1/ 9 | elapsed time per iteration (ms): 5 |\n7: iteration 2/ 9 | elapsed time per iteration (ms): 6 |\n9: iteration 3/ 9 | elapsed time per iteration (ms): 7 |\n",
			Want{},
			[]float64{5, 6, 7},
			[]int64{1, 2, 3},
			"",
		},
		"clock": {growing("timestamp,step,loss", 4, func(i int) string {
			return fmt.Sprintf("%.2f,%d,2", 1.7e9+0.25*float64(i), i)
		}), Want{}, []float64{250, 250, 250}, []int64{1, 2, 3}, "include checkpoints and evaluations"},
		"dates": {growing("datetime,step", 3, func(i int) string {
			return fmt.Sprintf("2024-05-01 10:00:0%d.500,%d", 2*i, i)
		}), Want{}, []float64{2000, 2000}, []int64{1, 2}, "checkpoints"},
		"clock of rows": {growing("timestamp,loss", 3, func(i int) string {
			return fmt.Sprintf("%.1f,2", epoch(i)+0.5)
		}), Want{Column: "timestamp"}, []float64{5000, 5000}, nil, "each row counts as one"},
		"short": {
			"step,step_time_ms\n1,0.71\n2,0.72\n",
			Want{},
			[]float64{0.71, 0.72},
			[]int64{1, 2},
			"is unusual; if the unit is wrong, set --unit",
		},
		"epochs": {
			"epoch,step,loss,step_time_seconds\n0,0,2.4,1.23\n0,1,2.1,1.21\n1,0,1.9,1.22\n1,1,1.8,1.20\n",
			Want{},
			[]float64{1230, 1210, 1220, 1200},
			[]int64{0, 1, 2, 3},
			"restart with each epoch",
		},
		"no number in a row": {
			"step,ms\n1,5\n,6\n3,7\n",
			Want{},
			[]float64{5, 6, 7},
			nil,
			"step does not number every row",
		},
		"a bar of loading": {"Loading: 1/2 [00:05<00:45, 5.00s/it]\n" + growing("", 9, func(i int) string {
			return fmt.Sprintf("| %d/90 [00:05<00:45, 2.00s/it]", i+1)
		}), Want{}, slices.Repeat([]float64{2000}, 9), nil, "1 shorter bars are left out"},
		"log with commas": {"launch, 8, ranks\nready, 8\n" + growing("", 9, func(i int) string {
			return fmt.Sprintf("iteration %d/ 90 | elapsed time per iteration (ms): 50 |", i)
		}), Want{}, slices.Repeat([]float64{50}, 9), nil, ""},
		"mean of Primus": {
			"iteration 1/ 9 | elapsed time per iteration (ms): 5361.6/5300.2 |\n",
			Want{},
			[]float64{5361.6},
			[]int64{1},
			"",
		},
		"same rank on two nodes": {
			"[default7]: iteration 1/ 9 | elapsed time per iteration (ms): 5 |\n[default7]: iteration 1/ 9 | elapsed time per iteration (ms): 6 |\n" +
				"[default7]: iteration 2/ 9 | elapsed time per iteration (ms): 5 |\n[default7]: iteration 3/ 9 | elapsed time per iteration (ms): 5 |\n[default7]: iteration 2/ 9 | elapsed time per iteration (ms): 7 |\n",
			Want{},
			[]float64{6, 7, 5},
			[]int64{1, 2, 3},
			"an iteration has up to 2 lines",
		},
		"since the start, resumed": {growing("step,time_ms", 60, func(i int) string {
			if i < 30 {
				return fmt.Sprintf("%d,%d", i, 1000+200*i)
			}
			return fmt.Sprintf("%d,%d", i-5, 1000+200*(i-30))
		}), Want{}, slices.Repeat([]float64{200}, 58), nil, "resumed at line 32"},
		"Excel": {
			"sep=;\nstep;ms\n1;5,5\n2;6,5\n",
			Want{},
			[]float64{5.5, 6.5},
			[]int64{1, 2},
			"",
		},
		"cumulative": {growing("step,train_time_ms", 25, func(i int) string {
			return fmt.Sprintf("%d,%d", i+1, 200*(i+1))
		}), Want{}, slices.Repeat([]float64{200}, 24), nil, "checkpoints"},
		"mean": {
			"step,avg_step_time_ms\n1,5\n2,6\n",
			Want{},
			[]float64{5, 6},
			[]int64{1, 2},
			"changes appear late",
		},
		"part": {
			"step,forward_ms\n1,5\n2,6\n",
			Want{Column: "forward_ms"},
			[]float64{5, 6},
			[]int64{1, 2},
			"not the time of a whole training iteration",
		},
		"carriage returns": {
			"\r 10%|# | 1/10 [00:05<00:45, 5.00s/it, loss=2]\r 20%|## | 2/10 [00:10<00:40, 5.50s/it, loss=2]\n",
			Want{},
			[]float64{5000, 5500},
			[]int64{1, 2},
			"smoothed",
		},
	} {
		s, err := read(c.in, c.want)
		if err != nil ||
			!near(s.Ms, c.ms) ||
			c.steps != nil && !slices.Equal(s.Steps, c.steps) ||
			!strings.Contains(strings.Join(s.Notes, "\n"), c.note) ||
			c.note == "" && len(s.Notes) > 0 {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}

// Two bars that may both be the training's are ambiguous.
func TestAsksWhichBar(t *testing.T) {
	in := " 1/10 [00:05<00:45, 5.00s/it]\n 1/7 [00:05<00:45, 2.00s/it]\n 2/10 [00:05<00:45, 5.00s/it]\n 2/7 [00:05<00:45, 2.00s/it]\n"
	if _, err := read(in, Want{}); err == nil ||
		!strings.Contains(err.Error(),
			"rate of the bar of 10 and rate of the bar of 7, and each may be the time") {
		t.Error(err)
	}
	s, err := read(in, Want{Column: "rate of the bar of 7"})
	if err != nil || !slices.Equal(s.Ms, []float64{2000, 2000}) {
		t.Errorf("%+v, %v", s, err)
	}
}

// endless is an endless reader without line ends.
type endless struct{ b byte }

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = e.b
	}
	return len(p), nil
}

func TestInputsAreBounded(t *testing.T) {
	for _, b := range "x{[1" {
		_, err := Read(endless{byte(b)}, Want{})
		if !errors.Is(err, trace.ErrTooLarge) {
			t.Errorf("endless %q: %v", b, err)
		}
	}
	wide := strings.Repeat("a,", MaxColumns) + "b\n" + strings.Repeat("1,", MaxColumns) + "1\n"
	if _, err := read(wide, Want{}); !errors.Is(err, trace.ErrTooLarge) {
		t.Error(err)
	}
}

func TestSniff(t *testing.T) {
	for in, want := range map[string]Kind{
		"t_us,op,group\n1,send,a\n":                        Calls,
		"step,rank,ms\n0,0,5\n0,1,6\n":                     Workers,
		"step,dp,pp,fwd_compute_ms\n0,0,0,5\n0,1,0,6\n":    Workers,
		"step,rank,ms\n0,0,5\n1,0,6\n":                     Iterations,
		"step,ms\n0,5\n":                                   Iterations,
		`{"layout":{"tp":1,"dp":4,"pp":2},"groups":[]}`:    Profile,
		`[{"ph":"X","name":"forward","ts":1,"dur":5}]`:     Trace,
		`{"version":"2.10","pg_config":{},"entries":[]}`:   Trace,
		"\x80\x02}q\x00":                                   Trace,
		`{"header":{"id":"0x1"},"coll_perf":{"coll":"x"}}`: Collectives,
		"#Entity   SMCLK\nID\n    GPU 0  1590\n":           Counters,
		"DCGM_FI_DEV_SM_CLOCK{gpu=\"0\"} 1590\n":           Counters,
		"loading model\nready\n":                           Iterations, // its iterations may come later
		"":                                                 Nothing,
		"PAR1":                                             Nothing,
	} {
		g := Sniff([]byte(in))
		if g.Kind != want || g.Why == "" || (g.Err() == nil) != (want != Nothing) {
			t.Errorf("%q: %+v", in, g)
		}
	}
	g, in, err := SniffReader(strings.NewReader(packed("t_us,op\n1,send\n")))
	rest, _ := io.ReadAll(in)
	if err != nil || g.Kind != Calls || string(rest) != "t_us,op\n1,send\n" {
		t.Errorf("%+v, %v, %q", g, err, rest)
	}
}

func FuzzRead(f *testing.F) {
	for _, in := range []string{
		"timestamp,step,iter_time_ms,loss\n1.5,1,20,3.1\n1.6,2,21,3.0\n",
		"step;ms\n1;1.235,4\n",
		"x\n1\n2\n",
		wandbHistory(),
		"[{\"step\":1,\"ms\":5},\n {\"step\":2,\"ms\":6}]\n",
		"ms\n1,5\n\x1b[2J",
		"step,rank,ms\n1,0,5\n1,1,9\n1,0,3\n",
		packed("step,ms\n1,5\n"),
	} {
		f.Add([]byte(in), "", "", 0.0, 0)
	}
	f.Add([]byte("step,tokens_per_sec\n1,4096\n"), "tokens_per_sec", "s", 8192.0, 1)
	f.Fuzz(fuzzRead)
}

// fuzzRead reads an input with any settings: it returns finite times or one sentence.
func fuzzRead(t *testing.T, in []byte, name, unit string, items float64, run int) {
	u, _ := column.ParseUnit(unit)
	for _, raw := range []bool{false, true} {
		s, err := Read(bytes.NewReader(in), Want{
			Column: name,
			Unit:   u,
			Items:  items,
			Run:    run,
			Raw:    raw,
		})
		checkSentence(t, err)
		if err != nil {
			continue
		}
		if len(s.Ms) == 0 ||
			s.Steps != nil && len(s.Steps) != len(s.Ms) ||
			s.Format == "" ||
			s.Why == "" ||
			s.Unit == "" && !raw {
			t.Fatalf("%+v", s)
		}
		for _, ms := range s.Ms {
			if ms-ms != 0 || !raw && ms <= 0 {
				t.Fatalf("%g is no time: %+v", ms, s)
			}
		}
		checkClean(t, s.Format+s.Column+s.Why+strings.Join(s.Notes, ""))
	}
}

func checkClean(t *testing.T, text string) {
	t.Helper()
	if strings.ContainsFunc(text, isControl) || strings.ContainsRune(text, '\t') {
		t.Fatalf("%q", text)
	}
}

func checkSentence(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if !errors.Is(err, trace.ErrMalformed) &&
		!errors.Is(err, trace.ErrTooLarge) &&
		!errors.Is(err, ErrUnclear) {
		t.Fatal(err)
	}
	checkClean(t, err.Error())
}
