"""Plays hangs of PyTorch jobs and keeps each rank's flight-recorder dump.

Usage: hangs.py OUT COUNT SEED BACKEND

BACKEND is gloo, or nccl on stand-ins of the CUDA libraries. A case is a folder of OUT with the
dumps and truth.json, which has the kind, the injected rank, and the call it was injected at. Ranks
are forked from one process that has PyTorch loaded. A case is dumped once no rank has got on for
a second. A rank whose call fails stays and dumps, as one that waits does. A fault that does not
stop the job is played again elsewhere, and so is one that gloo answers by ending other processes.

The dumps of a case have one of three forms: pickles by Python, JSON by Python, or pickles that
PyTorch's own watchdog writes when its pipe is written to (nccl only).
"""

import ctypes
import json
import mmap
import os
import random
import shutil
import signal
import struct
import sys
import threading
import time
import traceback

os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "2000")
os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

torch.set_num_threads(1)

KINDS = {
    "nccl": ("missed_call", "wrong_order", "wrong_size", "killed", "stopped", "gil_held"),
    "gloo": ("missed_call", "wrong_order", "stopped", "gil_held"),
}
FORMS = {"nccl": ("watchdog", "pickle", "json"), "gloo": ("pickle", "json", "pickle")}
STEPS = 6


def make_program(rng, world):
    """All calls of the job in order: (group, operation, elements, ranks)."""
    tp = rng.choice([s for s in (2, 4) if world % s == 0 and s < world])
    groups = {"world": [list(range(world))]}
    groups["tp"] = [list(range(i, i + tp)) for i in range(0, world, tp)]
    groups["dp"] = [list(range(i, world, tp)) for i in range(tp)]
    body = []
    for _ in range(rng.randint(3, 7)):
        body.append((rng.choice(["world", "tp", "dp"]), rng.choice(["all_reduce", "all_reduce", "all_gather", "broadcast"]), rng.choice([8, 64, 512, 4096])))
    if rng.random() < 0.5:
        body.append(("pair", "pass_on", 64))
    body.append(("world", "all_reduce", 16))
    return groups, body * STEPS


