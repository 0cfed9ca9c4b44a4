"""torchtitan's own Trainer on CPUs, with one call: whatever the split, the same gradients from the same data."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import falcon_torch
from fake_hook import Mailbox, Post, checkpoint, split, stop
from ranks import play, same

if importlib.util.find_spec("torchtitan") is None:
    pytest.skip("torchtitan is not installed", allow_module_level=True)

import titan_job as job
from falcon_torch import _hook
from falcon_torch._titan_state import TAKEN_EVERY, Progress


@cache
def alone() -> list[list[Any]]:
    """The gradients of one process without Falcon."""
    ((got),) = play(1, job.play_job, 1, 1, "", False)
    return got["gradients"]  # type: ignore[no-any-return]


def check(ranks: list[dict[str, Any]], splits: list[list[int]], shard: int, record_property: Any) -> None:
    """Each step has its own batches, each once; all gradients are those of the global batch."""
    worst = 0.0
    for got in ranks:
        assert len(got["gradients"]) == len(splits)
        for mine, want in zip(got["gradients"], alone(), strict=True):
            for g, w in zip(mine, want, strict=True):
                worst = max(worst, same(torch.from_numpy(g), torch.from_numpy(w)))
    record_property("largest_relative_difference", worst)
    assert worst <= 1e-6
    for i, counts in enumerate(splits):
        dealt = [r["seen"][i] for r in ranks]
        assert sorted(n for d in dealt for n in d) == list(range(i * job.BATCHES, (i + 1) * job.BATCHES))
        assert [len(d) for d in dealt] == [m for m in counts for _ in range(shard)]


@pytest.mark.parametrize(
    ("replicate", "shard", "mesh", "posts"),
    [
        (2, 1, "dp=2", [split(0, 1, [1, 7]), split(2, 2, [6, 2])]),
        (2, 2, "fsdp=2,dp=2", [split(0, 1, [1, 3]), split(2, 2, [3, 1])]),
    ],
    ids=["replicas", "replicas of shards"],
)
def test_gradients_and_data_with_uneven_splits(
    replicate: int, shard: int, mesh: str, posts: list[Post], record_property: Any
) -> None:
    ranks = play(replicate * shard, job.play_job, replicate, shard, posts=posts)
    each = job.BATCHES // replicate // shard
    for got in ranks:
        assert got["mailbox"].of("mesh")[0] == (mesh, each)
        assert got["mailbox"].of("ack") == [(1, 2, 0), (2, 4, 0)]
        assert got["mailbox"].of("begin") == [(i,) for i in range(job.STEPS)]
        assert got["mailbox"].of("updated") == [(i + 1,) for i in range(job.STEPS)]
        assert got["mailbox"].of("finish") == [()]
    first, second = (p.order.values for p in posts)
    check(ranks, [[each] * 2] * 2 + [first] * 2 + [second] * (job.STEPS - 4), shard, record_property)


def test_shards_alone_have_nobody_to_give_to(record_property: Any) -> None:
    ranks = play(2, job.play_job, 1, 2, posts=[split(0, 1, [3, 5])])
    assert all(got["mailbox"].of("ack") == [(1, 2, _hook.REFUSED_VALUES)] for got in ranks)
    check(ranks, [[4]] * job.STEPS, 2, record_property)


def test_a_checkpoint_on_order_is_gone_on_with(tmp_path: Path, record_property: Any) -> None:
    first = play(2, job.play_job, 2, 1, str(tmp_path), posts=[split(0, 1, [3, 5]), checkpoint(2, 5, leave=True)])
    for got in first:
        assert got["step"] == 4
        assert got["mailbox"].of("checkpoint") == [(4,)]
        assert got["mailbox"].of("ack") == [(1, 2, 0), (5, 4, 0)]
    again = play(2, job.play_job, 2, 1, str(tmp_path))
    for early, late in zip(first, again, strict=True):
        assert late["mailbox"].of("begin")[0] == (4,)
        early["gradients"] += late["gradients"]
        early["seen"] += late["seen"]
    check(first, [[4, 4]] * 2 + [[3, 5]] * 2 + [[4, 4]] * 2, 1, record_property)


def test_an_order_to_stop_ends_it() -> None:
    for got in play(2, job.play_job, 2, 1, posts=[stop(2, 9)]):
        assert (got["step"], len(got["gradients"])) == (4, 4)


def misuse(_: Mailbox) -> str:
    with pytest.raises(ValueError, match="trainer is a") as e:
        falcon_torch.torchtitan(torch.nn.Linear(1, 1))
    return str(e.value)


def test_misuse_is_refused_with_a_sentence() -> None:
    assert play(1, misuse) == ["trainer is a Linear without should_continue_training; give a Trainer of torchtitan"]


class Counted:
    """A loader that knows how many batches it has given."""

    def __init__(self) -> None:
        self.given = 0

    def __iter__(self) -> Iterator[int]:
        while True:
            self.given += 1
            yield self.given

    def state_dict(self) -> dict[str, int]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.given = state["given"]


def counted_trainer() -> Any:
    schedules = SimpleNamespace(state_dict=dict, load_state_dict=lambda _: None)
    return SimpleNamespace(
        parallel_dims=SimpleNamespace(dp_enabled=False),
        gradient_accumulation_steps=2,
        step=0,
        ntokens_seen=0,
        dataloader=Counted(),
        lr_schedulers=schedules,
    )


def test_a_loader_that_is_behind_is_not_taken() -> None:
    """Who takes a dead rank over reads the data again: until then its loader's place is not that of the step."""
    step = 3 * TAKEN_EVERY
    progress = Progress(counted_trainer())
    progress.load_state_dict({"step": step, "tokens": 0, "schedules": {}, "rank": 1, "loader": (step, {"given": 7})})
    kept = progress.state_dict()
    again = Progress(trainer := counted_trainer())
    again.load_state_dict(kept)
    again.skip(iter(trainer.dataloader))
    assert trainer.dataloader.given == 2 * step
    assert again.state_dict()["loader"] == (step, {"given": 2 * step})
