package main

const cell = `\s*([^|]*?)\s*\|`

var chapters = []chapter{
	{"Detection of a slow job or rank", []figure{
		{
			"generated jobs of one node judged rightly; false positives, false negatives",
			"benchmarks.md", "eval",
			`(?s)### single node.*?\n\| Falcon \| \d+ \|` + cell + cell + cell,
			"%s; %s, %s",
		},
		{
			"the same on four nodes; the paper: 99.1 %; 0.0 %, 2.3 %",
			"benchmarks.md", "eval",
			`(?s)### four nodes.*?\n\| Falcon \| \d+ \|` + cell + cell + cell,
			"%s; %s, %s",
		},
		{
			"slow GPUs named in PyTorch jobs without an adapter (GPUs emulated); iterations, median and most",
			"torch.md", "-",
			`^\| nccl \| (\d+) \| (\d+) \| \d+ \|` + cell,
			"%[2]s of %[1]s; %[3]s",
		},
		{
			"recoveries begun in a healthy job beside CPU hogs, 40,000 iterations",
			"recoveries.md", "soak",
			`: (\d+) recoveries were begun`,
			"%s",
		},
	}},
	{"What mitigation wins back (networks and GPUs emulated)", []figure{
		{
			"mixed faults, 64 GPUs, 4 h: slowdown removed, median (least to most); the paper: 60.1 %",
			"benchmarks.md", "table7",
			`(?s)### FALCON fig\. 20, 64 GPUs.*?\n\| Falcon, median[^|]*\|` + cell + cell + cell + cell,
			"%[4]s",
		},
		{
			"work moved between 4 replicas, one 2.01 times as slow: removed; the paper: 79.7 %",
			"figures-sim.md", "-",
			`^\| 1 of 4 replicas slow \|` + cell + cell + cell + cell,
			"%[4]s",
		},
		{
			"ranks moved off 2 congested paths: removed; the paper: 57.0 %",
			"figures-sim.md", "-",
			`^\| 2 congested paths \|` + cell + cell + cell + cell,
			"%[4]s",
		},
	}},
	{"Recovery from a death", []figure{
		{
			"a process killed is known after ms: median, longest",
			"recoveries.md", "detection",
			`^\| a process killed \(SIGKILL\) \| \d+ \| (\d+) \| \d+ \| (\d+)`,
			"%s, %s",
		},
		{
			"a node killed is known after ms: median, longest",
			"recoveries.md", "detection",
			`^\| a node killed[^|]*\| \d+ \| (\d+) \| \d+ \| (\d+)`,
			"%s, %s",
		},
		{
			"kills at random moments recovered to the bit (GPUs emulated); down ms: median, longest",
			"recoveries.md", "recoveries",
			`(?s)Right: (\d+ of \d+);.*?\| down \| \d+ \| (\d+) \| \d+ \| (\d+)`,
			"%s; %s, %s",
		},
		{
			"ranks of PyTorch jobs killed and recovered on emulated GPUs; known, down ms: median, most",
			"torch.md", "-",
			`^\| nccl \| (\d+) \| (\d+) \|` + cell + cell,
			"%[2]s of %[1]s; %[3]s; %[4]s",
		},
		{
			"first-stage ranks of a PyTorch pipeline killed in their backward pass: recovered",
			"torch.md", "-",
			`^\| 1f1b \| (\d+) \| (\d+)`,
			"%[2]s of %[1]s",
		},
		{
			"a node of 18,000 emulated devices lost: seconds until it trains, without starts of processes; ratio to 32 devices",
			"flashrecovery.md", "-",
			`^\| 18000 \| 1 \|(?:[^|]*\|){7} ([\d.]+) \| ([\d.]+) \| ([\d.]+)`,
			"%[2]s; %[3]s",
		},
	}},
	{"What it costs", []figure{
		{
			"the hook, ns added to an NCCL call",
			"benchmarks.md", "bench-hook-call",
			`"threads":1,.*"added_ns":([\d.]+)`,
			"%s",
		},
		{
			"iteration time with the hook over without it, paced; unpaced on the same two cores as agents and engine",
			"benchmarks.md", "bench-hook-pairs",
			`(?s) paced,.*?iteration time median ([\d.]+).*unpaced,.*?iteration time median ([\d.]+)`,
			"%s; %s",
		},
		{
			"the detector, ns for one iteration of 100,000 ranks",
			"benchmarks.md", "bench-detector",
			`^BenchmarkStep/adaptive/ranks=100000\S*\s+\d+\s+(\d+) ns/op`,
			"%s",
		},
		{
			"an engine with emulated agents of 32,000 ranks: cores; MB, peak; pull ms, p50 and p95",
			"benchmarks.md", "scale",
			`^\| 4000 / 32000 \| ([\d.]+)[^|]*\|[^|]*\|` + cell + `[^|]*\|[^|]*\|` + cell,
			"%s; %s; %s",
		},
		{
			"10,000 clients of the rendezvous store released, s; PyTorch's own",
			"benchmarks.md", "bench-store",
			`^10000 +([\d.]+) +\d+ +([\d.]+)`,
			"%s; %s",
		},
		{
			"the console, ns for a screen of 100,000 ranks, 120×40",
			"benchmarks.md", "bench-console",
			`^BenchmarkCompose100k/ranks_120x40\S*\s+\d+\s+(\d+) ns/op`,
			"%s",
		},
		{
			"a key until the screen has changed, ms: p50, p95",
			"benchmarks.md", "bench-console",
			`^BenchmarkKeyToScreen-\d+\s.*?([\d.]+) p50-ms\s+([\d.]+) p95-ms`,
			"%s, %s",
		},
	}},
}
