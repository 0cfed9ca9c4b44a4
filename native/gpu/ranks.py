"""One rank of the jobs that gpu.py starts; several ranks share one GPU.

Modes: train (DDP; a step time per line), lone (reductions on a group of one rank, recorded and not), rejoin (the
peer dies, the communicator is aborted, and both ranks meet again under another store prefix),
recover (DDP with Falcon's adapter; a ledger shows whether each micro-batch ran exactly once).
"""

import itertools
import json
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

RANK = int(os.environ["RANK"])
WORLD = int(os.environ["WORLD_SIZE"])
LIMIT = timedelta(seconds=60)


def say(**what: object) -> None:
    """Write one line for gpu.py."""
    print(json.dumps({"rank": RANK, **what}), flush=True)


def meet(port: int) -> None:
    """Join the other ranks at a port."""
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=RANK, world_size=WORLD, timeout=LIMIT)


def slow_factor() -> int:
    """How often this rank repeats its work: more than once while the slow file is there."""
    path = os.environ.get("GPU_SLOW", "")
    return 4 if path and RANK == 0 and os.path.exists(path) else 1


def train() -> None:
    """Reduce a small model's gradients in buckets until ITERATIONS are done or the stop file is there."""
    torch.cuda.set_device(0)
    meet(int(os.environ["MASTER_PORT"]))
    width = int(os.environ.get("GPU_WIDTH", "1024"))
    layers = [m for i in range(4) for m in (nn.Linear(width, width), nn.GELU())]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers).cuda(), device_ids=[0], bucket_cap_mb=3)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.ones((256, width), device="cuda")
    stop, pause = (os.environ.get("GPU_STOP", ""), float(os.environ.get("GPU_PAUSE_S", "0")))
    for i in range(int(os.environ.get("ITERATIONS", "60"))):
        begun = time.perf_counter()
        for _ in range(slow_factor()):  # work that its peers do not have
            with model.no_sync():
                model(x).square().mean().backward()
            torch.cuda.synchronize()
            time.sleep(pause)
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        say(iteration=i, ms=1e3 * (time.perf_counter() - begun))
        ends = torch.tensor([float(bool(stop) and os.path.exists(stop))], device="cuda")
        dist.all_reduce(ends, op=dist.ReduceOp.MAX)
        if os.environ.get("GPU_HOLLOW") != "1" and ends.item() > 0:
            break
    dist.destroy_process_group()


