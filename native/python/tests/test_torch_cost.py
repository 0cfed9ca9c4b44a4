"""What the adapter costs a training loop of 100 ms an iteration, beside the same loop without it."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

import falcon_torch
import model
from fake_hook import Mailbox, Post, split
from falcon_torch import _hook, _votes
from ranks import play

HOOK = Path(__file__).parent.parent.parent.parent / "bin" / "lib" / "libfalcon_hook.so"
MICRO_BATCHES, WARM, COUNTED = 4, 40, 320
STRIDE = 8  # iterations between votes; at 100 ms each a rank wants this or more
ITERATION_S = 0.001  # the cost does not depend on it
RealHook = _hook.Hook


class Armed(Mailbox):
    """Orders of the stand-in; where the hook is built, marks and questions go to it."""

    def __init__(self, mailbox: Mailbox) -> None:
        super().__init__(mailbox.rank, mailbox.posts)
        self.real = RealHook()
        for name in ("begin_iteration", "begin_optimizer", "end_optimizer", "suspended", "paused_ms", "finish", "can"):
            setattr(self, name, getattr(self.real, name))

    def poll(self, i: int) -> int:
        self.real.poll(i)
        return super().poll(i)


def clocks() -> tuple[float, float]:
    """CPU time of the training thread and of all threads."""
    return time.thread_time(), time.process_time()


def work() -> None:
    """Compute for a micro-batch's time."""
    until = time.thread_time() + ITERATION_S / MICRO_BATCHES
    while time.thread_time() < until:
        pass


def least(taken: Sequence[Sequence[float]], clock: int) -> float:
    """The mean of the quietest iterations with one vote, in microseconds: others' load only adds to it."""
    values = [1e6 * t[clock] for t in taken]
    return min(sum(values[k : k + STRIDE]) / STRIDE for k in range(len(values) - STRIDE + 1))


def timed(iteration: Callable[[], bool]) -> list[list[float]]:
    taken, at = [], clocks()
    while iteration():
        taken.append([b - a for a, b in zip(at, clocks(), strict=True)])
        at = clocks()
    return taken[WARM:]


def measure(mailbox: Mailbox, shm: str) -> tuple[list[float], int, list[int]]:
    """Cost of an iteration by both clocks, iterations between votes, and the split at the end."""
    _votes.Pace.wanted = lambda *_: STRIDE  # type: ignore[method-assign]
    if HOOK.exists():
        os.environ["FALCON_SHM_DIR"] = shm
        ctypes.CDLL(str(HOOK), mode=ctypes.RTLD_GLOBAL)
    armed = Armed(mailbox)
    assert armed.real.present == HOOK.exists()
    _hook.Hook = lambda: armed  # type: ignore[assignment,misc]
    ddp = DistributedDataParallel(model.network())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=model.RATE)
    left, strides = WARM + COUNTED, [0]

    def bare() -> bool:
        nonlocal left
        left -= 1
        for _ in range(MICRO_BATCHES):
            work()
        optimizer.step()
        return left > 0

    without = timed(bare)
    job = falcon_torch.ddp(ddp, optimizer, MICRO_BATCHES)

    def under_falcon() -> bool:
        if not job.next_iteration(WARM + COUNTED):
            return False
        with job.attempt():
            for _ in job.micro_batches():
                work()
            optimizer.step()
        strides.append(job._votes.stride if job._votes else 0)
        return True

    under = timed(under_falcon)
    moved = ITERATION_S / MICRO_BATCHES * (job.split[mailbox.rank] - MICRO_BATCHES)  # its micro-batches' own time
    return [least(under, k) - least(without, k) - 1e6 * moved for k in (0, 1)], strides[-1], job.split


@pytest.mark.parametrize(
    ("posts", "want"), [([], [4, 4]), ([split(2, 1, [5, 3])], [5, 3])], ids=["nothing ordered", "S2 in force"]
)
def test_what_an_iteration_costs(posts: list[Post], want: list[int], tmp_path: Path, record_property: Any) -> None:
    ranks = play(2, measure, str(tmp_path), posts=posts, stride_most=STRIDE)
    assert [(stride, got) for _, stride, got in ranks] == [(STRIDE, want)] * 2
    for k, name in enumerate(("training thread", "all threads")):
        record_property(f"microseconds per iteration, {name}:", min(costs[k] for costs, _, _ in ranks))
