"""The report of gpu.py for people."""

import time


def figures(results: dict[str, dict], gemm_n: int) -> list[tuple[str, str]]:
    """Name the figures that a reader looks for; a part that was not done has none."""
    out = []
    if o := results.get("overhead"):
        out += overhead_figures(o)
    if e := results.get("engine"):
        out += engine_figures(e, gemm_n)
    if r := results.get("rejoin"):
        times = f"{r['aborted_ms']:.0f} ms, {r['rejoined_ms']:.0f} ms"
        out.append(("Abort of a group whose peer is dead, and meeting its replacement", times))
    for part, what in (("recovery", "A rank is killed"), ("standby", "The same, with a standby")):
        if r := results.get(part):
            out.append((what, kill_figure(r)))
    return out


def kill_figure(r: dict) -> str:
    """Say what a rank's death has cost."""
    story = r["recoveries"]["recoveries"][0]
    shown = ", ".join(f"{k} {v:.0f}" for k, v in story["phases_ms"].items() if v >= 1)
    kept = "the survivor kept its process" if r["survivor_kept"] else "the survivor was lost"
    right = "each micro-batch counted once" if r["ledger_right"] == [True] else "the ledger is wrong"
    price = f"; the standby took {r['standby_mb']} MB of the host" if r.get("standby_mb") else ""
    return f"{story['state']}, no iteration for {r['longest_gap_s']:.1f} s, {kept}, {right}; ms: {shown}{price}"


def overhead_figures(o: dict) -> list[tuple[str, str]]:
    """Name what recording adds to a call, by the clock and by the thread's CPU time."""
    spread = "{:.3f} us, 95 % interval {:.3f} to {:.3f} us"
    wall = spread.format(o["added_us"], *o["interval95_us"])
    cpu = spread.format(o["added_cpu_us"], *o["cpu_interval95_us"])
    pairs = f"median of {o['pairs']} pairs of 300 calls in one process, in random order"
    return [
        ("What recording adds to a call", f"{wall}, of {o['call_us']:.1f} us; {pairs}"),
        ("The same in CPU time of the calling thread", cpu),
    ]


def engine_figures(e: dict, gemm_n: int) -> list[tuple[str, str]]:
    """Name the figures of the part that has an engine."""
    rank, validation = e["console"]["ranks"][0], e["validation"]
    out = [("SM clock and temperature by NVML", f"{rank['sm_clock_mhz']} MHz, {rank['temperature_c']} C")]
    if tests := validation.get("gemm"):
        teraflops = ", ".join(f"{2 * gemm_n**3 / t['best_ms'] / 1e9:.1f}" for t in tests)
        what = f"Matrix test of {gemm_n} in the job's memory, two ranks on the GPU"
        out.append((what, f"{teraflops} TFLOP/s; the job was held {validation['paused_ms']:.0f} ms"))
    if a := e.get("agent"):
        low, high = a["interval95_ms_per_s"]
        what = f"{a['ms_per_s']:.1f} ms a second, 95 % interval {low:.1f} to {high:.1f} ms, mean {a['mean_ms_per_s']:.1f} ms"
        out.append(("CPU time of the agent", f"{what}; two ranks, {a['iterations_per_s']:.1f} iterations a second"))
    if isinstance(e["incidents"], list):
        i = e["incidents"][0]
        named, slow = ", ".join(i["verdict"]["devices"]), i["slow_ms"] / i["healthy_ms"]
        after = i["detected_iteration"] - i["onset_iteration"] + 1
        text = f"detected {after} iterations after its onset, {named} named, {slow:.1f} x"
        out.append(("A rank with four times its work", text))
    return out


def markdown(report: dict, gemm_n: int) -> str:
    """Write the report for people; what it was made from is in gpu.json."""
    head = f"Emulated: {report['emulated']}." if report["emulated"] else "Nothing is emulated."
    results = {p["part"]: p["result"] for p in report["parts"] if "result" in p}
    m = results.get("machine", {})
    date = time.strftime("%Y-%m-%d", time.gmtime())
    lines = [
        "# One GPU",
        "",
        f"By `make gpu`, {date}, {report['seconds']} s, Falcon {report['falcon']}.",
        f"{m.get('gpu', '')}, torch {m.get('torch', '')}, NCCL {m.get('nccl', '')}. {head}",
        "",
        "| What | Figure |",
        "|---|---|",
        *(f"| {what} | {figure} |" for what, figure in figures(results, gemm_n)),
        "",
        "| Part | What | Status | s | Why |",
        "|---|---|---|---|---|",
    ]
    for p in report["parts"]:
        lines.append(f"| {p['part']} | {p['what']} | {p['status']} | {p['seconds']} | {p.get('why', '')} |")
    return "\n".join(lines) + "\n"
