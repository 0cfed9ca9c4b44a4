"""A rank of a DDP job on CPUs dies, and the job goes on in place: what it learns is the same to the bit."""

from __future__ import annotations

import os
from collections import Counter
from functools import cache, partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import falcon_torch
from fake_hook import Post, split
from falcon_torch import _hook
from falcon_torch._state import checksum
from parking import Job, ParkingMailbox, fork

WORLD, PER_REPLICA, SIZE, EPOCH, EPOCHS = 3, 3, 2, 7, 2  # EPOCH and EPOCHS in iterations and epochs
ITERATIONS = EPOCH * EPOCHS
SAMPLES = EPOCH * WORLD * PER_REPLICA * SIZE + 4  # 4 make no iteration
MOST = WORLD * PER_REPLICA * SIZE  # samples of a rank in an iteration
ORDERS = [split(2, 1, [1, 3, 5]), split(8, 2, [4, 4, 1])]  # hold from iterations 4 and 10 on
POINTS = ("boundary", "first forward", "last forward", "before the update", "after the update")


class Samples(Dataset[Any]):
    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        generator = torch.Generator().manual_seed(index)
        return index, torch.randn(8, generator=generator), torch.randn(1, generator=generator)


class Count:
    """A state of the user's: how many samples all ranks have had."""

    def __init__(self) -> None:
        self.samples = 0

    def state_dict(self) -> dict[str, Any]:
        return {"samples": self.samples}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.samples = state["samples"]


def network() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1)
    )


def train(ledger: Any, dies: tuple[int, int, str] | None, mailbox: ParkingMailbox) -> dict[str, Any]:
    """Train to the end; dies is a rank, an iteration and a point in it at which that rank's process ends."""

    def at(point: str) -> None:
        if dies == (mailbox.rank, job.iteration, point) and mailbox.generation == 0:
            os._exit(9)

    wrapped = nn.parallel.DistributedDataParallel(network())
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    count, losses, sums = Count(), {}, {}
    job = falcon_torch.ddp(wrapped, optimizer, PER_REPLICA, state=[schedule, count])
    data = job.loader(Samples(), SIZE, shuffle=True, seed=4)
    while job.next_iteration(until=ITERATIONS):
        at("boundary")
        with job.attempt():
            i, total, seen = job.iteration, 0.0, []
            mine = job.split[mailbox.rank]
            for k, (indices, inputs, targets) in enumerate(job.micro_batches(data)):
                at("first forward" if k == 0 else "")
                at("last forward" if k == mine - 1 else "")
                loss = (wrapped(inputs) - targets).square().mean()
                job.backward(loss)
                total += loss.item()
                seen += indices.tolist()
            first = (i * WORLD + mailbox.rank) * MOST
            ledger[first : first + MOST] = seen + [-1] * (MOST - len(seen))
            at("before the update")  # its gradients are with the others
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            count.samples += WORLD * PER_REPLICA * SIZE
            losses[i], sums[i] = total, checksum(list(wrapped.parameters()))
            if dies == (mailbox.rank, i, "after the update") and mailbox.generation == 0:
                os._exit(9)
    return {
        "rank": mailbox.rank, "losses": losses, "sums": sums, "lr": schedule.get_last_lr(), "pid": os.getpid(),
        "samples": count.samples, "calls": mailbox.of("rejoined"), "split": job.split,
    }  # fmt: skip


def check_ledger(ledger: Any) -> None:
    """Every sample that makes an iteration was trained on once an epoch."""
    for epoch in range(EPOCHS):
        first = epoch * EPOCH * WORLD * MOST
        seen = Counter(n for n in ledger[first : first + EPOCH * WORLD * MOST] if n >= 0)
        assert set(seen.values()) == {1}
        assert len(seen) == SAMPLES - 4


def play(posts: list[Post], dies: tuple[int, int, str] | None) -> tuple[list[dict[str, Any]], int, list[int]]:
    """What the processes returned, where they resumed, and the pids of those that were there from the beginning."""
    ledger = fork.Array("q", [-1] * (ITERATIONS * WORLD * MOST))
    job, resumed = Job(WORLD, partial(train, ledger, dies), posts), 0
    try:
        for rank in range(WORLD):
            job.start(rank, rank)
        pids = [p.pid for p in job.processes]
        if dies is not None:
            resumed = job.recover(dies[0], dies[0])
        got = job.results()
    finally:
        job.end()
    check_ledger(ledger)
    return got, resumed, pids


@cache
def reference() -> list[dict[str, Any]]:
    return play(ORDERS, None)[0]


DEATHS = [(k % WORLD, (0, 6, 12)[k % 2 + k // 4], point) for k, point in enumerate(POINTS)]


@pytest.mark.parametrize("dies", DEATHS, ids=str)
def test_what_is_learned_is_the_same_to_the_bit(dies: tuple[int, int, str]) -> None:
    want = reference()
    got, resumed, pids = play(ORDERS, dies)
    assert resumed - dies[1] in (0, 1)
    for rank in range(WORLD):
        survived = rank != dies[0]
        assert (got[rank]["pid"] == pids[rank]) == survived
        trained = range(0 if survived else resumed, ITERATIONS)
        for name in ("losses", "sums"):
            assert got[rank][name] == {i: want[rank][name][i] for i in trained}, name
        for name in ("lr", "samples", "split"):
            assert got[rank][name] == want[rank][name], name
        assert [status for _, status, *_ in got[rank]["calls"]] == [_hook.REJOINED]
