"""Everything that a machine with one GPU can show, in one command of at most ten minutes.

usage: gpu.py [--bin bin] [--out bin/gpu] [--hollow] [--seconds 600]

Each part has its own deadline and is left out with one line where it can't be had. Nothing is
installed, and the GPU's settings stay as they are: a slow rank is made by work that its peers do
not have. With --hollow the CUDA libraries and NCCL are Falcon's stand-ins, and the report says so.
Needs a Python with torch alone. Writes gpu.json and gpu.md.
"""

import argparse
import itertools
import json
import math
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import report_page
from bench import HERE, Bench, SkipError, free_port

GEMM_N = 2048  # side of the matrices of a test
AGENT_WINDOWS = 30  # of half a second
PAIRS, MIN_PAIRS = 2000, 200  # of the overhead; with fewer than the second there is no figure


def machine(b: Bench) -> dict:
    """Name the machine and its software."""
    script = (
        "import json,torch;c=torch.cuda;d=c.is_available();"
        "print(json.dumps({'torch':torch.__version__,'cuda':torch.version.cuda,"
        "'gpu':c.get_device_name(0) if d else '','gpus':c.device_count() if d else 0,"
        "'nccl':'.'.join(map(str,c.nccl.version())) if d else ''}))"
    )
    done = subprocess.run([sys.executable, "-c", script], env=b.base, capture_output=True, text=True, timeout=b.left())
    if done.returncode:
        raise SkipError(f"{sys.executable} can't import torch: {done.stderr.strip().splitlines()[-1:]}")
    out = json.loads(done.stdout.splitlines()[-1])
    out["nvcc"] = shutil.which("nvcc") or "not there"
    if not out["gpus"]:
        raise SkipError("torch sees no GPU; --hollow plays the parts on stand-ins")
    return out


def overhead(b: Bench) -> dict:
    """What recording adds to a call: one process whose recording rests and goes on in turn."""
    b.need(b.hook)
    ranks, _ = b.job("lone", 1, "hook", FALCON_BENCH="1", CALLS="300", PAIRS=str(PAIRS), UNTIL_S="100")
    b.finish(ranks)
    pairs = [line for line in b.lines("rank0") if "with_us" in line]
    if len(pairs) < MIN_PAIRS:
        raise SkipError(f"{len(pairs)} pairs were measured: {b.why('rank0')}")
    out: dict = {"pairs": len(pairs), "call_us": statistics.median(p["without_us"] for p in pairs)}
    out["added_us"], out["interval95_us"] = median95([p["with_us"] - p["without_us"] for p in pairs])
    out["added_cpu_us"], out["cpu_interval95_us"] = median95([p["with_cpu_us"] - p["without_cpu_us"] for p in pairs])
    return out


def median95(values: list[float]) -> tuple[float, list[float]]:
    """Give the median and its 95 % interval, by the values' order alone: no shape of the noise is assumed."""
    v, n = sorted(values), len(values)
    low = max(0, math.floor((n - 1.96 * math.sqrt(n)) / 2) - 1)
    return statistics.median(v), [v[low], v[n - 1 - low]]


def look_inside(b: Bench, ranks: list[subprocess.Popen]) -> str:
    """Inspect a job that is under way, and let it end."""
    b.wait("the tenth iteration", lambda: len(b.lines("rank0")) > 10 or ranks[0].poll() is not None)
    shown = b.inspect() if ranks[0].poll() is None else ""
    b.finish(ranks)
    return shown


def sharing(b: Bench) -> dict:
    """Two and four ranks on one GPU under the hook."""
    b.need(b.hook, b.bin / "falcon-agent")
    out = {}
    for world in (2, 4):
        ranks, _ = b.job("train", world, "hook", ITERATIONS="50", GPU_PAUSE_S="0.02")
        shown = look_inside(b, ranks)
        out[f"{world} ranks"] = {
            "step_ms": statistics.median(line["ms"] for line in b.lines("rank0")[5:]),
            "inspect": [line.strip() for line in shown.splitlines()[:12]],
        }
    return out


