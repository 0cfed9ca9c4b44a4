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

// want is what an answer must have; nil and "" ask nothing.
type want struct {
	kind    string
	ranks   []int
	hosts   []string
	devices []string
	onset   int64 // iteration, 0 = none is asked for
	text    string
}

func lines(n int, line func(i int) string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(line(i) + "\n")
	}
	return b.String()
}

func megatron(i int, ms float64) string {
	return fmt.Sprintf(
		" [2026-03-01 01:%02d:%02d] iteration %8d/  500000 | consumed samples: %12d | elapsed time per iteration (ms): %.1f | lm loss: 2.1E+00 |",
		i*4/60%60, i*4%60, i, 64*i, ms,
	)
}

// noisy gives values around a level.
func noisy(seed uint64) func(level float64) float64 {
	r := rand.New(rand.NewPCG(seed, 1))
	return func(level float64) float64 { return level * (1 + 0.004*r.NormFloat64()) }
}

func plainLog(n int) string {
	v := noisy(3)
	return lines(n, func(i int) string { return megatron(i+1, v(4400)) })
}

func slowLog() string {
	v := noisy(4)
	return lines(80, func(i int) string {
		ms := 4400.0
		if i >= 50 {
			ms = 4750
		}
		return megatron(10*(i+1), v(ms))
	})
}

func watchdog(rank int, seq, op string, size int) string {
	return fmt.Sprintf(
		"[rank%d]:[E812 14:02:11.1%05d ProcessGroupNCCL.cpp:688] [Rank %d] Watchdog caught collective operation timeout: "+
			"WorkNCCL(%sOpType=%s, NumelIn=%d, NumelOut=%d, Timeout(ms)=600000) ran for 600070 milliseconds before timing out.",
		rank, rank, rank, seq, op, size, 8*size,
	)
}

// ras is what ncclras -f json prints of eight ranks.
func ras(behind int, comma string) string {
	var ranks []string
	for r := range 8 {
		n := 64
		if r == behind {
			n = 60
		}
		ranks = append(ranks, fmt.Sprintf(
			"{\n\"rank\": %d,\n\"host\": \"node%d\",\n\"pid\": %d,\n\"cuda_dev\": %d,\n\"nvml_dev\": %d%s\n"+
				"\"status\": {\n\"init_state\": 0,\n\"async_error\": 0\n},\n\"collective_counts\": {\n\"Broadcast\": 1,\n\"AllReduce\": %d\n}\n}",
			r, r/4, 100+r, r%4, r%4, comma, n,
		))
	}
	return "{\n\"nccl_version\": \"2.28.9\",\n\"timestamp\": \"2026-05-11 13:06:53\",\n\"communicators\": [\n{\n\"hash\": \"0x1\",\n\"size\": 8,\n\"ranks\": [\n" +
		strings.Join(ranks, ",\n") + "\n]\n}\n]\n}\n"
}

func pySpy(out int) string {
	return lines(8, func(r int) string {
		frames := "    all_reduce (torch/distributed/distributed_c10d.py:1316)\n    _reduce (engine.py:519)"
		if r == out {
			frames = "    wait (threading.py:327)\n    get (queue.py:180)\n    _next_data (torch/utils/data/dataloader.py:1448)"
		}
		pid := 700 + r
		return fmt.Sprintf("Process %d: python pretrain.py\nPython v3.11.7 (/usr/bin/python3.11)\n\nThread %d (active): \"MainThread\"\n%s\n    train (train.py:88)\n"+
			"Thread %d (idle): \"Thread-2\"\n    wait (threading.py:306)\n", pid, pid, frames, pid+4000)
	})
}

func smiCSV() string {
	v := noisy(5)
	return "timestamp, index, pstate, clocks.current.sm [MHz], temperature.gpu, power.draw [W], clocks_throttle_reasons.hw_slowdown, utilization.gpu [%]\n" +
		lines(60, func(i int) string {
			mhz := v(1525)
			active := "Not Active"
			if i%4 == 2 {
				mhz = v(705)
				active = "Active"
			}
			return fmt.Sprintf("2026/02/09 03:00:%02d.%d00, %d, P0, %.0f MHz, 61, 290.34 W, %s, 99 %%",
				i/4, i%4, i%4, mhz, active)
		})
}

