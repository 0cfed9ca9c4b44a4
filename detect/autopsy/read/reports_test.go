package read_test

import (
	"fmt"
	"strings"

	"github.com/failslow/falcon/detect/autopsy"
)

// smiOf is nvidia-smi's table of GPUs with the given utilisation.
func smiOf(percent ...int) string {
	var b strings.Builder
	b.WriteString("| NVIDIA-SMI 550.54.15     Driver Version: 550.54.15    CUDA Version: 12.4     |\n")
	for i, p := range percent {
		fmt.Fprintf(&b,
			"|   %d  NVIDIA H100 80GB HBM3     On  | 00000000:%02X:00.0 Off |                    0 |\n",
			i, 0x18+i)
		fmt.Fprintf(&b, "| N/A   41C    P0   120W / 700W |  61103MiB / 81559MiB |    %3d%%      Default |\n",
			p)
	}
	return b.String()
}

// pair is the output of nccl-tests on two nodes.
func pair(a, b string, gbs float64, wrong int) string {
	return fmt.Sprintf("# nccl-tests version 2.13.6\n# Using devices\n#  Rank  0 Group  0 Pid   1201 on     %s device  0 [0x1b] NVIDIA H100\n"+
		"#  Rank  1 Group  0 Pid   1202 on     %s device  0 [0x1b] NVIDIA H100\n"+
		"     1048576        262144     float     sum      -1     71.3   14.71   14.71      0     70.9   14.79   14.79      0\n"+
		"   268435456      67108864     float     sum      -1   1402.1   %.2f   %.2f      %d   1400.7   %.2f   %.2f      0\n"+
		"# Out of bounds values : 0 OK\n# Avg bus bandwidth    : %.4f\n",
		a, b, gbs, gbs, wrong, gbs, gbs, gbs/2)
}

func broken(rank int, op string) string {
	head := fmt.Sprintf("node-%d [stderr] [rank%d]:[E909 09:55:29.30 ProcessGroupNCCL.cpp:607] [Rank %d]",
		rank/4, rank, rank)
	return head + " Watchdog caught collective operation timeout: \nWorkNCCL(SeqNum=70, OpType=" + op +
		", NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600034 milliseconds before timing out.\n"
}

func cut(rank int, op string) string {
	head := fmt.Sprintf("[rank%d]:[E424 01:11:21.16 ProcessGroupNCCL.cpp:629] [Rank %d]", rank, rank)
	return head + " Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpTy\npe=" + op +
		", NumelIn=112, NumelOut=112, Timeout(ms)=1800000) ran for 1800010 milliseconds before timing out.\n"
}

func dumped(rank, newest int) string {
	return fmt.Sprintf("[rank%d]:[E307 05:29:18.1 ProcessGroupNCCL.cpp:1858] [PG ID 0 PG GUID 0(default_pg) Rank %d] Received a dump signal due to a collective "+
		"timeout from this local rank. Last enqueued NCCL work: %d, last completed NCCL work: 12.\n",
		rank, rank, newest)
}

func grouped(rank, within, seq int) string {
	return fmt.Sprintf("[rank%d]:[E626 06:24:44.9 ProcessGroupNCCL.cpp:1785] [PG ID 2 PG GUID 17(mesh_shard) Rank %d] Exception (either an error or timeout) "+
		"detected by watchdog at work: %d, last enqueued NCCL work: %d, last completed NCCL work: %d.\n",
		rank, within, seq, seq, seq-1)
}

func spikes() string {
	v := noisy(11)
	return lines(120, func(i int) string {
		s := 2.5
		if i%4 == 0 {
			s = 245
		}
		return fmt.Sprintf("INFO: global step %d: loss = 1.4688 (%.3f sec/step)", i, v(s))
	})
}

func throughputs() string {
	return lines(60, func(i int) string {
		rank := i % 8
		if i >= 20 {
			rank = 6
		}
		return fmt.Sprintf(
			"[batch=%d/600]:\n\t Train MinThroughput/Rank: 129.44TF/%d\n\t Train MaxThroughput/Rank: 129.54TF/%d",
			i+1, rank, i*5%8,
		)
	})
}