def lone() -> None:
    """Time reductions on a group of one rank, while recording rests and goes on in turn.

    A group of one has nobody to wait for. A turn is short, so that drift and neighbours
    disturb both turns of a pair alike; the order of each pair is drawn, so that being first
    favours neither. A turn's figure is the lower quartile of its calls: what a call costs
    that wakes no other thread and is not interrupted. All numbers are microseconds.
    """
    import ctypes
    import gc
    import random

    torch.cuda.set_device(0)
    meet(int(os.environ["MASTER_PORT"]))
    rest = ctypes.CDLL(None).falcon_bench_rest  # of the hook, which is preloaded
    x = torch.ones(1024, device="cuda")
    calls, pairs, until = int(os.environ["CALLS"]), int(os.environ["PAIRS"]), float(os.environ["UNTIL_S"])
    for _ in range(2000):
        dist.all_reduce(x)
    torch.cuda.synchronize()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # this thread alone: a move costs more than a call
    order, at, now = random.Random(1), [0] * (calls + 1), time.perf_counter_ns
    gc.disable()

    def turn(resting: int) -> tuple[float, float]:
        if rest(resting):
            sys.exit("the hook refuses to rest: it has seen no communicator")
        for _ in range(calls // 10):
            dist.all_reduce(x)
        torch.cuda.synchronize()
        cpu = time.thread_time_ns()
        for i in range(calls):
            at[i] = now()
            dist.all_reduce(x)
        at[calls] = now()
        cpu = time.thread_time_ns() - cpu
        torch.cuda.synchronize()
        each = sorted(y - x for x, y in itertools.pairwise(at))
        return 1e-3 * each[calls // 4], 1e-3 * cpu / calls

    begun = time.monotonic()
    for _ in range(pairs):
        got = {resting: turn(resting) for resting in order.sample((0, 1), 2)}
        say(with_us=got[0][0], without_us=got[1][0], with_cpu_us=got[0][1], without_cpu_us=got[1][1])
        if time.monotonic() - begun > until:
            break
    rest(0)
    dist.destroy_process_group()


def rejoin() -> None:
    """Lose the peer in the middle of a job, abort, and meet its replacement."""
    torch.cuda.set_device(0)
    port, second = int(os.environ["MASTER_PORT"]), os.environ.get("GPU_SECOND") == "1"
    x = torch.ones(1024, device="cuda")
    if not second:
        meet(port)
        dist.all_reduce(x)
        torch.cuda.synchronize()
        say(met=1)
        if RANK == 1:
            os._exit(1)
        dist.all_reduce(x)  # never ends: the peer is dead
        time.sleep(1)
        begun = time.perf_counter()
        group = dist.group.WORLD
        getattr(group, "abort", group._get_backend(torch.device("cuda")).abort)()
        say(aborted_ms=1e3 * (time.perf_counter() - begun))
        dist.destroy_process_group()
        try:
            torch.cuda.synchronize()
        except RuntimeError as e:  # what was cut off is reported once
            say(cut_off=str(e).splitlines()[0])
    begun = time.perf_counter()
    meet(port + 1)
    y = torch.ones(1024, device="cuda")
    dist.all_reduce(y)
    torch.cuda.current_stream().synchronize()
    say(met=2, rejoined_ms=1e3 * (time.perf_counter() - begun), pid=os.getpid())
    os._exit(0)


class Ledger:
    """The numbers of all micro-batches so far: their sum, and that of their squares."""

    def __init__(self) -> None:
        self.sums = torch.zeros(2, dtype=torch.int64)

    def add(self, numbers: list[int]) -> None:
        """Take in one iteration of all ranks."""
        mine = torch.tensor([sum(numbers), sum(k * k for k in numbers)]).to("cuda")
        dist.all_reduce(mine)
        self.sums += mine.cpu()

    def state_dict(self) -> dict:
        """Hand the sums to a rank that takes a place over."""
        return {"sums": self.sums}

    def load_state_dict(self, state: dict) -> None:
        """Take the sums over."""
        self.sums = state["sums"].clone()


def recover() -> None:
    """Train with Falcon's adapter to the end, whatever dies meanwhile."""
    import falcon_torch

    until, each = int(os.environ["ITERATIONS"]), 4
    torch.cuda.set_device(0)
    torch.manual_seed(1)
    dist.init_process_group("nccl")
    ledger = Ledger()
    layers = [m for _ in range(4) for m in (nn.Linear(1024, 1024), nn.GELU())]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers).cuda(), device_ids=[0])
    optimizer = torch.optim.AdamW(model.parameters())
    job = falcon_torch.ddp(model, optimizer, micro_batches=each, state=[ledger])
    done = 0
    while job.next_iteration(until=until):
        with job.attempt():
            numbers = []
            for k in job.micro_batches():
                numbers.append(k)
                job.backward(model(torch.full((256, 1024), float(k % 7), device="cuda")).square().mean())
                time.sleep(0.02)
            ledger.add(numbers)
            optimizer.step()
            optimizer.zero_grad()
            done += 1
            say(done=done, pid=os.getpid(), at=time.time())
    last = until * each * WORLD
    right = ledger.sums.tolist() == [sum(range(last)), sum(k * k for k in range(last))]
    say(ledger=right, pid=os.getpid())
    dist.destroy_process_group()


if __name__ == "__main__":
    {"train": train, "lone": lone, "rejoin": rejoin, "recover": recover}[sys.argv[1]]()