func dmon() string {
	return "# gpu   pwr gtemp mtemp    sm   mem   enc   dec  mclk  pclk\n# Idx     W     C     C     %     %     %     %   MHz   MHz\n" +
		lines(40, func(i int) string {
			mhz := 1980 - i%3
			if i%4 == 3 {
				mhz = 1200 + i%3
			}
			return fmt.Sprintf("    %d   380    60     -    99    40     0     0  2619  %d", i%4, mhz)
		})
}

func timers() string {
	v := noisy(6)
	return lines(30, func(i int) string {
		out := megatron(i+1, v(800)) + "\ntimes across ranks (ms):\n  forward-compute:\n"
		for r := range 8 {
			ms := v(256)
			if r == 6 && i >= 10 {
				ms = v(509)
			}
			out += fmt.Sprintf("     rank %2d: %.2f\n", r, ms)
		}
		return out
	})
}

func stragglerReport() string {
	return lines(3, func(i int) string {
		out := fmt.Sprintf(
			"[default0]:=== Straggler Report at Step %d ===\n[default0]:Section Timings (ms):\n[default0]:  forward_backward:\n",
			10*i+10,
		)
		for r := range 8 {
			ms := 210.0 + float64(r)
			if r == 3 {
				ms = 388
			}
			out += fmt.Sprintf("[default0]:    Rank %d: %.2fms\n", r, ms)
		}
		return out
	})
}

func scores() string {
	return lines(3, func(i int) string {
		out := "megatron.bridge.NVRxStragglerDetection: GPU relative performance:\n"
		for r := range 8 {
			score := 0.95 + float64(r)/200
			if r == 5 {
				score = 0.71
			}
			out += fmt.Sprintf("  Rank=%d Node=node%d Score=%.2f\n", r, r/4, score)
		}
		return out
	})
}

func extremes() string {
	v := noisy(8)
	return lines(60, func(i int) string {
		rank := (7 * i) % 32
		most := 1454.0
		ms := 4400.0
		if i >= 30 {
			rank = 30
			most = 1570
			ms = 4760
		}
		return megatron(10*(i+1), v(ms)) +
			fmt.Sprintf(
				"\n 0: INFO:megatron.core.utils:[2024-10-23 01:00:10] | MnRtt/Rnk: 1446.06ms/13 | MxRtt/Rnk: %.2fms/%d | MnPwr/Rnk: 61W/%d |",
				v(most), rank, i%32,
			)
	})
}

// collectives is a table of the times in a collective by rank, where rank 4 arrives last.
func collectives() string {
	return "rank,Process Group Name,Collective name,Group size,dtype,In msg nelems,dur_sum,dur_mean,dur_std,dur_min,dur_max\n" +
		lines(16, func(i int) string {
			rank := i % 8
			us := 60000.0 + float64(100*(i%8))
			op, size := "_reduce_scatter_base", 855654400
			if i >= 8 {
				op = "allreduce"
				size = 1
				us = 300 + float64(7*(i%8))
			} else if rank == 4 {
				us = 21000
			}
			return fmt.Sprintf("%d,0,%s,8,Float,%d,%.1f,%.1f,10.0,1.0,%.1f", rank, op, size, 160*us, us, 2*us)
		})
}