func twoRuns() string {
	v := noisy(12)
	return "\"Step\",\"node-a - perf/step_time_s\",\"node-b - perf/step_time_s\"\n" +
		lines(200, func(i int) string {
			a := 2.0
			if i >= 100 {
				a = 2.5
			}
			return fmt.Sprintf("\"%d\",\"%.4f\",\"\"\n\"%d\",\"\",\"%.4f\"", i, v(a), i, v(2))
		})
}

func recurs() string {
	v := noisy(13)
	return "step,iter_time_ms\n" + lines(500, func(i int) string {
		ms := 1000.0
		if i >= 160 && i%20 < 2 {
			ms = 1300
		}
		return fmt.Sprintf("%d,%.2f", i, v(ms))
	})
}

// ranksBy are lines of eight ranks, of which rank 3 changes.
func ranksBy(format string, before, after float64) string {
	v := noisy(14)
	return lines(8*40, func(i int) string {
		level := before
		if i%8 == 3 && i >= 8*20 {
			level = after
		}
		return fmt.Sprintf(format, i%8, i/8, v(level))
	})
}

func violations() string {
	return "# gpu    pwr  gtemp   mclk   pclk  pviol  tviol\n# Idx      W      C    MHz    MHz      %   bool\n" + lines(
		40,
		func(i int) string {
			hot := 0
			if i%4 == 3 {
				hot = 1
			}
			return fmt.Sprintf("    %d    300     60   1593   %d      0      %d", i%4, 1410-90*hot, hot)
		},
	)
}

func timersOnly() string {
	v := noisy(9)
	return lines(60, func(i int) string {
		return fmt.Sprintf("time (ms) | forward-compute: %.2f | backward-compute: %.2f | optimizer: 80.10",
			v(600+12*float64(i)), v(700+12*float64(i)))
	})
}

func deepSpeed() string {
	v := noisy(10)
	return lines(100, func(i int) string {
		rate := 83.0
		if i >= 60 {
			rate = 66
		}
		return fmt.Sprintf(
			"[2026-03-01 02:%02d:%02d,985] [INFO] [timer.py:189:stop] 0/%d, RunningAvgSamplesPerSec=83.48, CurrSamplesPerSec=%.4f, MemAllocated=0.26GB",
			i/8, i%8*7, 10*(i+1), v(rate),
		)
	})
}

const tables = "=== slowest ranks ===\n     rank   data_time   step_time\n      144     332.459      48.455\n      160       0.053     381.009\n" +
	"      328       0.025     381.041\n      138       0.022     381.038\n      139       0.019     381.038\n"

const rootCause = "E0813 06:19:49.8 161210 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) local_rank: 2 (pid: 161617) of binary: /bin/python3\n" +
	"Traceback (most recent call last):\n  File \"/bin/torchrun\", line 8, in <module>\n    raise ChildFailedError(\n" +
	"torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \ntrain.py FAILED\nFailures:\n  <NO_OTHER_FAILURES>\nRoot Cause (first observed failure):\n[0]:\n" +
	"  time      : 2026-03-07_13:02:57\n  host      : node-3\n  rank      : 14 (local_rank: 2)\n  exitcode  : -9 (pid: 161617)\n  error_file: <N/A>\n  traceback : Signal 9 (SIGKILL) received by PID 161617\n"

const stalled = "[1,0]<stderr>:[2026-04-13 13:56:31.861697: W /horovod/common/stall_inspector.cc:107] One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds. \n"

