package read_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon/detect/autopsy"
)

// members writes one line for each of some members, whose values differ by noise alone.
func membersOf(r *rand.Rand, n int, level float64, line func(i int, v float64) string) string {
	return lines(n, func(i int) string {
		return line(i, level*(1+0.03*r.NormFloat64()))
	})
}

// healthyReports are reports of members that are all well.
var healthyReports = map[string]func(r *rand.Rand) string{
	"train.log": func(r *rand.Rand) string {
		n := 4 + r.IntN(12)
		return membersOf(r, n*(5+r.IntN(60)), 5000, func(i int, v float64) string {
			return fmt.Sprintf("[rank %d] step: %d loss: 2.0 local_tps: %.0f", i%n, i/n, v)
		})
	},
	"ranks.csv": func(r *rand.Rand) string {
		return "rank,device,self_ms,wait_ms,sm_clock_mhz\n" +
			membersOf(r, 4+r.IntN(60), 15, func(i int, v float64) string {
				return fmt.Sprintf("%d,n%d.g%d,%.2f,%.2f,%d",
					i, i/8, i%8, v, 3+2*r.Float64(), 1410-15*r.IntN(3))
			})
	},
	"report.md": func(r *rand.Rand) string {
		return "| rank | forward_ms | data_ms |\n|---|---|---|\n" +
			membersOf(r, 3+r.IntN(30), 250, func(i int, v float64) string {
				return fmt.Sprintf("| %d | %.1f | %.1f |", i, v, 10+r.Float64())
			})
	},
	"bandwidth.txt": func(r *rand.Rand) string {
		return membersOf(r, 3+r.IntN(30), 386, func(i int, v float64) string {
			return fmt.Sprintf("node%02d: %.1f GB/s", i, v)
		})
	},
	"gemm.txt": func(r *rand.Rand) string {
		return "GPU  TFLOPS\n" + membersOf(r, 8, 612, func(i int, v float64) string {
			return fmt.Sprintf("%d    %.1f", i, v)
		})
	},
	"pairs.out": func(r *rand.Rand) string {
		var b strings.Builder
		for i := range 3 + r.IntN(20) {
			b.WriteString(pair(
				fmt.Sprintf("n%d", i),
				fmt.Sprintf("n%d", i+1),
				88*(1+0.03*r.NormFloat64()),
				0,
			))
		}
		return b.String()
	},
	"smi.txt": func(r *rand.Rand) string {
		var percent []int
		for range 8 {
			percent = append(percent, 90+r.IntN(11))
		}
		return smiOf(percent...)
	},
	"report.json": func(r *rand.Rand) string {
		return "{\n \"step_time_s\": {" +
			strings.TrimSuffix(strings.ReplaceAll(membersOf(r, 8, 0.3, func(i int, v float64) string {
				return fmt.Sprintf("\"%d\": %.4f,", i, v)
			}), "\n", ""), ",") + "}\n}\n"
	},
	"comms.log": func(r *rand.Rand) string {
		return fmt.Sprintf("Comm. Op   Message Size  Count  Total comm lat(ms)  Total straggler(ms) Avg comm lat(ms)  Avg straggler(ms)\nall_reduce\n"+
			"          4.0 KB      24240        %.2f         %.2f         0.05         0.01\n",
			1200.0, 400*r.Float64())
	},
	"dmesg.txt": func(*rand.Rand) string {
		return "[    1.1] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15\n[    2.0] mlx5_core 0000:9c:00.0 mlx5_4: Port: 1 Link ACTIVE\n" +
			"[   99.1] EXT4-fs (md127p3): re-mounted. Quota mode: none.\n"
	},
	"diag.txt": func(*rand.Rand) string {
		return "| GPU Memory                | Pass - All      |\n| Pulse Test                | Pass - All      |\n| PCIe                      | Skip            |\n"
	},
	"health.csv": func(r *rand.Rand) string {
		return "node,check,result\n" + membersOf(r, 4+r.IntN(20), 1, func(i int, _ float64) string {
			return fmt.Sprintf("n%d,gemm,PASS", i)
		})
	},
}

// Reports of members that are all well accuse nobody.
func TestHealthyReportsAccuseNobody(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(healthyReports)) {
		r := rand.New(rand.NewPCG(7, 12))
		for range *healthyLogs {
			text := healthyReports[name](r)
			a := answer(name, text)
			if a.Kind != autopsy.KindHealthy && a.Kind != autopsy.KindUnknown {
				t.Errorf("%s: %s: %s\n%s", name, a.Kind, a.Summary, text[:min(len(text), 400)])
			}
		}
	}
}