var cases = map[string]struct {
	name, text string
	want       want
}{
	"another collective": {
		"train.log", lines(8, func(r int) string {
			op := "BROADCAST"
			if r == 0 {
				op = "ALLREDUCE"
			}
			return fmt.Sprintf(
				"[E ProcessGroupNCCL.cpp:566] [Rank %d] Watchdog caught collective operation timeout: WorkNCCL(OpType=%s, Timeout(ms)=1800000) ran for 1801060 milliseconds before timing out.",
				r, op,
			)
		}), want{kind: autopsy.KindHang, ranks: []int{0}},
	},
	"another size": {
		"server.log", lines(8, func(r int) string {
			size := 145440
			if r == 7 {
				size = 161600
			}
			return watchdog(r, "SeqNum=65054, ", "_ALLGATHER_BASE", size)
		}), want{kind: autopsy.KindHang, ranks: []int{7}},
	},
	"one behind by the watchdog's status": {
		"train.log",
		"[rank0]:[E1123 00:52:57.1 ProcessGroupNCCL.cpp:1664] [PG 1 Rank 0] Exception (either an error or timeout) detected by watchdog at work: 1516, " +
			"last enqueued NCCL work: 1516, last completed NCCL work: 1515.\n" +
			watchdog(1, "SeqNum=1517, ", "ALLREDUCE", 1) +
			"\n[rank1]:[E1123 00:52:57.2 ProcessGroupNCCL.cpp:1664] [PG 1 Rank 1] Exception (either an error or timeout) detected by watchdog at work: 1517, " +
			"last enqueued NCCL work: 1517, last completed NCCL work: 1516.\n",
		want{kind: autopsy.KindHang, ranks: []int{0}},
	},
	"RAS text": {
		"ras.txt",
		"NCCL version 2.30.7 compiled with CUDA 12.8\n\nWarnings\n========\n\n#0-0 (78db921d1c117b4a) MISMATCH\n  Communicator ranks have different AllReduce operation counts\n" +
			"  7 ranks have launched up to operation 64\n  Rank 7 has launched up to operation 60 -- GPU 3 managed by process 1650386 on node node1\n",
		want{kind: autopsy.KindHang, ranks: []int{7}},
	},
	"RAS text, two ahead": {
		"ras.txt",
		"#0-0 (fa93daea854b060b) MISMATCH\n  Communicator ranks have different AllGather operation counts\n  30 ranks have launched up to operation 640\n" +
			"  2 ranks have launched up to operation 641\n  Rank 12 -- GPU 4 managed by process 323032 on node 10.0.1.12\n  Rank 13 -- GPU 5 managed by process 323033 on node 10.0.1.12\n",
		want{kind: autopsy.KindHang, ranks: []int{}},
	},
	"RAS JSON": {"ras.json", ras(7, ","), want{
		kind:  autopsy.KindHang,
		ranks: []int{7},
	}},
	"RAS JSON without a comma": {"ras.json", ras(7, ""), want{
		kind:  autopsy.KindHang,
		ranks: []int{7},
	}},
	"stacks of a node": {
		"trace-node0.out",
		pySpy(4),
		want{kind: autopsy.KindHang, ranks: []int{4}},
	},
	"silence while the log goes": {
		"main_log.txt",
		plainLog(100) +
			"[2026-03-01 03:56:11] PULSE: job is running\n[2026-03-01 04:56:13] PULSE: job is running\n",
		want{kind: autopsy.KindHang},
	},
	"Horovod": {
		"train.log",
		"[2019-07-22 12:46:46.123: W horovod/common/stall_inspector.cc:107] One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds.\n" +
			"Missing ranks:\n2: [DistributedOptimizer_Allreduce/a, DistributedOptimizer_Allreduce/b ...]\n",
		want{kind: autopsy.KindHang, ranks: []int{2}},
	},
	"monitored barrier": {
		"train.log",
		"RuntimeError: [Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 30000 ms\n",
		want{kind: autopsy.KindHang, ranks: []int{1, 3}},
	},
	"collectives compared": {
		"train.log",
		"RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=9, OpType=ALLREDUCE, TensorShape=[4]), " +
			"but Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=9, OpType=REDUCE, TensorShape=[4]), and Rank 2 is running collective: CollectiveFingerPrint(SequenceNumber=9, OpType=ALLREDUCE, TensorShape=[4]).\n",
		want{kind: autopsy.KindHang, ranks: []int{0}},
	},
	"ECC at the end": {
		"tr.out",
		plainLog(100) +
			"Traceback (most recent call last):\n  File \"/job/pretrain.py\", line 222, in <module>\n    pretrain(\n" +
			"RuntimeError: transform: failed to synchronize: cudaErrorECCUncorrectable: uncorrectable ECC error encountered\nsrun: error: node17: task 69: Aborted\nsrun: Terminating job step 693121.0\n",
		want{
			kind:  autopsy.KindFailed,
			hosts: []string{"node17"},
			text:  "memory error",
		},
	},
	"Xid 79 after Xid 63": {
		"dmesg.txt",
		"[Tue Feb 13 22:10:01 2026] mlx5_core 0000:9c:00.0 mlx5_4: Port: 1 Link DOWN\n[Tue Feb 13 22:10:03 2026] mlx5_core 0000:9c:00.0 mlx5_4: Port: 1 Link ACTIVE\n" +
			"[Wed Feb 14 05:03:41 2026] NVRM: Xid (PCI:0000:5d:00): 63, pid=1896, Row Remapper: New row marked for remapping\n" +
			"[Wed Feb 14 05:04:02 2026] NVRM: Xid (PCI:0000:5d:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n",
		want{kind: autopsy.KindFailed, devices: []string{"0000:5d:00"}},
	},
	"a completion with an error": {
		"nccl.log",
		"gpu-a:353236:353236 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_10:1/RoCE [RO]\n" +
			"gpu-a:353236:353423 [6] transport/net_ib.cc:2244 NCCL WARN NET/IB: Got completion from peer 192.168.3.5<50188> with status=12 opcode=32552 len=32549 vendor err 129 (Recv) localGid ::1 remoteGids::2 hca mlx5_10\n",
		want{devices: []string{"mlx5_10"}},
	},
	"first error of the first rank": {
		"train.log",
		plainLog(30) +
			"[rank3]: Traceback (most recent call last):\n[rank3]:   File \"/job/train.py\", line 9, in f\n[rank3]: ValueError: batch 7 has no labels\n" +
			"[rank0]: Traceback (most recent call last):\n[rank0]:   File \"/x/torch/distributed.py\", line 1, in g\n[rank0]: torch.distributed.DistBackendError: NCCL communicator was aborted on rank 0.\n",
		want{
			kind:  autopsy.KindFailed,
			ranks: []int{3},
			text:  "ValueError",
		},
	},
	"an error that the job outlived": {
		"train.log",
		plainLog(20) +
			"Traceback (most recent call last):\n  File \"/job/log.py\", line 9, in f\nConnectionError: wandb did not answer\n" + plainLog(
			200,
		),
		want{kind: autopsy.KindHealthy},
	},
	"a kernel without memory": {
		"slurm.out",
		plainLog(30) +
			"slurmstepd: error: Detected 1 oom_kill event in StepId=1.0. Some of the step tasks have been OOM Killed.\n",
		want{kind: autopsy.KindFailed, text: "memory"},
	},
	"storage": {
		"train.log",
		plainLog(30) + "OSError: [Errno 28] No space left on device\n",
		want{kind: autopsy.KindFailed, text: "full"},
	},
	"a peer's end and nothing else": {
		"train.log",
		plainLog(30) + "[rank1]: RuntimeError: Connection closed by remote peer node9<4711>\n",
		want{kind: autopsy.KindFailed, text: "says why"},
	},
	"a time limit": {
		"train.log",
		plainLog(60) +
			"slurmstepd: error: *** STEP 693121.0 ON node01 CANCELLED AT 2026-03-01T01:53:11 DUE TO TIME LIMIT ***\n",
		want{kind: autopsy.KindHealthy},
	},
	"a watchdog and then the time limit": {
		"train.log",
		plainLog(60) + watchdog(3, "SeqNum=90211, ", "ALLREDUCE", 1) +
			"\nslurmstepd: error: *** STEP 693121.0 ON node01 CANCELLED AT 2026-03-01T01:53:11 DUE TO TIME LIMIT ***\nsrun: error: node17: task 130: Killed\n",
		want{kind: autopsy.KindHang, ranks: []int{}},
	},
	"slower iterations": {"train.log", slowLog(), want{kind: autopsy.KindSlow, onset: 510}},
	"the largest of reports": {
		"train.log",
		extremes(),
		want{kind: autopsy.KindSlow, ranks: []int{30}, onset: 310},
	},
	"timers of all ranks": {
		"train.log",
		timers(),
		want{kind: autopsy.KindSlow, ranks: []int{6}, onset: 11},
	},
	"NVRx": {"train.log", scores(), want{
		kind:  autopsy.KindSlow,
		ranks: []int{5},
	}},
	"FlagScale": {
		"output.log",
		stragglerReport(),
		want{kind: autopsy.KindSlow, ranks: []int{3}},
	},
	"who arrives last": {"summary.csv", collectives(), want{
		kind:  autopsy.KindSlow,
		ranks: []int{4},
	}},
	"clocks as a table": {"smi.csv", smiCSV(), want{
		kind:    autopsy.KindSlow,
		devices: []string{"2"},
	}},
	"clocks by dmon": {"dmon.txt", dmon(), want{
		kind:    autopsy.KindSlow,
		devices: []string{"3"},
	}},
	"a reason by nvidia-smi": {
		"smi-q.txt",
		"==============NVSMI LOG==============\n\nGPU 00000000:18:00.0\n    Clocks Event Reasons\n        HW Slowdown                       : Not Active\n\nGPU 00000000:3B:00.0\n    Clocks Event Reasons\n        HW Slowdown                       : Active\n",
		want{kind: autopsy.KindSlow, devices: []string{"00000000:3B:00.0"}},
	},
	"a node in both rounds": {
		"master.log",
		"[2023-09-26 03:46:11,101] [INFO] [rdzv_manager.py:413:_get_straggler] Round 0: The node elapsed time are {2: 20.307, 3: 20.265, 0: 206.872, 1: 151.752}\n" +
			"[2023-09-26 03:49:20,235] [INFO] [rdzv_manager.py:413:_get_straggler] Round 1: The node elapsed time are {2: 20.307, 3: 20.265, 0: 23.174, 1: 135.961}\n" +
			"[2023-09-26 03:52:20,235] [INFO] [training.py:707:run] Fault nodes are: []  and stragglers are: [1].\n",
		want{hosts: []string{"1"}},
	},
	"a table without a time": {
		"workers.csv",
		"step,rank,host,loss,grad_norm,tokens\n0,0,node0,2.1,0.3,8192\n0,1,node0,2.1,0.3,8192\n0,2,node0,2.1,0.3,8192\n",
		want{kind: autopsy.KindUnknown},
	},
	"nothing that is known": {"README.md", "# run 12\n", want{kind: autopsy.KindUnknown}},
}

func TestCases(t *testing.T) {
	all := maps.Clone(cases)
	maps.Copy(all, reports)
	for title, c := range all {
		a := answer(c.name, c.text)
		w := c.want
		ok := (w.kind == "" || a.Kind == w.kind) &&
			(w.ranks == nil || slices.Equal(a.Ranks, w.ranks)) &&
			(w.hosts == nil || slices.Equal(a.Hosts, w.hosts)) &&
			(w.devices == nil || slices.Equal(a.Devices, w.devices)) &&
			strings.Contains(a.Summary, w.text)
		if w.onset != 0 {
			ok = ok &&
				a.Onset != nil &&
				a.Onset.Iteration != nil &&
				*a.Onset.Iteration == w.onset
		}
		if !ok {
			t.Errorf("%s: %s, ranks %v, hosts %v, devices %v, onset %+v: %s\n%+v",
				title, a.Kind, a.Ranks, a.Hosts, a.Devices, a.Onset, a.Summary, a.Inputs)
		}
		for _, f := range a.Findings {
			if f.File == "" || f.Text == "" {
				t.Errorf("%s: a finding without a file: %+v", title, f)
			}
		}
	}
}
