"""Megatron-LM's own pretrain() on CPUs, and one line: whatever the split, the same gradients from the same data."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

import falcon_torch
from fake_hook import Mailbox, checkpoint, split, stop
from falcon_torch._mesh import place
from ranks import play, same

if importlib.util.find_spec("megatron") is None or importlib.util.find_spec("megatron.training") is None:
    pytest.skip("megatron-core with megatron.training is not installed", allow_module_level=True)

import megatron_job as job
from falcon_torch import _hook, _megatron_lm, _votes

ITERATIONS, BATCH = 6, 16  # BATCH: samples of an iteration
EVEN = f"--global-batch-size {BATCH} --train-iters {ITERATIONS}"
POSTS = [split(0, 1, [1, 7]), split(2, 2, [6, 2])]
RealHook = _hook.Hook


def first_of(ranks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A rank of the first stage for each replica."""
    found: dict[int, dict[str, Any]] = {}
    for rank, got in enumerate(ranks):
        layout = place(got["mailbox"].of("mesh")[0][0], rank, len(ranks))
        if got["parts"][0] == 0:
            found.setdefault(layout.replica, got)
    return [found[k] for k in sorted(found)]


def check(ranks: list[dict[str, Any]], splits: list[list[int]], record_property: Any) -> None:
    """Each iteration has its own samples, each once; all gradients are those of the global batch."""
    want = job.reference(len(splits), BATCH)
    worst = 0.0
    for got in ranks:
        assert len(got["gradients"]) == len(splits)
        for i, gradients in enumerate(got["gradients"]):
            for g, n in zip(gradients, got["parts"], strict=True):
                worst = max(worst, same(torch.from_numpy(g).view(want[i][n].shape), want[i][n]))
    record_property("largest_relative_difference", worst)
    assert worst <= 1e-6
    for i, counts in enumerate(splits):
        dealt = [r["seen"][i] for r in first_of(ranks)]
        assert sorted(n for d in dealt for n in d) == list(range(i * BATCH, (i + 1) * BATCH))
        assert [len(d) // job.SIZE for d in dealt] == counts


def moved(m: int = 4) -> list[list[int]]:
    """The split of each iteration with POSTS."""
    return [[m, m]] * 2 + [[1, 7]] * 2 + [[6, 2]] * (ITERATIONS - 4)


@pytest.mark.parametrize(
    ("world", "more", "mesh"),
    [
        (2, "", "dp=2"),
        (2, "--calculate-per-token-loss --dataloader-type cyclic", "dp=2"),
        (4, "--tensor-model-parallel-size 2", "tp=2,dp=2"),
        (4, "--pipeline-model-parallel-size 2 --overlap-grad-reduce", "dp=2,pp=2"),
        (4, "--pipeline-model-parallel-size 2 --use-tp-pp-dp-mapping", "pp=2,dp=2"),
    ],
    ids=["ddp", "per token, cyclic", "beside tensor parallel", "pipeline", "pipeline inside"],
)
def test_gradients_and_data_with_uneven_splits(world: int, more: str, mesh: str, record_property: Any) -> None:
    ranks = play(world, job.play_job, f"{EVEN} {more}", posts=POSTS)
    for got in ranks:
        assert got["mailbox"].of("mesh")[0] == (mesh, 4)
        assert got["mailbox"].of("ack") == [(1, 2, 0), (2, 4, 0)]
        assert got["mailbox"].of("begin") == [(i,) for i in range(ITERATIONS)]
        assert got["mailbox"].of("updated") == [(i + 1,) for i in range(ITERATIONS)]
        assert got["mailbox"].of("finish") == [()]
        assert got["end"] == "returned"
    if "cyclic" in more:  # its samples are in an order of Megatron's: an epoch has each once
        assert sorted(n for r in ranks for i in r["seen"] for n in i) == list(range(ITERATIONS * BATCH))
    else:
        check(ranks, moved(), record_property)


@pytest.mark.parametrize(
    ("world", "more", "zero"),
    [
        (2, "", (0, 0)),
        (2, "--optimizer adam --use-distributed-optimizer", (1, 1)),
        (4, "--optimizer adam --use-distributed-optimizer --num-distributed-optimizer-instances 2", (1, 2)),
    ],
    ids=["whole", "one copy", "two copies"],
)
def test_how_the_optimizer_is_spread_is_declared(world: int, more: str, zero: tuple[int, int]) -> None:
    for got in play(world, job.play_job, f"{EVEN} {more}"):
        assert got["mailbox"].of("zero") == [zero]


def test_virtual_stages(record_property: Any) -> None:
    posts = [split(0, 1, [1, 7]), split(2, 2, [6, 2])]
    more = "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 --num-layers 4"
    ranks = play(4, job.play_job, f"{EVEN} {more}", posts=posts)
    for got in ranks:
        assert got["mailbox"].of("ack") == [(1, 2, _hook.REFUSED_VALUES), (2, 4, 0)]
        assert got["mailbox"].of("state")[0][1:] == (2, 2)
        assert got["mailbox"].of("mesh")[0] == ("dp=2,pp=2,vpp=2", 4)
    check(ranks, [[4, 4]] * 4 + [[6, 2]] * 2, record_property)


def test_a_checkpoint_on_order_is_gone_on_with(tmp_path: Path, record_property: Any) -> None:
    kept = f"{EVEN} --save {tmp_path} --save-interval 100 --ckpt-format torch"
    first = play(2, job.play_job, kept, posts=[checkpoint(1, 5, leave=True)])
    for got in first:
        assert got["end"] == "exit 0"
        assert got["mailbox"].of("checkpoint") == [(3,)]
        assert got["mailbox"].of("ack") == [(5, 3, 0)]
    again = play(2, job.play_job, f"{kept} --load {tmp_path}", posts=[split(3, 6, [3, 5])])
    for early, late in zip(first, again, strict=True):
        assert late["mailbox"].of("begin")[0] == (3,)
        early["gradients"] += late["gradients"]
        early["seen"] += late["seen"]
    check(first, [[4, 4]] * 5 + [[3, 5]], record_property)


def test_an_order_to_stop_ends_it() -> None:
    for got in play(2, job.play_job, EVEN, posts=[stop(2, 9), split(0, 1, [3, 5])]):
        assert (got["end"], len(got["gradients"])) == ("exit 0", 4)
        assert got["mailbox"].of("ack")[-1] == (9, 4, 0)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("--iterations-to-skip 6", "--iterations-to-skip reads the batches of iterations that do not run"),
        ("--decrease-batch-size-if-needed", "--decrease-batch-size-if-needed changes their number"),
    ],
)
def test_where_counts_can_not_move_orders_are_refused(more: str, why: str, capfd: pytest.CaptureFixture[str]) -> None:
    for got in play(2, job.play_job, f"{EVEN} {more}", posts=[split(0, 1, [3, 5])]):
        assert got["mailbox"].of("ack") == [(1, 2, _hook.REFUSED_VALUES)]
        assert got["mailbox"].of("state")[-1][1:] == (4, 4)
        assert got["end"] == "returned"
    assert f"falcon_torch: micro-batches stay where they are: {why}" in capfd.readouterr().err


def test_a_rank_without_the_hook_leaves_all_to_megatron(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_votes, "MEET_S", 2)
    for got in play(2, job.play_job, EVEN, hookless=frozenset({1}), posts=[split(0, 1, [3, 5])]):
        assert (got["end"], got["mailbox"].of("begin")) == ("returned", [])
        assert all(len(s) == BATCH // 2 for s in got["seen"])
    assert "falcon_torch: Megatron-LM trains without Falcon: not every rank has come" in capfd.readouterr().err


def functions(mailbox: Mailbox) -> list[str]:
    training = importlib.import_module("megatron.training.training")
    _hook.Hook = RealHook  # type: ignore[misc]
    falcon_torch.megatron_lm()
    names = [getattr(training, name).__code__.co_filename.rpartition("/")[2] for name in _megatron_lm.NEEDED[:3]]
    _hook.Hook = lambda: mailbox  # type: ignore[assignment,misc]
    del training.checkpoint_and_decide_exit
    with pytest.raises(ValueError, match="this Megatron-LM has no checkpoint_and_decide_exit, unlike core_v0"):
        falcon_torch.megatron_lm()
    return names


def test_without_the_hook_nothing_is_replaced() -> None:
    assert play(1, functions) == [["training.py"] * 3]