// reports are what frameworks, launchers and tools write of ranks, nodes and GPUs.
var reports = map[string]struct {
	name, text string
	want       want
}{
	"a watchdog's lines that a launcher broke": {
		"train.log",
		broken(8, "REDUCE") + broken(9, "REDUCE") + broken(10, "ALLREDUCE") + broken(11, "REDUCE"),
		want{kind: autopsy.KindHang, ranks: []int{10}},
	},
	"Horovod below mpirun": {
		"train.log",
		stalled +
			"[1,0]<stderr>:Missing ranks:\n[1,0]<stderr>:2: [allreduce.a, allreduce.b ...]\n[1,0]<stderr>:6: [allreduce.a ...]\n",
		want{kind: autopsy.KindHang, ranks: []int{2, 6}},
	},
	"Horovod, missing behind each tensor": {
		"train.log",
		stalled +
			"[1,0]<stderr>:Stalled ops:Broadcast_a [missing ranks: 1]\n[1,0]<stderr>:[2026-04-13 13:56:31.86: W operations.cc:588] Broadcast_b [missing ranks: 1]\n",
		want{kind: autopsy.KindHang, ranks: []int{1}},
	},
	"Horovod, ready behind each tensor": {
		"train.log",
		"WARNING: One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks. Stalled ops: loss [ready ranks: 3], conv1 [ready ranks: 2, 0, 1], conv2 [ready ranks: 2, 0, 1]\n",
		want{kind: autopsy.KindHang, ranks: []int{3}},
	},
	"a barrier inside a traceback": {
		"train.log",
		"Traceback (most recent call last):\n  File \"/job/train.py\", line 3, in <module>\n    dist.monitored_barrier()\nRuntimeError: [Rank 0]: Ranks 4, 5 failed to pass monitoredBarrier in 20000 ms\n",
		want{kind: autopsy.KindHang, ranks: []int{4, 5}},
	},
	"NCCL names the rank at which it found another collective": {
		"nccl.log",
		"node-1:3971:3971 [3] init.cu:1197 NCCL WARN Mismatched collective detected, please check your collective calls at and around rank 11. You can use NCCL_DEBUG=INFO\n",
		want{kind: autopsy.KindHang, ranks: []int{11}},
	},
	"sizes that differ on both ends": {
		"nccl.log",
		"10.0.23.10: host-10:1307:1307 [0] transport/net_ib.cc:1038 NCCL WARN NET/IB : req 0/1 tag 0 peer 10.0.23.6<58683> collective mismatch error, local size 496640 remote size 65536\n",
		want{
			kind:  autopsy.KindHang,
			ranks: []int{},
			text:  "different",
		},
	},
	"an inconsistent collective": {
		"train.log",
		"RuntimeError: Detected mismatch between collectives on ranks. Rank 3 is running inconsistent collective: CollectiveFingerPrint(OpType=BARRIER)\n",
		want{kind: autopsy.KindHang, ranks: []int{3}},
	},
	"the driver's lines of a lost GPU": {
		"dmesg.txt",
		"[ 1843.30] NVRM: The NVIDIA GPU 0000:b3:00.0\n               NVRM: (PCI ID: 10de:26b5) installed in this system has\n               NVRM: fallen off the bus and is not responding to commands.\n",
		want{kind: autopsy.KindFailed, devices: []string{"0000:b3:00"}},
	},
	"an Xid of a program": {
		"dmesg.txt",
		"[88.1] NVRM: Xid (PCI:0000:3b:00): 31, pid=9, name=python, Ch 00000008, intr 10000000. MMU Fault\n",
		want{kind: autopsy.KindFailed, devices: []string{"0000:3b:00"}},
	},
	"the rank that failed first": {"train.log", rootCause, want{
		kind:  autopsy.KindFailed,
		ranks: []int{14},
		hosts: []string{"node-3"},
		text:  "-9",
	}},
	"an end that a launcher reports": {
		"train.log",
		"[2026-01-03 10:11:12,555] [ERROR] [launch.py:321:sigkill_handler] ['/usr/bin/python', '-u', 'train.py', '--local_rank=3'] exits with return code = -9\n",
		want{kind: autopsy.KindFailed, text: "-9"},
	},
	"an ECC error of a rank and its task": {
		"train.log",
		"[rank5]: RuntimeError: CUDA error: uncorrectable ECC error encountered\nsrun: error: gpu-b12: task 5: Exited with exit code 1\n",
		want{
			kind:  autopsy.KindFailed,
			ranks: []int{5},
			hosts: []string{"gpu-b12"},
		},
	},
	"the node that Slurm lost, not that of the script": {
		"slurm.out",
		"srun: error: Node failure on gpu-c07\nslurmstepd: error: *** JOB 88123 ON gpu-c01 CANCELLED AT 2026-02-02T10:10:10 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n",
		want{kind: autopsy.KindFailed, hosts: []string{"gpu-c07"}},
	},
	"the task without memory": {
		"slurm.out",
		"slurmstepd: error: Detected 1 oom_kill event in StepId=88123.0.\nsrun: error: gpu-c04: task 33: Out Of Memory\n",
		want{
			kind:  autopsy.KindFailed,
			hosts: []string{"gpu-c04"},
			ranks: []int{33},
		},
	},
	"a GPU that idles in a hang": {
		"smi.txt",
		smiOf(100, 100, 100, 0, 100, 100, 100, 99),
		want{kind: autopsy.KindHang, devices: []string{"3"}},
	},
	"busy GPUs": {
		"smi.txt",
		smiOf(97, 98, 92, 97),
		want{kind: autopsy.KindHealthy},
	},
	"GPUs of no job": {"smi.txt", smiOf(0, 0, 0, 0), want{kind: autopsy.KindHealthy}},
	"half of the GPUs idle": {
		"smi.txt",
		smiOf(100, 0, 100, 0),
		want{kind: autopsy.KindHealthy},
	},
	"pairs of nodes": {
		"pairs.out",
		pair("n4", "n9", 49.4, 0) +
			pair("n2", "n1", 88.4, 0) +
			pair("n8", "n7", 88.2, 0) +
			pair("n1", "n4", 49.3, 0),
		want{kind: autopsy.KindSlow, hosts: []string{"n4"}},
	},
	"a pair that can't be distinguished": {
		"pairs.out",
		pair("n4", "n9", 49.4, 0) + pair("n2", "n1", 88.4, 0) + pair("n8", "n7", 88.2, 0),
		want{kind: autopsy.KindSlow, hosts: []string{}},
	},
	"pairs that are equal": {
		"pairs.out",
		pair("n4", "n9", 87.4, 0) + pair("n2", "n1", 88.4, 0) + pair("n8", "n7", 88.2, 0),
		want{kind: autopsy.KindHealthy},
	},
	"sockets": {"test.out", pair("n4", "n9", 0.12, 0), want{
		kind:  autopsy.KindSlow,
		hosts: []string{},
		text:  "Ethernet",
	}},
	"the run that is slower than the other": {
		"runs.csv",
		twoRuns(),
		want{kind: autopsy.KindSlow, hosts: []string{"node-a"}},
	},
	"slow iterations that begin to recur": {
		"run.csv",
		recurs(),
		want{kind: autopsy.KindSlow, onset: 160, text: "34 of"},
	},
	"rates of ranks": {
		"train.log",
		ranksBy("[rank %d] step: %d loss: 2.0 local_tps: %.0f", 5000, 3800),
		want{kind: autopsy.KindSlow, ranks: []int{3}},
	},
	"times of ranks": {
		"train.log",
		ranksBy("rank %d step %d forward_ms %.2f backward_ms 60.1", 30, 55),
		want{kind: autopsy.KindSlow, ranks: []int{3}},
	},
	"times of ranks below a launcher": {
		"train.log",
		ranksBy("[rank%d]:step %d forward_ms %.2f", 30, 55),
		want{kind: autopsy.KindSlow, ranks: []int{3}},
	},
	"a list of GPUs": {
		"gemm.txt",
		"GPU 0: 612.1 TFLOPS\nGPU 1: 613.0 TFLOPS\nGPU 2: 410.4 TFLOPS\nGPU 3: 611.7 TFLOPS\nGPU 4: 612.2 TFLOPS\n",
		want{kind: autopsy.KindSlow, devices: []string{"2"}},
	},
	"a report by rank": {
		"report.json",
		"{\n \"step\": 100,\n \"forward_time_s\": {\"0\": 0.30, \"1\": 0.31, \"2\": 0.55, \"3\": 0.30, \"4\": 0.30}\n}\n",
		want{kind: autopsy.KindSlow, ranks: []int{2}},
	},
	"a report as a list": {
		"report.json",
		"[{\"rank\": 0, \"forward_ms\": 30}, {\"rank\": 1, \"forward_ms\": 31}, {\"rank\": 2, \"forward_ms\": 55}, {\"rank\": 3, \"forward_ms\": 30}]",
		want{kind: autopsy.KindSlow, ranks: []int{2}},
	},
	"a configuration": {
		"config.json",
		"{\n \"layers\": {\"0\": 1, \"1\": 2, \"2\": 99},\n \"lr\": 0.1\n}\n",
		want{kind: autopsy.KindUnknown},
	},
	"checks of nodes": {
		"health.csv",
		"node,check,result\nn1,gemm,PASS\nn2,gemm,PASS\nn3,gemm,FAIL\n",
		want{kind: autopsy.KindFailed, hosts: []string{"n3"}},
	},
	"checks that passed": {
		"health.csv",
		"node,check,result\nn1,gemm,PASS\nn2,gemm,PASS\nn3,gemm,PASS\n",
		want{kind: autopsy.KindUnknown},
	},
	"a thermal violation": {
		"dmon.txt",
		violations(),
		want{kind: autopsy.KindSlow, devices: []string{"3"}},
	},
	"clocks of AMD GPUs": {
		"rocm.txt",
		"GPU  Temp   AvgPwr  SCLK     MCLK\n0    43.0c  290.0W  1700Mhz  1600Mhz\n1    44.0c  291.0W  1700Mhz  1600Mhz\n2    77.0c  180.0W  900Mhz   1600Mhz\n3    42.0c  289.0W  1700Mhz  1600Mhz\n",
		want{kind: autopsy.KindSlow, devices: []string{"2"}},
	},
	"a test without a root": {
		"test.out",
		strings.ReplaceAll(pair("n4", "n9", 88, 0), "sum      -1", "sum       -"),
		want{kind: autopsy.KindHealthy},
	},
	"three iterations": {
		"train.log",
		megatron(10, 84606) + "\n" + megatron(15, 142474) + "\n" + megatron(20, 202438) + "\n",
		want{kind: autopsy.KindUnknown},
	},
	"wrong results": {
		"test.out",
		pair("n4", "n9", 88, 12),
		want{kind: autopsy.KindFailed, text: "corrupted"},
	},
	"DLRover's list": {
		"m.log",
		"The elapsed time of nodes are {2: 20.18, 3: 18.72, 0: 181.8, 1: 143.06}\nThe elapsed time of nodes are {2: 20.18, 3: 18.72, 0: 19.91, 1: 143.06}\n",
		want{kind: autopsy.KindSlow, hosts: []string{"1"}},
	},
	"a table inside a text": {
		"report.txt",
		tables,
		want{kind: autopsy.KindSlow, ranks: []int{144}},
	},
	"a table with bars": {
		"report.md",
		"| rank | backward_ms | dataloader_ms |\n|---|---|---|\n| 0 | 293.0 | 10.4 |\n| 1 | 292.2 | 10.2 |\n| 2 | 293.0 | 199.7 |\n| 3 | 293.1 | 10.1 |\n",
		want{kind: autopsy.KindSlow, ranks: []int{2}},
	},
	"a table of losses": {
		"report.md",
		"| rank | loss |\n|---|---|\n| 0 | 2.0 |\n| 1 | 9.2 |\n| 2 | 2.0 |\n| 3 | 2.1 |\n",
		want{kind: autopsy.KindUnknown},
	},
	"a list of nodes": {
		"bw.txt",
		"node01: 386.1 GB/s\nnode02: 385.2 GB/s\nnode03: 387.0 GB/s\nnode04: 190.5 GB/s\nnode05: 386.8 GB/s\n",
		want{kind: autopsy.KindSlow, hosts: []string{"node04"}},
	},
	"a list of sizes": {
		"du.txt",
		"ckpt01: 386.1 GB\nckpt02: 385.2 GB\nckpt03: 387.0 GB\nckpt04: 1.5 GB\n",
		want{kind: autopsy.KindUnknown},
	},
	"a table of waiting": {
		"comms.log",
		"Comm. Op            Message Size        Count               Total comm lat(ms)  Total straggler(ms) Avg comm lat(ms)    Avg straggler(ms)   \nall_reduce\n" +
			"                    4.0 KB              24240               1207.82             9042.11             0.05                0.37                \n",
		want{
			kind:  autopsy.KindSlow,
			ranks: []int{},
			text:  "all_reduce",
		},
	},
	"lines that a terminal cut": {
		"train.log", cut(0, "BROADCAST") + cut(1, "BROADCAST") + cut(2, "ALLREDUCE") + cut(3, "BROADCAST"),
		want{kind: autopsy.KindHang, ranks: []int{2}},
	},
	"a watchdog's dump": {
		"train.log", dumped(0, 855) + dumped(1, 855) + dumped(2, 12) + dumped(3, 855),
		want{kind: autopsy.KindHang, ranks: []int{2}},
	},
	"ranks of a group beside those of the job": {
		"train.log", grouped(8, 0, 500) + grouped(9, 1, 500) + grouped(10, 2, 499) + grouped(11, 3, 500),
		want{kind: autopsy.KindHang, ranks: []int{10}},
	},
	"the culprit of a comparison": {
		"fr.txt",
		"collective: nccl:all_reduce\nerror msg: Culprit rank 22; Error type: SIZE_OR_SYNTAX_MISMATCH, Expected input sizes: '[[1025]]'\n",
		want{kind: autopsy.KindHang, ranks: []int{22}},
	},
	"who is missing in a comparison": {
		"fr.txt",
		"Not all ranks joining collective, sequence number: 88\ncollective: nccl:all_reduce\nmissing ranks: {3}\nworld size: 8\n",
		want{kind: autopsy.KindHang, ranks: []int{3}},
	},
	"a barrier of JAX": {
		"train.log",
		"XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: sync0. Timed out task names:\n/job:jax_worker/replica:0/task:3\n/job:jax_worker/replica:0/task:7\n\nmore\n",
		want{kind: autopsy.KindHang, ranks: []int{3, 7}},
	},
	"HCCL waits for a rank": {
		"train.log",
		"[rank3]: EI0002: The wait execution of the Notify register times out. Reason: The Notify register has not received the Notify record from remote rank [5]. base\n",
		want{kind: autopsy.KindHang, ranks: []int{5}},
	},
	"HCCL waits for one that it does not know": {
		"train.log",
		"EI0002: The wait execution of the Notify register times out. Reason: The Notify register has not received the Notify record from remote rank [4294967295].base\n",
		want{kind: autopsy.KindHang, ranks: []int{}},
	},
	"a process that RAS can't reach, before who is behind": {
		"ras.txt",
		"DEAD\n  1 job process is considered dead (unreachable via the RAS network)\n  Process 3487 on node 172.16.64.213 managing GPU 5\n\n#0-0 (27a079b828ff1a75) MISMATCH\n" +
			"  Communicator ranks have different collective operation counts\n  26 ranks have launched up to operation 6650\n  2 ranks have launched up to operation 6649\n" +
			"  Rank 0 -- GPU 0 managed by process 148 on node 172.16.64.210\n  Rank 2 -- GPU 2 managed by process 149 on node 172.16.64.210\n",
		want{
			kind:  autopsy.KindHang,
			hosts: []string{"172.16.64.213"},
			ranks: []int{},
		},
	},
	"a port that fails": {
		"nccl.log",
		"gpu-a:31:92 [3] transport/net_ib.cc:86 NCCL WARN NET/IB : Got async event : port error\n",
		want{kind: autopsy.KindFailed},
	},
	"ranks that can't connect": {
		"train.log",
		"[rank4]:[E421 02:05:38.76 ProcessGroupGloo.cpp:143] Gloo connectFullMesh failed with [pair.cc:144] no error\n",
		want{kind: autopsy.KindFailed, ranks: []int{}},
	},
	"an error below Ray": {
		"ray.log",
		"(Trainer pid=8464, ip=10.0.0.7) Traceback (most recent call last):\n(Trainer pid=8464, ip=10.0.0.7)   File \"/job/train.py\", line 8, in <module>\n" +
			"(Trainer pid=8464, ip=10.0.0.7) ValueError: bad sample\n(Trainer pid=8465, ip=10.0.0.8) torch.distributed.DistBackendError: NCCL communicator was aborted on rank 0.\n",
		want{kind: autopsy.KindFailed, hosts: []string{"10.0.0.7"}},
	},
	"a test of DCGM": {
		"diag.txt",
		"| GPU Memory                | Fail - GPU: 3                                  |\n| Pulse Test                | Pass - All       |\n",
		want{kind: autopsy.KindFailed, devices: []string{"3"}},
	},
	"tests of DCGM that pass": {
		"diag.txt",
		"| GPU Memory                | Pass - All                                     |\n",
		want{kind: autopsy.KindUnknown},
	},
	"an AMD GPU that hangs": {
		"train.log",
		"HW Exception by GPU node-5 (Agent handle: 0x5a) reason :GPU Hang\n",
		want{kind: autopsy.KindFailed, devices: []string{"node-5"}},
	},
	"a network adapter": {
		"dmesg.txt",
		"[ 99.1] NETDEV WATCHDOG: ens3f0 (mlx5_core): transmit queue 5 timed out\n",
		want{kind: autopsy.KindFailed, devices: []string{"ens3f0"}},
	},
	"a straggler in a sentence": {
		"train.log",
		"2026-05-01 10:00:00 WARNING Detected straggler: rank 5 on node gpu-7, 1.8x slower than the median\n",
		want{kind: autopsy.KindSlow, ranks: []int{5}},
	},
	"ranks that a callback warns of": {
		"train.log",
		"STRAGGLER DETECTION WARNING: Some GPUs have worse relative performance. Affected ranks: 13\n",
		want{kind: autopsy.KindSlow, ranks: []int{13}},
	},
	"a Slurm account": {
		"sacct.txt",
		"       JobID      State ExitCode\n------------ ---------- --------\n474680        NODE_FAIL      0:0\n",
		want{kind: autopsy.KindFailed},
	},
	"iterations that stand again and again": {
		"train.log",
		spikes(),
		want{kind: autopsy.KindSlow, text: "of all time"},
	},
	"the lowest throughput is always the same rank's": {
		"train.log",
		throughputs(),
		want{kind: autopsy.KindSlow, ranks: []int{6}},
	},
	"a network file system that lost its server": {
		"dmesg.txt",
		"Feb  2 10:00:00 n1 kernel: LustreError: 11-0: scratch-OST0003: operation ost_read to node 10.1.1.3@o2ib failed: rc = -107\n",
		want{kind: autopsy.KindFailed},
	},
	"timers alone": {
		"train.log",
		timersOnly(),
		want{kind: autopsy.KindSlow},
	},
	"a rate beside its mean": {
		"train.log",
		deepSpeed(),
		want{kind: autopsy.KindSlow, onset: 610},
	},
	"an eviction by Kubernetes": {
		"events.txt",
		"4m11s       Warning   Evicted               pod/train-worker-3    The node was low on resource: memory.\n",
		want{kind: autopsy.KindFailed},
	},
}
