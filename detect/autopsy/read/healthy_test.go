package read_test

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon/detect/autopsy"
	"github.com/failslow/falcon/detect/autopsy/read"
)

// healthy is how a framework writes the time of an iteration.
var healthy = map[string]func(i int, s float64) string{
	"megatron": func(i int, s float64) string {
		return fmt.Sprintf(
			" iteration %8d/  500000 | consumed samples: %12d | elapsed time per iteration (ms): %.1f | lm loss: 2.1E+00 |",
			i, 64*i, 1e3*s,
		)
	},
	"key and value": func(i int, s float64) string {
		return fmt.Sprintf("step=%d loss=%.4f step_time=%.3fs tokens/s=%d", i, 2.1, s, int(8192/s))
	},
	"tokens": func(i int, s float64) string {
		return fmt.Sprintf(
			"[titan] 2026-01-01 03:00:19,099 - root - INFO - step: %d  loss:  3.1012  memory: 40.12GiB(50.66%%)  tps: %d  mfu: 41.67%%",
			i, int(8192/s),
		)
	},
	"bar": func(i int, s float64) string {
		return fmt.Sprintf("\r  1%%|█| %d/5000 [00:10<12:00,  %.2fs/it]", i, s)
	},
	"rate": func(i int, s float64) string {
		return fmt.Sprintf(
			"2016-11-02 15:51:19,011 Node Epoch[0] Batch [%d]\tSpeed: %.2f samples/sec\tTrain-mae=20.9",
			i, 64/s,
		)
	},
	"epochs": func(i int, s float64) string {
		return fmt.Sprintf("Epoch: [0][%d/87866]\tTime %.3f\tLoss 22.776\tRegLoss 0.000000", i, s)
	},
	"detectron": func(i int, s float64) string {
		return fmt.Sprintf(
			"[06/12 03:00:01 d2.utils.events]:  eta: 5:12:01  iter: %d  total_loss: 1.2  time: %.4f  last_time: %.4f  data_time: 0.0051",
			i, s, s,
		)
	},
	"json": func(i int, s float64) string {
		return fmt.Sprintf(`{"step": %d, "loss": 2.1, "perf/step_time": %.4f}`, i, s)
	},
	"caffe": func(i int, s float64) string {
		return fmt.Sprintf(
			"I0718 05:04:19.774048 23375 solver.cpp:218] Iteration %d (%.5f iter/s, %.3fs/1 iters), loss = 18.6",
			i, 1/s, s,
		)
	},
	"csv": func(i int, s float64) string {
		return fmt.Sprintf("%d,%.2f,2.1", i, 1e3*s)
	},
}

// One-off lines that healthy jobs write too.
var harmless = []string{
	"[W socket.cpp:663] [c10d] The client socket has failed to connect to [localhost]:29500 (errno: 99 - Cannot assign requested address).",
	"FutureWarning: torch.load with weights_only=False is deprecated",
	"node1:1:1 [0] NCCL WARN MSCCL++: Cannot find /opt/x.conf",
	"saving checkpoint at iteration 100 to /ckpt",
	"successfully saved checkpoint", "validation loss at iteration 100 | lm loss value: 2.0",
	"[Wed Feb 14 05:03:41 2026] mlx5_core 0000:9c:00.0 mlx5_4: Port: 1 Link DOWN",
}

// job writes a log of a healthy job: noise that lasts, a slow beginning, single slow iterations.
func job(r *rand.Rand, kind string, line func(int, float64) string) string {
	var b strings.Builder
	if kind == "csv" {
		b.WriteString("step,iter_time_ms,loss\n")
	}
	n, noise, wander := 20+r.IntN(600), 0.002+0.05*r.Float64(), 0.0
	for i := 1; i <= n; i++ {
		wander = 0.9*wander + 0.3*noise*r.NormFloat64()
		s := 1.5 * (1 + noise*r.NormFloat64() + wander)
		switch {
		case i <= 3:
			s *= 1 + 8*r.Float64()
		case i%100 == 0:
			s *= 3
		case r.IntN(150) == 0:
			s *= 1 + 4*r.Float64()
		}
		b.WriteString(line(i, max(s, 0.3)) + "\n")
		if kind != "csv" && kind != "json" && r.IntN(80) == 0 {
			b.WriteString(harmless[r.IntN(len(harmless))] + "\n")
		}
	}
	return b.String()
}

func answer(name, text string) autopsy.Answer {
	var set read.Set
	set.Add(name, func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(text)), nil
	})
	return autopsy.Judge(set.Facts())
}

var healthyLogs = flag.Int("healthy-logs", 20, "of each format")

func TestHealthyJobsAreHealthy(t *testing.T) {
	for _, kind := range slices.Sorted(maps.Keys(healthy)) {
		r := rand.New(rand.NewPCG(7, 11))
		for range *healthyLogs {
			text := job(r, kind, healthy[kind])
			if a := answer("train.log", text); a.Kind != autopsy.KindHealthy {
				t.Errorf("%s: %s: %s\n%v", kind, a.Kind, a.Summary, a.Inputs)
			}
		}
	}
}
