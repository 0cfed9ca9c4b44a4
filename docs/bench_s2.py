#!/usr/bin/env python3
"""S2 beside SciPy's HiGHS: the same splits, solved exactly by both.

Usage: bench_s2.py FALCON [SEED]   (FALCON is the binary; default seed 1)

Minimise T with (m_i + stages - 1) t_i <= T, sum m_i = total, m_i >= 1 whole:
FALCON section 5.3, eq. 1 with the pipeline's fill. Times are of the CPU, so that
others' load on the machine does not count; Falcon's is that of the whole
command, its start and JSON included, the least of three. The paper's column is
its table 6, by another solver on other hardware, by the clock.
"""
import json
import random
import resource
import subprocess
import sys
import time

PAPER_S = {16: 0.01, 32: 0.01, 64: 0.01, 128: 0.11, 256: 6.78, 512: 35.93}
LIMIT_S = 60
STAGES = 4
PER_REPLICA = 16


def problem(replicas, rng):
    """A tenth of the replicas slow by 1.2 to 3 times, the rest with 2 % of noise."""
    t = [100 * rng.gauss(1, 0.02) * (rng.uniform(1.2, 3) if rng.random() < 0.1 else 1) for _ in range(replicas)]
    return {"micro_batch_ms": t, "total": PER_REPLICA * replicas, "stages": STAGES}


def children():
    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    return use.ru_utime + use.ru_stime


def falcon(binary, p):
    start = children()
    out = subprocess.run([binary, "plan", "microbatch", "-"], input=json.dumps(p), capture_output=True, text=True, check=True)
    return children() - start, json.loads(out.stdout)["iteration_ms"]


def highs(p):
    import numpy as np
    from scipy.optimize import Bounds, LinearConstraint, milp

    t = np.array(p["micro_batch_ms"])
    n = len(t)
    cost = np.append(np.zeros(n), 1.0)  # variables: m_1 … m_n, T
    times = np.hstack([np.diag(t), -np.ones((n, 1))])
    all_of_them = np.append(np.ones(n), 0.0)
    start = time.process_time()
    r = milp(
        cost,
        constraints=[
            LinearConstraint(times, ub=-(p["stages"] - 1) * t),
            LinearConstraint(all_of_them, p["total"], p["total"]),
        ],
        integrality=np.append(np.ones(n), 0),
        bounds=Bounds(np.append(np.ones(n), 0), np.inf),
        options={"time_limit": LIMIT_S, "mip_rel_gap": 0},
    )
    return time.process_time() - start, (float(r.fun) if r.x is not None else None), r.status == 0


def main():
    binary = sys.argv[1]
    rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    try:
        import scipy
    except ImportError:
        print("skipped: SciPy is not installed (apt-get install python3-scipy)")
        return 0
    print(f"SciPy {scipy.__version__}, HiGHS; {STAGES} stages, {PER_REPLICA} micro-batches a replica on average")
    print(f"{'groups':>6} {'falcon s':>10} {'HiGHS s':>10} {'ratio':>8} {'paper s':>8} {'paper/falcon':>13} {'iteration ms':>13}")
    wrong = 0
    for replicas, paper in PAPER_S.items():
        p = problem(replicas, rng)
        ours_s, ours = min(falcon(binary, p) for _ in range(3))
        theirs_s, theirs, proven = highs(p)
        note = ""
        if theirs is None:
            note = f"  HiGHS found nothing in {LIMIT_S} s"
        elif not proven:
            note = f"  HiGHS stopped after {LIMIT_S} s at {theirs:.6f}"
            wrong += ours > theirs * (1 + 1e-6)
        elif abs(ours - theirs) > 1e-6 * theirs:
            note = f"  DIFFERENT: HiGHS says {theirs:.6f}"
            wrong += 1
        print(f"{replicas:>6} {ours_s:>10.4f} {theirs_s:>10.4f} {theirs_s / ours_s:>8.1f} {paper:>8.2f} {paper / ours_s:>13.0f} {ours:>13.3f}{note}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
