"""Ordered checkpoints count on all ranks or on none, and a recovery goes back to one."""

from __future__ import annotations

import os
import time
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import falcon_torch
import model
from fake_hook import Mailbox, Post, checkpoint, split
from falcon_torch import _hook, _recover
from falcon_torch._hook import Order
from falcon_torch._state import checksum
from falcon_torch._votes import DELAY
from parking import Job, ParkingMailbox
from ranks import play
from test_torch_fsdp import shard

ITERATIONS = 12


class Disk:
    """A folder of checkpoints; at `fails` a rank can't write one, and why."""

    def __init__(self, mailbox: Mailbox, folder: str, *parts: Any, fails: dict[int, Any] | None = None) -> None:
        self._mailbox, self._folder, self._parts, self._fails = mailbox, Path(folder), parts, fails or {}
        self.wrote: list[int] = []

    def path(self, i: int) -> Path:
        return self._folder / f"{i}.{self._mailbox.rank}"

    def save(self, i: int) -> Any:
        how = self._fails.get(self._mailbox.rank)
        if how == "dies" and self._mailbox.generation == 0:  # type: ignore[attr-defined]
            os._exit(9)
        if how == "raises":
            raise OSError("the disk is full")
        self.wrote.append(i)
        torch.save([p.state_dict() for p in self._parts], self.path(i))
        return how != "returns"

    def load(self, i: int) -> None:
        if self._fails.get(self._mailbox.rank) == "load" and self._mailbox.generation == 1:  # type: ignore[attr-defined]
            raise OSError("storage is away")
        for part, state in zip(self._parts, torch.load(self.path(i)), strict=True):
            part.load_state_dict(state)


def train(mailbox: Mailbox, kind: str, folder: str, fails: dict[int, Any], without: set[int]) -> dict[str, Any]:
    network: Any = DistributedDataParallel(model.network()) if kind == "ddp" else shard(2)
    optimizer = torch.optim.SGD(network.parameters(), lr=model.RATE)
    disk = Disk(mailbox, folder, fails=fails)
    save = None if mailbox.rank in without else disk.save
    job = getattr(falcon_torch, kind)(network, optimizer, 4, save=save)
    done, splits = [], []
    while job.next_iteration(ITERATIONS):
        splits.append(job.split)
        for number in job.micro_batches():
            inputs, targets = model.batch(number)
            job.backward(model.loss(network(inputs), targets))
        optimizer.step()
        optimizer.zero_grad()
        done.append(job.iteration)
    if mailbox.rank == 0:
        job.checkpointed(77)
    return {"done": done, "wrote": disk.wrote, "mailbox": mailbox, "splits": splits}


def play_all(
    folder: Path, posts: list[Post], kind: str = "ddp", fails: Any = None, without: Any = frozenset(), world: int = 2
) -> list[dict[str, Any]]:
    return play(world, train, kind, str(folder), fails or {}, without, posts=posts)


@pytest.mark.parametrize(("kind", "world"), [("ddp", 2), ("fsdp", 4)])
def test_an_ordered_checkpoint_is_written_between_two_iterations(kind: str, world: int, tmp_path: Path) -> None:
    ranks = play_all(tmp_path, [checkpoint(3, 1)], kind, world=world)
    for r in ranks:
        assert r["done"] == list(range(1, ITERATIONS + 1))
        assert r["wrote"] == [3 + DELAY]
        calls = r["mailbox"].calls
        assert ("ack", 1, 3 + DELAY, _hook.APPLIED) in calls
        assert calls.index(("checkpoint", 3 + DELAY)) < calls.index(("ack", 1, 3 + DELAY, 0))
    assert ranks[0]["mailbox"].of("checkpoint")[-1] == (77,)


def test_ranks_leave_once_it_is_written(tmp_path: Path) -> None:
    for r in play_all(tmp_path, [checkpoint(3, 1, leave=True)]):
        assert r["done"] == list(range(1, 4 + DELAY))
        assert r["wrote"] == [3 + DELAY]
        assert r["mailbox"].of("ack") == [(1, 3 + DELAY, _hook.APPLIED)]
        assert ("finish",) in r["mailbox"].calls


@pytest.mark.parametrize("how", ["raises", "returns"])
@pytest.mark.parametrize("leave", [False, True])
def test_one_rank_that_cannot_write_is_everybodys_failure(how: str, leave: bool, tmp_path: Path) -> None:
    for r in play_all(tmp_path, [checkpoint(3, 1, leave), split(6, 2, [2, 6])], fails={1: how}):
        assert len(r["done"]) == ITERATIONS
        assert r["mailbox"].of("ack") == [(1, 3 + DELAY, _hook.NOT_WRITTEN), (2, 6 + DELAY, _hook.APPLIED)]
        assert not [c for c in r["mailbox"].of("checkpoint") if c != (77,)]
        assert r["splits"][-1] == [2, 6]