def inject(rng, kind, rank, groups, calls):
    """Where the fault comes: an index into the calls of which the rank is a member."""
    sized = [i for i, c in enumerate(calls) if c[1] == "all_reduce" and i > len(calls) // STEPS]
    late = [i for i, c in enumerate(calls) if i > len(calls) // STEPS and c[1] != "pass_on"]
    if kind == "wrong_size":
        return rng.choice(sized)
    if kind == "wrong_order":
        swaps = [i for i in late if i + 1 < len(calls) and calls[i + 1] != calls[i] and calls[i + 1][1] != "pass_on" and calls[i][1] != "broadcast" and calls[i + 1][1] != "broadcast"]
        return rng.choice(swaps) if swaps else None
    if kind == "missed_call":
        late = [i for i in late if calls[i][1] != "broadcast"]
    return rng.choice(late)


class Rank:
    def __init__(self, rank, world, backend, out, counters, port):
        self.rank, self.world, self.backend, self.out = rank, world, backend, out
        self.counters, self.port = counters, port
        self.device = "cuda" if backend.startswith("nccl") else "cpu"

    def start(self, groups):
        if self.device == "cuda":
            torch.cuda.set_device(self.rank % torch.cuda.device_count())
        dist.init_process_group(self.backend, init_method=f"tcp://127.0.0.1:{self.port}", rank=self.rank, world_size=self.world)
        self.groups = {}
        for name, sets in groups.items():
            for ranks in sets:
                g = dist.group.WORLD if name == "world" else dist.new_group(ranks)
                if self.rank in ranks:
                    self.groups[name] = (g, ranks)

    def call(self, name, op, elements):
        if name == "pair":
            return self.pass_on(elements)
        group, ranks = self.groups[name]
        t = torch.ones(elements, device=self.device)
        if op == "all_reduce":
            dist.all_reduce(t, group=group)
        elif op == "all_gather":
            dist.all_gather_into_tensor(torch.empty(elements * len(ranks), device=self.device), t, group=group)
        elif op == "broadcast":
            dist.broadcast(t, src=ranks[0], group=group)
        if self.device == "cuda":
            torch.cuda.synchronize()
        return None

    def pass_on(self, elements):
        half = self.world // 2
        t = torch.ones(elements, device=self.device)
        if self.rank < half:
            dist.send(t, self.rank + half)
        elif self.rank < 2 * half:
            dist.recv(t, self.rank - half)
        if self.device == "cuda":
            torch.cuda.synchronize()

    def tick(self):
        at = 8 * self.rank
        self.counters[at : at + 8] = struct.pack("q", struct.unpack("q", self.counters[at : at + 8])[0] + 1)

    def run(self, calls, fault):
        kind, at = fault or (None, -1)
        calls = list(calls)
        if kind == "wrong_order":
            calls[at], calls[at + 1] = calls[at + 1], calls[at]
        for i, (name, op, elements) in enumerate(calls):
            if i == at:
                if kind == "missed_call":
                    continue
                if kind == "killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                if kind == "stopped":
                    os.kill(os.getpid(), signal.SIGSTOP)
                if kind == "gil_held":
                    ctypes.PyDLL(None).sleep(1000)
                if kind == "wrong_size":
                    elements += 24
            self.call(name, op, elements)
            self.tick()

    def dump_when_asked(self, form):
        if form == "watchdog":
            return
        while not os.path.exists(os.path.join(self.out, "ask")):
            time.sleep(0.02)
        native = "nccl" if self.backend == "nccl" else "fr"
        if form == "json":
            data = getattr(c10d, f"_dump_{native}_trace_json")()
            name = f"nccl_trace_rank_{self.rank}.json"
        else:
            data = getattr(c10d, f"_dump_{native}_trace")()
            name = f"_dump_{self.rank}"
        with open(os.path.join(self.out, f".{name}"), "wb") as f:
            f.write(data.encode() if isinstance(data, str) else data)
        os.rename(os.path.join(self.out, f".{name}"), os.path.join(self.out, name))


def be_rank(rank, world, backend, out, counters, port, program, fault, fault_kind, form):
    log = os.open(os.path.join(out, f".log.{rank}"), os.O_WRONLY | os.O_CREAT, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if form == "watchdog":
        only = "1" if fault_kind in ("killed", "stopped", "gil_held") else "0"
        os.environ.update(TORCH_NCCL_DUMP_ON_TIMEOUT="1", TORCH_INCLUDE_ONLY_ACTIVE=only)
        os.environ.update(TORCH_NCCL_DEBUG_INFO_PIPE_FILE=os.path.join(out, ".pipe_"), TORCH_NCCL_DEBUG_INFO_TEMP_FILE=os.path.join(out, "_dump_"))
    r = Rank(rank, world, backend, out, counters, port)
    threading.Thread(target=r.dump_when_asked, args=(form,), daemon=True).start()
    try:
        groups, calls = program
        r.start(groups)
        r.tick()
        r.run(calls, fault)
        print("end", flush=True)
    except BaseException:
        traceback.print_exc()
    time.sleep(1000)


def stand_still(counters, world, pids):
    """Waits until no rank has got on for a second, all of them having started."""
    last, since, begun = None, time.time(), time.time()
    while time.time() - begun < 90:
        now = bytes(counters[: 8 * world])
        if now != last or 0 in struct.unpack(f"{world}q", now):
            last, since = now, time.time()
        if time.time() - since > 1:
            return True
        time.sleep(0.05)
    return False


def wait_for_dumps(folder, world):
    """Waits for all dumps, or for six seconds in which none came where some are there."""
    count, since, begun = 0, time.time(), time.time()
    while time.time() - begun < 60 and count < world and not (count and time.time() - since > 6):
        have = len([n for n in os.listdir(folder) if n.startswith(("_dump_", "nccl_trace"))])
        if have != count:
            count, since = have, time.time()
        time.sleep(0.02)
    return count


def ask_watchdogs(folder):
    for name in os.listdir(folder):
        if name.startswith(".pipe_"):
            try:
                pipe = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_NONBLOCK)
                os.write(pipe, b"1\n")
                os.close(pipe)
            except OSError:
                pass  # its reader is gone


def play(case, out, seed, backend, port):
    rng = random.Random(seed)
    kind, form = KINDS[backend][case % len(KINDS[backend])], FORMS[backend][case // len(KINDS[backend]) % 3]
    while True:
        world = rng.choice([4, 6, 8])
        program = make_program(rng, world)
        victim = rng.randrange(world)
        at = inject(rng, kind, victim, *program)
        if at is not None:
            break
    folder = os.path.join(out, f"{backend}_{case:03d}_{kind}")
    os.makedirs(folder)
    counters = mmap.mmap(-1, 4096)
    pids = []
    for rank in range(world):
        pid = os.fork()
        if pid == 0:
            be_rank(rank, world, backend, folder, counters, port, program, (kind, at) if rank == victim else None, kind, form)
        pids.append(pid)
    still = stand_still(counters, world, pids)
    ended = [i for i in range(world) if "end\n" in open(os.path.join(folder, f".log.{i}")).read()]
    open(os.path.join(folder, "ask"), "w").close()
    if form == "watchdog":
        ask_watchdogs(folder)
    silent = kind in ("killed", "stopped", "gil_held")  # the GIL is needed for the stacks in a dump
    dumps = wait_for_dumps(folder, world - silent)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    os.remove(os.path.join(folder, "ask"))
    with open(os.path.join(folder, "truth.json"), "w") as f:
        json.dump({"kind": kind, "ranks": [victim], "world": world, "call": at, "what": program[1][at], "still": still, "ended": ended, "form": form}, f)
    if still and len(ended) < world and dumps == world - silent:
        return True
    shutil.rmtree(folder)
    return False


def main():
    out, count, seed, backend = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    for case in range(count):
        for again in range(20):
            if play(case, out, (seed * 1000 + case) * 100 + again, backend, 20000 + (os.getpid() * 7 + 20 * case + again) % 20000):
                break
        print(case, "after", again, "that went on", flush=True)


main()
