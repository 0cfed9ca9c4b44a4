package read

import (
	"regexp"

	"github.com/failslow/falcon/detect/autopsy"
	"github.com/failslow/falcon/detect/xidcode"
)

// faultLine is one kind of line that states a fault.
type faultLine struct {
	needle string // that every such line has, as written: most lines have none and are not looked at closer
	form   *regexp.Regexp
	kind   string
	class  autopsy.Class
	text   string
	advice string
	// Groups of form: "rank", "host", "device", "code".
}

// Advice that several lines share.
const (
	seeGPU      = "Drain the node, read the kernel's log for an Xid of that time, reset the GPU; replace it where it comes again."
	seeProgram  = "Read the lines before it on the rank that raised it first; the ends of the others follow from it."
	seePeer     = "Find the rank or node that ended first: this connection went with it."
	seeMemory   = "Lower the memory that a step needs, or look for what grows: a cache, a leak, a longer sequence."
	seeLink     = "Test the link and its port; look at the switch's counters of the same time."
	seeStorage  = "Look at the file system's servers and its clients' logs of the same time."
	seeMismatch = "Compare what ranks do before that call: a branch, a data length or a number of batches that differs between ranks."
	seeStanding = "Take stacks of all ranks (py-spy dump) and NCCL's flight recorder before it ends; the rank that is not in the call is the one to look at."
)