def plugin(b: Bench) -> dict:
    """NCCL's profiler plug-in instead of the hook."""
    b.need(b.plugin, b.bin / "falcon-agent")
    ranks, _ = b.job("train", 2, "plugin", ITERATIONS="40", GPU_PAUSE_S="0.02")
    shown = look_inside(b, ranks)
    if "profiler" not in shown:
        raise SkipError(f"NCCL did not load the plug-in (2.28 is needed): {shown.strip()[:200]}")
    return {"inspect": [line.strip() for line in shown.splitlines()[:12]]}


def write_engine(b: Bench, engine: str, agent: str) -> Path:
    """Make the certificates and the files of an engine and its agent, with lines of their own."""
    home, port = b.folder / "engine", free_port()
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    certs = home / "certs"
    for words in (["init", "--dir", certs], ["issue", "--dir", certs, "--role", "agent", "--name", "n1"]):
        subprocess.run([b.bin / "falcon", "certs", *words], check=True, capture_output=True, timeout=b.left())
    sock = home / "falcon.sock"
    (home / "falcon.yaml").write_text(
        f"job: gpu\nstate_dir: {home}\nsocket: {sock}\nlisten: 127.0.0.1:{port}\n"
        f"certs: {{ca: {certs}/ca.crt, cert: {certs}/server.crt, key: {certs}/server.key}}\n{engine}"
    )
    nvml = f"nvml: {{enabled: true, library: {b.bin}/lib/libnvidia-ml.so.1}}\n" if b.hollow else ""
    (home / "agent.yaml").write_text(
        f"node: n1\njob: gpu\nengine: 127.0.0.1:{port}\ncert: {certs}/n1.crt\nkey: {certs}/n1.key\nca: {certs}/ca.crt\n"
        f"shm_dir: {b.shm()}\n{nvml}{agent}"
    )
    b.start([b.bin / "falcon", "serve", "--config", home / "falcon.yaml"], name="serve")
    b.wait("the engine", sock.exists)
    env = dict(b.base)
    env.pop("LD_PRELOAD", None)
    b.agent = b.start([b.bin / "falcon-agent", "--config", home / "agent.yaml"], env, "agent")
    return home


def agent_cost(b: Bench) -> dict:
    """CPU time of the agent while two ranks train: ms of a core per second, in windows of half a second."""
    clock = (~b.agent.pid << 3) | 2  # of all its threads, in ns; see clock_getcpuclockid(3)
    begun, first, windows = time.monotonic(), len(b.lines("rank0")), []
    while len(windows) < AGENT_WINDOWS:
        wall, cpu = time.monotonic(), time.clock_gettime(clock)
        time.sleep(0.5)
        windows.append(1e3 * (time.clock_gettime(clock) - cpu) / (time.monotonic() - wall))
    middle, interval = median95(windows)
    iterations = len(b.lines("rank0")) - first
    seconds = time.monotonic() - begun
    out = {"ms_per_s": middle, "interval95_ms_per_s": interval, "mean_ms_per_s": statistics.mean(windows)}
    return out | {"windows": len(windows), "iterations_per_s": iterations / seconds}


def ask(b: Bench, home: Path, *words: str) -> dict:
    """Ask the engine for a JSON document."""
    command = [b.bin / "falcon", *words, "--connect", f"unix:{home}/falcon.sock", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=b.left())
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {"error": (done.stderr or done.stdout).strip()[:300]}


