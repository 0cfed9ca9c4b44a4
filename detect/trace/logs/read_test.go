package logs

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon/detect/trace"
)

// Real lines of each format; testdata/SOURCES.md has where they come from.
func TestReadsRealLines(t *testing.T) {
	for file, want := range map[string]struct {
		format, column, unit string
		ms                   []float64
		steps                []int64
		items                float64
	}{
		"megatron.log": {
			"Megatron log",
			"elapsed time per iteration (ms)",
			"ms",
			[]float64{5361.6, 5470.7, 5829.9},
			[]int64{71, 72, 73},
			0,
		},
		"megatron-deepspeed.log": {
			"Megatron-DeepSpeed log",
			"elapsed time per iteration (s)",
			"s",
			[]float64{178440, 141940, 141220},
			[]int64{94768, 94769, 94770},
			0,
		},
		"gpt-neox.log": {
			"Megatron log",
			"elapsed time per iteration (ms)",
			"ms",
			[]float64{4103.1},
			[]int64{34},
			0,
		},
		"nemo.log": {
			"NeMo log",
			"train_step_timing in s",
			"s",
			[]float64{31.46, 31.63, 32.15},
			[]int64{120, 121, 122},
			0,
		},
		"lightning-bar.log": {
			"progress bar",
			"rate of the bar of 18",
			"s",
			[]float64{8770, 5820, 4870, 4470},
			[]int64{1, 2, 3, 4},
			0,
		},
		"trainer-bar.log": {
			"progress bar",
			"rate of the bar of 50",
			"s",
			[]float64{1670, 1660, 1730},
			[]int64{10, 20, 30},
			0,
		},
		"torchtitan.log": {
			"torchtitan log",
			"date of the line",
			"s",
			[]float64{1464.8, 1396.4, 1396.1},
			[]int64{210, 220, 230},
			0,
		},
		"torchtitan-ranks.log": {"torchtitan log", "date of the line", "s", []float64{1637}, []int64{5}, 0},
		"mlperf.log": {
			"MLPerf log",
			"train_step_time",
			"s",
			[]float64{4252.581596374512, 1236.6063594818115, 714.2195701599121},
			[]int64{64, 128, 192},
			0,
		},
		"mlperf-v3.log": {
			"MLPerf log",
			"train_step_timing",
			"s",
			[]float64{11047.137022018433, 11046.081066131592, 11022.67575263977},
			[]int64{297795584, 301989888, 306184192},
			0,
		},
		"nanotron.log": {
			"nanotron log",
			"elapsed_time_per_iteration_ms",
			"ms",
			[]float64{11500, 11500},
			[]int64{327281, 327282},
			0,
		},
		"nanogpt.log": {
			"nanoGPT log",
			"time",
			"ms",
			[]float64{9371.81, 893.76, 894.88},
			[]int64{0, 10, 20},
			0,
		},
		"llm.c.log": {
			"llm.c log",
			"ms",
			"ms",
			[]float64{44.57, 44.57, 44.58},
			[]int64{61, 62, 63},
			0,
		},
		"nanochat.log": {"nanochat log", "dt", "ms", []float64{989.44, 991.09}, []int64{4, 5}, 0},
		"modded-nanogpt.log": {
			"modded-nanogpt log",
			"train_time",
			"ms",
			[]float64{93, 95, 95, 94},
			[]int64{5, 6, 7, 8},
			0,
		},
		"maxtext.log": {
			"MaxText log",
			"seconds",
			"s",
			[]float64{631, 10228, 10344},
			[]int64{1, 2, 3},
			0,
		},
		"dllogger.log": {
			"DLLogger log",
			"data.train_step_timing in s",
			"s",
			[]float64{92287.38164901733},
			[]int64{16},
			0,
		},
		"automodel.log": {
			"NeMo Automodel log",
			"tps",
			"/s",
			[]float64{1000, 820.4907, 1149.904, 1068.239},
			[]int64{9, 10, 11, 12},
			11278.56,
		},
	} {
		s, err := readFile(t, file, Want{Items: want.items})
		if err != nil ||
			s.Format != want.format ||
			s.Column != want.column ||
			s.Unit != want.unit ||
			s.Why == "" ||
			!slices.Equal(s.Steps, want.steps) ||
			!near(s.Ms, want.ms) {
			t.Errorf("%s: %+v, %v", file, s, err)
		}
	}
}

func near(got, want []float64) bool {
	return slices.EqualFunc(got, want, func(a, b float64) bool {
		return math.Abs(a-b) <= 1e-4*math.Abs(b)
	})
}

func readFile(t *testing.T, name string, want Want) (Series, error) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return Read(bytes.NewReader(b), want)
}

// Files without iteration times are refused with the reason.
func TestRefusesRealFilesWithoutTimes(t *testing.T) {
	for file, want := range map[string]string{
		"automodel.log":         "1 s, is too coarse for rows",
		"metrics.jsonl":         "one clock reading",
		"lightning-metrics.csv": "no column of the CSV is named as an iteration time; it has compression_ratio_step, epoch, step",
		"trainer-dicts.log":     "have no times; keep the progress bar",
		"inspector.jsonl":       "this is NCCL Inspector's JSON, which has no iteration times",
		"inspector.prom":        "this is NCCL Inspector's metrics",
		"dcgm.prom":             "this is DCGM counters as dcgm-exporter writes them",
		"dmon.txt":              "this is DCGM counters as dcgmi dmon writes them",
	} {
		s, err := readFile(t, file, Want{})
		if !errors.Is(err, trace.ErrMalformed) && !errors.Is(err, ErrUnclear) ||
			!strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %+v, %v", file, s, err)
		}
	}
}