// faultLines are looked for in this order; the first that fits a line counts.
var faultLines = []faultLine{
	{needle: "Xid", form: regexp.MustCompile(`Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)`), kind: "xid", class: autopsy.Hardware},
	{
		needle: "fallen off the bus", form: regexp.MustCompile(`GPU ([0-9a-fA-F:.]{7,}):? .*fallen off the bus`), kind: "xid", class: autopsy.Hardware,
		text: "the GPU has fallen off the bus", advice: xidcode.Of(79).Advice,
	},
	{
		needle: "fallen off the bus", form: regexp.MustCompile(`(?:NVRM: |GPU (?:has|is) )fallen off the bus`), kind: "bus", class: autopsy.Hardware,
		text: "the GPU has fallen off the bus", advice: xidcode.Of(79).Advice,
	},
	{
		needle: "ECC", form: regexp.MustCompile(`(?i)uncorrectable ECC|ECCUncorrectable|double.bit ECC`), kind: "ecc", class: autopsy.Hardware,
		text: "an uncorrectable memory error of a GPU", advice: seeGPU,
	},
	{
		needle: "SXid", form: regexp.MustCompile(`SXid \(PCI:([0-9a-fA-F:.]+)\): \d+, Fatal`), kind: "nvswitch", class: autopsy.Hardware,
		text: "an NVSwitch reports a fatal error", advice: "Take the node out and reset its switches and GPUs together; have the board checked where it comes again.",
	},
	{
		needle: "PCIe Bus Error", form: regexp.MustCompile(`(\S+): PCIe Bus Error: severity=Uncorrect`), kind: "pcie", class: autopsy.Hardware,
		text: "an uncorrected error of PCIe", advice: "Take the node out; reseat or replace the device.",
	},
	{
		needle: "[Hardware Error]", form: regexp.MustCompile(`\[Hardware Error\]`), kind: "machine_check", class: autopsy.Warning,
		text: "the host reports a hardware error", advice: "Read the machine check (mcelog, rasdaemon) of that time.",
	},
	{
		needle: "ncorrectable NVLink", form: regexp.MustCompile(`(?i)uncorrectable NVLink error`), kind: "nvlink", class: autopsy.Hardware,
		text: "an NVLink error", advice: xidcode.Of(74).Advice,
	},
	{
		needle: "hardware error", form: regexp.MustCompile(`CUDA error: (unspecified launch failure|hardware stack error|.*hardware error)`), kind: "cuda",
		class: autopsy.Hardware, text: "the GPU reports a hardware error", advice: seeGPU,
	},
	{
		needle: "Got completion", form: regexp.MustCompile(`Got completion .*with (?:error|status=?) ?\d+.*?(?:hca (\S+))?$`), kind: "ib_completion",
		class: autopsy.Network, text: "a transfer of InfiniBand or RoCE failed", advice: seeLink,
	},
	{
		needle: "async", form: regexp.MustCompile(`NET/IB.*(?:got|Got) async (?:fatal )?event ?: ?(?:port error|.*fatal|.*error)`), kind: "ib_event",
		class: autopsy.Hardware, text: "a network adapter reports an event", advice: seeLink,
	},
	{
		needle: "NETDEV WATCHDOG", form: regexp.MustCompile(`NETDEV WATCHDOG: (\S+)`), kind: "adapter", class: autopsy.Hardware,
		text: "a network adapter does not send", advice: seeLink,
	},
	{
		needle: "health compromised", form: regexp.MustCompile(`mlx5_core (\S+?): .*health compromised`), kind: "adapter", class: autopsy.Hardware,
		text: "a network adapter reports that it is not well", advice: seeLink,
	},
	{
		needle: "Memory access fault by GPU", form: regexp.MustCompile(`Memory access fault by GPU (node-\d+)`), kind: "amd_gpu", class: autopsy.Program,
		text: "an AMD GPU accessed memory that it may not", advice: "Most often the program's own fault: look at its last lines and at the kernel's log; test the GPU where it comes again on the same one.",
	},
	{
		needle: "HW Exception by GPU", form: regexp.MustCompile(`HW Exception by GPU (node-\d+)`), kind: "amd_gpu", class: autopsy.Hardware,
		text: "an AMD GPU reports a hardware exception", advice: seeGPU,
	},
	{
		needle: "amdgpu", form: regexp.MustCompile(`amdgpu ([0-9a-f:.]+): amdgpu: (?:uncorrectable hardware errors detected|GPU reset begin|ring \S+ timeout)`), kind: "amd_gpu",
		class: autopsy.Hardware, text: "the driver of an AMD GPU reports a hardware error, or resets it", advice: seeGPU,
	},
	{
		needle: "Fail", form: regexp.MustCompile(`^\| ([\w ]+?) +\| Fail(?: - (?:All|GPUs?: ([\d, ]+)))?`), kind: "dcgm_diag", class: autopsy.Hardware,
		text: "a test of dcgmi diag failed", advice: seeGPU,
	},
	{
		needle: "Link DOWN", form: regexp.MustCompile(`(mlx5_\d+|\w+): Port: \d+ Link DOWN`), kind: "link_down", class: autopsy.Warning,
		text: "a port lost its link", advice: seeLink,
	},
	{
		needle: "EDAC", form: regexp.MustCompile(`EDAC .* (?:UE|CE) `), kind: "host_memory", class: autopsy.Warning,
		text: "the host's memory reports an error", advice: "Run the vendor's memory diagnostics; replace the module where it comes again.",
	},
	{
		needle: "Out Of Memory", form: regexp.MustCompile(`srun: error: (\S+): tasks? ([\d,-]+): Out Of Memory`), kind: "host_oom", class: autopsy.Memory,
		text: "the kernel ended a process: the host had no memory left", advice: seeMemory,
	},
	{
		needle: "oom_kill", form: regexp.MustCompile(`(?i)detected \d+ oom_kill|oom_kill_process`), kind: "host_oom", class: autopsy.Memory,
		text: "the kernel ended a process: the host had no memory left", advice: seeMemory,
	},
	{
		needle: "oom-kill", form: regexp.MustCompile(`oom-kill`), kind: "host_oom", class: autopsy.Memory,
		text: "the kernel ended a process: the host had no memory left", advice: seeMemory,
	},
	{
		needle: "Out of memory: Kill", form: regexp.MustCompile(`Out of memory: Kill`), kind: "host_oom", class: autopsy.Memory,
		text: "the kernel ended a process: the host had no memory left", advice: seeMemory,
	},
	{
		needle: "OOMKilled", form: regexp.MustCompile(`OOMKilled`), kind: "host_oom", class: autopsy.Memory,
		text: "the container went over its memory", advice: seeMemory,
	},
	{
		needle: "out of memory", form: regexp.MustCompile(`(?:CUDA|HIP).*out of memory|OutOfMemoryError`), kind: "oom", class: autopsy.Memory,
		text: "a GPU had no memory left", advice: seeMemory,
	},
	{
		needle: "out-of-memory", form: regexp.MustCompile(`out-of-memory`), kind: "host_oom", class: autopsy.Memory,
		text: "Slurm ended a task: the host had no memory left", advice: seeMemory,
	},
	{
		needle: "DataLoader worker", form: regexp.MustCompile(`DataLoader worker .*(?:killed by signal|exited unexpectedly)`), kind: "dataloader",
		class: autopsy.Memory, text: "a DataLoader's worker ended: most often the host's or the container's memory, or /dev/shm", advice: seeMemory,
	},
	{
		needle: "Evicted", form: regexp.MustCompile(`Evicted|low on resource`), kind: "evicted", class: autopsy.Ending,
		text: "Kubernetes evicted a pod", advice: "Look at the node's conditions of that time (kubectl describe node).",
	},
	{
		needle: "No space left on device", form: regexp.MustCompile(`No space left on device`), kind: "disk_full", class: autopsy.Storage,
		text: "a file system is full", advice: "Free space, or write elsewhere; the last checkpoint may be incomplete.",
	},
	{
		needle: "Stale file handle", form: regexp.MustCompile(`Stale file handle|ESTALE`), kind: "storage", class: autopsy.Storage,
		text: "a network file system lost a file", advice: seeStorage,
	},
	{
		needle: "Input/output error", form: regexp.MustCompile(`Input/output error`), kind: "storage", class: autopsy.Storage,
		text: "a file system failed", advice: seeStorage,
	},
	{
		needle: "I/O error", form: regexp.MustCompile(`I/O error, dev (\S+)`), kind: "storage", class: autopsy.Storage,
		text: "a disk failed", advice: "Look at the disk's own health (smartctl, nvme smart-log).",
	},
	{
		needle: "nvme", form: regexp.MustCompile(`nvme \S+: I/O \d+ .*timeout`), kind: "storage", class: autopsy.Storage,
		text: "a disk does not answer", advice: "Look at the disk's own health (nvme smart-log).",
	},
	{
		needle: "Lustre", form: regexp.MustCompile(`LustreError: .*failed|Lustre: .*was lost`), kind: "storage", class: autopsy.Storage,
		text: "a network file system lost its server", advice: seeStorage,
	},
	{
		needle: "not responding", form: regexp.MustCompile(`nfs: server (\S+) not responding|lustre.*not responding`), kind: "storage", class: autopsy.Storage,
		text: "a network file system does not answer", advice: seeStorage,
	},
	{
		needle: "blocked for more than", form: regexp.MustCompile(`INFO: task \S+ blocked for more than \d+ seconds`), kind: "blocked", class: autopsy.Warning,
		text: "a process of the host waits for a device or file system", advice: seeStorage,
	},
	{
		needle: "Watchdog caught collective", form: regexp.MustCompile(`Watchdog caught collective operation timeout`), kind: "watchdog", class: autopsy.Watchdog,
		text: "a collective did not end in time", advice: seeStanding,
	},
	{
		needle: "watchdog", form: regexp.MustCompile(`detected by watchdog at work|watchdog got stuck|collective operation timeout`), kind: "watchdog",
		class: autopsy.Watchdog, text: "a collective did not end in time", advice: seeStanding,
	},
	{
		needle: "store based barrier", form: regexp.MustCompile(`Timed out initializing process group in store based barrier`), kind: "start", class: autopsy.Watchdog,
		text: "not all ranks came to the start", advice: "Look for the ranks that never began: their nodes, their launcher's output.",
	},
	{
		needle: "clients joined", form: regexp.MustCompile(`waiting for clients\. \d+/\d+ clients joined`), kind: "start", class: autopsy.Watchdog,
		text: "not all ranks came to the start", advice: "Look for the ranks that never began: their nodes, their launcher's output.",
	},
	{
		needle: "tensors were submitted", form: regexp.MustCompile(`One or more tensors were submitted to be reduced`), kind: "stall",
		class: autopsy.Watchdog, text: "Horovod reports a stall", advice: seeStanding,
	},
	{
		needle: "ismatch", form: regexp.MustCompile(`Mismatched collective detected|collective mismatch error|Detected mismatch between collectives`), kind: "mismatch",
		class: autopsy.Watchdog, text: "ranks called different collectives, or with different sizes", advice: seeMismatch,
	},
	{
		needle: "Barrier timed out", form: regexp.MustCompile(`Barrier timed out`), kind: "barrier", class: autopsy.Watchdog,
		text: "not all tasks came to a barrier of JAX", advice: seeStanding,
	},
	{
		needle: "Notify register times out", form: regexp.MustCompile(`EI0002`), kind: "watchdog", class: autopsy.Watchdog,
		text: "a collective of HCCL did not end in time", advice: seeStanding,
	},
	{
		needle: "EI0006", form: regexp.MustCompile(`EI0006`), kind: "start", class: autopsy.Watchdog,
		text: "ranks of HCCL did not find each other", advice: seePeer,
	},
	{
		needle: "joining collective", form: regexp.MustCompile(`Not all ranks joining collective`), kind: "watchdog", class: autopsy.Watchdog,
		text: "not all ranks came to a collective", advice: seeStanding,
	},
	{
		needle: "connectFullMesh", form: regexp.MustCompile(`connectFullMesh failed`), kind: "gloo", class: autopsy.Network,
		text: "ranks could not connect to each other (gloo)", advice: "Set GLOO_SOCKET_IFNAME to the interface that all nodes reach; look for a firewall, or a host's name that leads to 127.0.0.1.",
	},
	{
		needle: "NODE_FAIL", form: regexp.MustCompile(`\bNODE_FAIL\b`), kind: "node_failure", class: autopsy.Hardware,
		text: "Slurm gave up a node", advice: "Look at the node's console and its Slurm state (sinfo -R).",
	},
	{
		needle: "OUT_OF_ME", form: regexp.MustCompile(`\bOUT_OF_ME(?:MORY|\+)?`), kind: "host_oom", class: autopsy.Memory,
		text: "the kernel ended a process: the host had no memory left", advice: seeMemory,
	},
	{
		needle: "Heartbeat monitor timed out", form: regexp.MustCompile(`Heartbeat monitor timed out`), kind: "watchdog", class: autopsy.Watchdog,
		text: "PyTorch's own watchdog stood still", advice: seeStanding,
	},
	{
		needle: "Some NCCL operations have failed", form: regexp.MustCompile(`Some NCCL operations`), kind: "nccl_follows", class: autopsy.Consequence,
		text: "PyTorch ends the process after a failed collective", advice: seePeer,
	},
	{
		needle: "entire process down", form: regexp.MustCompile(`entire process down`), kind: "nccl_follows", class: autopsy.Consequence,
		text: "PyTorch ends the process after a failed collective", advice: seePeer,
	},
	{
		needle: "remote process exited", form: regexp.MustCompile(`remote process exited or there was a network error`), kind: "nccl_follows",
		class: autopsy.Consequence, text: "a peer ended, or its network failed", advice: seePeer,
	},
	{
		needle: "Connection reset by peer", form: regexp.MustCompile(`Connection reset by peer`), kind: "connection", class: autopsy.Consequence,
		text: "a connection to a peer was lost", advice: seePeer,
	},
	{
		needle: "Connection closed by", form: regexp.MustCompile(`Connection closed by (?:remote )?peer`), kind: "connection", class: autopsy.Consequence,
		text: "a connection to a peer was lost", advice: seePeer,
	},
	{
		needle: "ncclInternalError", form: regexp.MustCompile(`ncclInternalError|ncclSystemError|ncclUnhandledCudaError`), kind: "nccl", class: autopsy.Network,
		text: "NCCL failed", advice: "Read NCCL's first WARN line; set NCCL_DEBUG=WARN for the next run.",
	},
	{
		needle: "NCCL WARN", form: regexp.MustCompile(`NCCL WARN (?:Call to (?:connect|recv|send).*failed|Connect to .* failed|NET/)`), kind: "nccl_net", class: autopsy.Network,
		text: "NCCL reports a network error", advice: seeLink,
	},
	{
		needle: "NCCL WARN", form: regexp.MustCompile(`NCCL WARN`), kind: "nccl_warn", class: autopsy.Warning,
		text: "NCCL warns", advice: "Read the line; NCCL's documentation of its environment has most of them.",
	},
	{
		needle: "Cuda failure", form: regexp.MustCompile(`Cuda failure (?:\d+ )?'([^']+)'`), kind: "cuda", class: autopsy.Program,
		text: "a CUDA call of NCCL failed", advice: "Look for the first error of that rank; test the GPU where it comes on the same one.",
	},
	{
		needle: "CUDA error", form: regexp.MustCompile(`CUDA error: ([^\n]+)`), kind: "cuda", class: autopsy.Program,
		text: "a CUDA call failed", advice: "Run the failing rank again with CUDA_LAUNCH_BLOCKING=1; test the GPU where it comes on the same one.",
	},
	{
		needle: "DUE TO TIME LIMIT", form: regexp.MustCompile(`DUE TO TIME LIMIT`), kind: "time_limit", class: autopsy.Ending,
		text: "the job's time limit ended it", advice: "Start it again from its checkpoint, with more time.",
	},
	{
		needle: "Node failure on", form: regexp.MustCompile(`Node failure on (\S+)`), kind: "node_failure", class: autopsy.Hardware,
		text: "Slurm gave up a node", advice: "Look at the node's console and its Slurm state (sinfo -R).",
	},
	{
		needle: "DUE TO NODE FAILURE", form: regexp.MustCompile(`CANCELLED .*DUE TO NODE FAILURE`), kind: "node_failure", class: autopsy.Hardware,
		text: "Slurm gave up a node", advice: "Look at the node's console and its Slurm state (sinfo -R).",
	},
	{
		needle: "DUE TO PREEMPTION", form: regexp.MustCompile(`DUE TO PREEMPTION`), kind: "preempted", class: autopsy.Ending,
		text: "the job was preempted", advice: "Start it again from its checkpoint.",
	},
	{
		needle: "CANCELLED AT", form: regexp.MustCompile(`CANCELLED AT`), kind: "cancelled", class: autopsy.Ending,
		text: "somebody or a launcher cancelled the job", advice: "Ask who cancelled it; look for a fault before.",
	},
	{
		needle: "Segmentation fault", form: regexp.MustCompile(`(?:error: (\S+): task (\d+): )?.*Segmentation fault`), kind: "crash", class: autopsy.Program,
		text: "a process crashed", advice: "Look at the stack that follows it, or at a core file.",
	},
	{
		needle: "srun: error: ", form: regexp.MustCompile(`srun: error: (\S+): tasks? ([\d,-]+): (?:Aborted|Exited|Bus error|Illegal|Floating)`), kind: "task_ended", class: autopsy.Ending,
		text: "a task ended by itself", advice: seeProgram,
	},
	{
		needle: "srun: error: ", form: regexp.MustCompile(`srun: error: (\S+): tasks? ([\d,-]+): (?:Killed|Terminated)`), kind: "task_killed", class: autopsy.Ending,
		text: "a task was ended from outside", advice: seeProgram,
	},
	{
		needle: "ChildFailedError", form: regexp.MustCompile(`ChildFailedError`), kind: "launcher", class: autopsy.Ending,
		text: "torchrun reports a failed rank", advice: seeProgram,
	},
	{
		needle: "failed (exitcode:", form: regexp.MustCompile(`failed \(exitcode: (-?\d+)\) local_rank: (\d+)`), kind: "local_rank_ended", class: autopsy.Ending,
		text: "torchrun reports a failed process", advice: seeProgram,
	},
	{
		needle: "exits with return code", form: regexp.MustCompile(`(?:--local_rank=(\d+).*)?exits with return code = (-?[1-9]\d*)`), kind: "launcher",
		class: autopsy.Ending, text: "DeepSpeed's launcher reports a failed process", advice: seeProgram,
	},
	{
		needle: "Test NCCL failure", form: regexp.MustCompile(`Test NCCL failure`), kind: "nccl", class: autopsy.Network,
		text: "NCCL's test failed", advice: "Read NCCL's first WARN line; set NCCL_DEBUG=WARN for the next run.",
	},
	{
		needle: "NodeNotReady", form: regexp.MustCompile(`NodeNotReady`), kind: "node_not_ready", class: autopsy.Warning,
		text: "Kubernetes lost a node for some time", advice: "Look at the node's conditions of that time (kubectl describe node).",
	},
}