def engine(b: Bench) -> dict:
    """Real readings, iterations, a hold with a matrix test, and a slow rank, through engine and agent."""
    b.need(b.hook, b.bin / "falcon", b.bin / "falcon-agent")
    home = write_engine(b, f"validation: {{gemm_n: {GEMM_N}, life: 10s}}\npolicy: {{mode: observe}}\n", "")
    slow = b.folder / "slow"
    ranks, _ = b.job("train", 2, "hook", ITERATIONS="100000", GPU_PAUSE_S="0.05", GPU_SLOW=str(slow))
    shown = b.wait("the engine's baseline", lambda: known(b, home) or ranks[0].poll() is not None, 1)
    if ranks[0].poll() is not None:
        raise SkipError(f"rank 0 ended: {b.why('rank0')}")
    out = {"console": summary(shown), "agent": agent_cost(b)}
    out["validation"] = ask(b, home, "validate", "--gemm", "--yes", "--reason", "make gpu")
    out["validation"].pop("ask", None)
    before = len(b.lines("rank0"))
    earlier = [i["id"] for i in listed(ask(b, home, "incident", "list"))]
    slow.touch()
    try:
        out["incidents"] = b.wait("an incident", lambda: incidents(ask(b, home, "incident", "list"), earlier), 1)
    except SkipError as e:
        out["incidents"] = str(e)
    out["slow_rank"] = "made by work that its peers do not have, not by a clock"
    out["slow_ms"] = statistics.median(line["ms"] for line in b.lines("rank0")[before + 1 :] or [{"ms": 0}])
    out["healthy_ms"] = statistics.median(line["ms"] for line in b.lines("rank0")[20:before])
    return out


def known(b: Bench, home: Path) -> dict:
    """Return the console's view once the engine knows the job's pace, its ranks and their GPU's readings."""
    doc = ask(b, home, "console", "--once")
    readings = b.hollow or any(r.get("sm_clock_mhz") for r in doc.get("ranks", []))
    return doc if readings and doc["job"].get("baseline_ms") and all(r.get("self_ms") for r in doc["ranks"]) else {}


def summary(doc: dict) -> dict:
    """Keep of a snapshot what names the job and its devices."""
    ranks = [
        {k: r.get(k) for k in ("rank", "device", "self_ms", "sm_clock_mhz", "temperature_c")}
        for r in doc.get("ranks", [])
    ]
    return {"job": doc.get("job"), "nodes": doc.get("nodes"), "ranks": ranks, "error": doc.get("error", "")}


def listed(doc: dict | list) -> list[dict]:
    """List all incidents of a document."""
    return doc if isinstance(doc, list) else doc.get("incidents", [])


def incidents(doc: dict | list, earlier: list[str]) -> list[dict]:
    """List the later incidents that have a verdict, without their ladders."""
    kept = ("id", "state", "onset_iteration", "detected_iteration", "healthy_ms", "slow_ms", "verdict")
    return [{k: i.get(k) for k in kept} for i in listed(doc) if i["id"] not in earlier and i.get("state") == "located"]


# PyTorch ends a process whose communicator failed, unless it is asked not to.
REJOIN_ENV = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_RETHROW_CUDA_ERRORS": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
}
REJOIN_ENV |= {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "0", "TORCH_NCCL_DUMP_ON_TIMEOUT": "0"}


def rejoin(b: Bench) -> dict:
    """A peer dies, the communicator is aborted, and its replacement joins; the survivor's process stays."""
    b.need(b.hook)
    ranks, port = b.job("rejoin", 2, "hook", **REJOIN_ENV)
    b.wait("the peer's death", lambda: ranks[1].poll() is not None)
    b.wait("the abort", lambda: any("aborted_ms" in line for line in b.lines("rank0")) or ranks[0].poll() is not None)
    env = b.rank_env(1, 2, port, "hook") | REJOIN_ENV | {"GPU_SECOND": "1"}
    other = b.start([sys.executable, HERE / "ranks.py", "rejoin"], env, "rank1-again")
    b.finish([ranks[0]])
    other.wait(b.left())
    got = {k: v for line in b.lines("rank0") for k, v in line.items()}
    if got.get("met") != 2:
        raise SkipError(f"rank 0 did not meet again: {b.why('rank0')}")
    return {
        "aborted_ms": got["aborted_ms"],
        "rejoined_ms": got["rejoined_ms"],
        "survivor_kept": got["pid"] == ranks[0].pid,
    }