REFUSED = [
    (checkpoint(3, 1), {0, 1}, _hook.REFUSED_KIND),
    (checkpoint(3, 1, leave=True), {1}, _hook.REFUSED_KIND),
    (Post(3, Order(1, 1, _hook.CHECKPOINT, [])), set(), _hook.REFUSED_VALUES),
    (Post(3, Order(1, 1, _hook.CHECKPOINT, [2])), set(), _hook.REFUSED_VALUES),
]


@pytest.mark.parametrize(("post", "without", "status"), REFUSED)
def test_refused_alike_on_all_ranks(post: Post, without: set[int], status: int, tmp_path: Path) -> None:
    for r in play_all(tmp_path, [post], without=without):
        assert r["mailbox"].of("ack") == [(1, 3 + DELAY, status)]
        assert not r["wrote"]


def misuse(_: Mailbox) -> str:
    ddp = DistributedDataParallel(model.network())
    with pytest.raises(ValueError, match="save") as e:
        falcon_torch.ddp(ddp, torch.optim.SGD(ddp.parameters()), 1, save="folder")  # type: ignore[arg-type]
    return str(e.value)


def test_misuse_is_refused_with_a_sentence() -> None:
    assert play(1, misuse) == ["save is a str; it must be a function of an iteration"]


# ---- a recovery that goes back to storage ----


def train_on(
    folder: str, dies: tuple[int, int] | None, fails: dict[int, Any], mailbox: ParkingMailbox
) -> dict[str, Any]:
    wrapped = DistributedDataParallel(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)))
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-2)
    disk = Disk(mailbox, folder, wrapped.module, optimizer, fails=fails)
    job = falcon_torch.ddp(wrapped, optimizer, 2, save=disk.save, load=disk.load)
    sums: dict[int, int] = {}
    while job.next_iteration(ITERATIONS):
        with job.attempt():
            i = job.iteration
            if dies == (mailbox.rank, i) and mailbox.generation == 0:
                os._exit(9)
            for number in job.micro_batches():
                inputs, targets = model.batch(number)
                job.backward(model.loss(wrapped(inputs), targets))
            optimizer.step()
            optimizer.zero_grad()
            sums[i] = checksum([*wrapped.parameters(), *wrapped.buffers()])
    return {"sums": sums, **{name: mailbox.of(name) for name in ("rejoined", "checkpoint", "ack")}}


def play_on(folder: Path, dies: tuple[int, int] | None, fails: dict[int, Any], stored: int, again: bool) -> Any:
    torch.manual_seed(5)
    _recover.ALIVE_S = 20
    job = Job(2, partial(train_on, str(folder), dies, fails), [checkpoint(2, 1)])
    resumed = -1
    try:
        for rank in range(2):
            job.start(rank, rank)
        if dies is not None:
            resumed = job.recover(dies[0], dies[0], stored)
            if again:
                time.sleep(0.5)
                job.again(stored)
        return job.results(), resumed
    finally:
        job.end()


@cache
def undisturbed(folder: Path) -> list[dict[int, int]]:
    return [r["sums"] for r in play_on(folder, None, {}, -1, False)[0]]


@pytest.mark.parametrize("fails", [{}, {1: "load"}], ids=["at once", "storage away once"])
def test_a_recovery_from_storage_is_the_same_to_the_bit(fails: dict[int, Any], tmp_path: Path) -> None:
    want = undisturbed(tmp_path)
    got, _ = play_on(tmp_path, (0, 8), fails, 4, bool(fails))
    for rank, r in enumerate(got):
        trained = range(4 if rank == 0 else 0, ITERATIONS)
        assert r["sums"] == {i: want[rank][i] for i in trained}
        statuses = [status for _, status, *_ in r["rejoined"]]
        assert statuses == ([_hook.FAILED_STORAGE, _hook.REJOINED] if fails else [_hook.REJOINED])
        assert r["checkpoint"][-1] == (4,)


def test_a_rank_that_dies_while_it_writes_leaves_no_checkpoint(tmp_path: Path) -> None:
    want = undisturbed(tmp_path)
    got, resumed = play_on(tmp_path, (1, -1), {1: "dies"}, -1, False)
    assert resumed == 2 + DELAY
    for rank, r in enumerate(got):
        assert r["sums"] == {i: want[rank][i] for i in range(resumed if rank == 1 else 0, ITERATIONS)}
        assert not r["checkpoint"]
        assert all(status == _hook.NOT_WRITTEN for _, _, status in r["ack"])