RECOVERY = "policy: {mode: auto, cap: S1, owner: gpu, recovery: {per_hour: 100, in_place: 100}}\n"


def recovery(b: Bench) -> dict:
    """A rank of a job with Falcon's adapter is killed and replaced; no micro-batch is lost or run twice."""
    return kill_rank(b, [])


def standby(b: Bench) -> dict:
    """A rank is killed likewise, and a standby, which has imported torch, takes its place."""
    return kill_rank(b, ["-m", "falcon_torch.standby"])


def kill_rank(b: Bench, by: list[str]) -> dict:
    """Play a job of which rank 1 is killed; by is how Python starts the script."""
    b.need(b.hook, b.bin / "falcon", b.bin / "falcon-agent", b.bin / "python")
    port, iterations = free_port(), 600 if by else 150
    path = f"{b.bin}/python:{b.base.get('PYTHONPATH', '')}".rstrip(":")
    more = {
        "ITERATIONS": str(iterations),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "PYTHONPATH": path,
        "FALCON_LOG": "stdout",
    }
    own = b.rank_env(0, 2, port, "hook") | more
    own |= {"NCCL_HOSTID": "falcon-{rank}"}
    names = [k for k in own if own[k] != b.base.get(k)]
    env = {k: own[k] for k in names if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "FALCON_DEVICE")}
    command = [
        str(c)
        for c in (
            b.bin / "falcon-agent",
            "run",
            "--job",
            "gpu",
            "--",
            sys.executable,
            *by,
            HERE / "ranks.py",
            "recover",
        )
    ]
    launch = {"command": command, "env": env, "node_ranks": 2, "dir": str(b.folder), "log_dir": str(b.folder)}
    home = write_engine(b, f"store: {{listen: 127.0.0.1:{port}}}\n{RECOVERY}", f"launch: {json.dumps(launch)}\n")
    ranks, _ = b.job("recover", 2, "hook", port, **more)
    b.wait("40 iterations", lambda: len(b.lines("rank0")) > 40 or any(r.poll() is not None for r in ranks))
    if any(r.poll() is not None for r in ranks):
        raise SkipError(f"a rank ended: {b.why('rank0')}; {b.why('rank1')}")
    waits = "a standby is ready to take a lost rank"
    shown = b.wait("a standby", lambda: re.search(f"{waits}.*memory_mb=(\\d+)", b.text("agent")), 0.5) if by else None
    killed = time.time()
    os.kill(ranks[1].pid, signal.SIGKILL)
    # Its process may stay for TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC after the error: PyTorch joins a thread that sleeps.
    b.wait(
        "rank 0's last iteration", lambda: any("ledger" in x for x in b.lines("rank0")) or ranks[0].poll() is not None
    )
    lines = b.lines("rank0")
    ends = [line["at"] for line in lines if "done" in line]
    after = [at for at in ends if at > killed + 0.5]
    kept = {line["pid"] for line in lines if "done" in line} == {ranks[0].pid}
    if not kept or [line["ledger"] for line in lines if "ledger" in line] != [True]:
        raise ValueError(f"rank 0 kept its process: {kept}; its last line: {lines[-1]}")
    if by and "a standby took a rank" not in b.text("agent"):
        raise ValueError(f"no standby took the rank: {b.why('agent')}")
    return {
        "standby_mb": int(shown[1]) if shown else 0,
        "survivor_kept": kept,
        "ledger_right": [line["ledger"] for line in lines if "ledger" in line],
        "iterations_after": len(after),
        "longest_gap_s": max(y - x for x, y in itertools.pairwise(ends)),
        "rejoins": [line for line in lines if "rejoin" in line],
        "recoveries": ask(b, home, "recovery", "list"),
    }


PARTS = (
    (machine, 60),
    (overhead, 150),
    (sharing, 90),
    (plugin, 60),
    (engine, 180),
    (rejoin, 90),
    (recovery, 120),
    (standby, 150),
)


def hollow_environment(b: Bench) -> None:
    """Take over what the lab gives a training script in place of the CUDA libraries."""
    script, dump = b.folder / "environment.py", b.folder / "environment.json"
    script.write_text(
        "import json,os\n"
        f"own = {str(dump)!r} + os.environ['RANK']\n"
        f"json.dump(dict(os.environ), open(own, 'w'))\nos.replace(own, {str(dump)!r})\n"
    )
    command = [b.bin / "falcon", "lab", "run", "--train", f"{sys.executable} {script}"]
    done = b.start(command, name="lab")
    b.deadline = time.monotonic() + 90
    b.wait("the lab's environment", lambda: dump.exists() or done.poll() is not None)
    b.kill()
    if not dump.exists():
        sys.exit(f"--hollow: {b.why('lab')}")
    env = json.loads(dump.read_text())
    libraries = [p for p in env.get("LD_PRELOAD", "").split(":") if p and "falcon_hook" not in p]
    b.base.update(
        LD_LIBRARY_PATH=env["LD_LIBRARY_PATH"], LD_PRELOAD=":".join(libraries), FALCON_LAB_HOLLOW="1", GPU_HOLLOW="1"
    )


def run(b: Bench, part, seconds: float) -> dict:
    """Run one part within its deadline and what is left of the whole."""
    begun = time.monotonic()
    b.deadline = min(begun + seconds, b.end)
    out: dict = {"part": part.__name__, "what": (part.__doc__ or "").strip()}
    try:
        if b.end - begun < 5:
            raise SkipError("no time is left of the whole")
        out.update(status="done", result=part(b))
    except SkipError as e:
        out.update(status="skipped", why=str(e))
    except (OSError, KeyError, ValueError, subprocess.SubprocessError) as e:
        out.update(status="failed", why=f"{type(e).__name__}: {e}"[:300])
    finally:
        b.kill()
        shutil.rmtree(b.folder / "shm", ignore_errors=True)
    out["seconds"] = round(time.monotonic() - begun, 1)
    return out


def main() -> None:
    """Run all parts and write both reports."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bin", default="bin")
    p.add_argument("--out", default="")
    p.add_argument("--hollow", action="store_true")
    p.add_argument("--seconds", type=float, default=580)
    p.add_argument("--only", default="", help="parts, with commas")
    p.add_argument("--commit", default="of no known commit", help="named in the report")
    p.add_argument("--keep", action="store_true", help="what the processes wrote")
    options = p.parse_args()
    b = Bench(options)
    begun = time.monotonic()
    emulated = "CUDA and NCCL are Falcon's stand-ins; times and readings mean nothing" if options.hollow else ""
    report: dict = {"emulated": emulated, "falcon": options.commit, "parts": []}
    out = Path(options.out or b.bin / "gpu")
    out.mkdir(parents=True, exist_ok=True)
    try:
        if options.hollow:
            hollow_environment(b)
        for part, seconds in PARTS:
            if options.only and part.__name__ not in options.only.split(","):
                continue
            got = run(b, part, seconds)
            report["parts"].append(got)
            print(f"{got['part']}: {got['status']} in {got['seconds']} s {got.get('why', '')}", flush=True)
            if part is machine and got["status"] != "done":
                break
    finally:
        b.kill()
        report["seconds"] = round(time.monotonic() - begun, 1)
        (out / "gpu.json").write_text(json.dumps(report, indent=1) + "\n")
        (out / "gpu.md").write_text(report_page.markdown(report, GEMM_N))
        if options.keep:
            print(f"processes' output: {b.folder}")
        else:
            shutil.rmtree(b.folder, ignore_errors=True)
    print(f"{out / 'gpu.md'}, {out / 'gpu.json'}")
    if options.only and any(part["status"] != "done" for part in report["parts"]):
        sys.exit(1)  # what is asked for by name must be done


if __name__ == "__main__":
    main()
