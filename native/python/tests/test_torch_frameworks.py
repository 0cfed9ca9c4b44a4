"""transformers, accelerate, Lightning and DeepSpeed on CPUs, one line each: marks, layout, checkpoints, a stop."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import falcon_torch
from fake_hook import Mailbox, checkpoint, split, stop
from falcon_torch import _deepspeed, _hook, _lightning
from falcon_torch._transformers import groups_of
from ranks import play, same

pytest.importorskip("numpy")
import frameworks_job as job

NAMES = job.NAMES
if not NAMES:
    pytest.skip("none of transformers, accelerate, Lightning and DeepSpeed is installed", allow_module_level=True)
EXITS = ("accelerate", "deepspeed")  # whose loop is the script's
WORDS = {
    "transformers": "",
    "accelerate": "the script's own loop counts them",
    "lightning": "Lightning counts the batches of an epoch on each rank by itself",
    "deepspeed": "DeepSpeed counts them on each rank by itself",
}


def check_ends_alike(name: str, got: dict[str, Any], steps: int) -> None:
    assert got["end"] == ("exit 0" if name in EXITS else "returned")
    assert len([s for s in got["seen"] if len(s) == job.PER_STEP * job.SIZE]) == steps


def numbers(ranks: list[dict[str, Any]], step: int) -> list[int]:
    return sorted(n for got in ranks for n in got["seen"][step])


@pytest.mark.parametrize("name", NAMES)
def test_marks_and_a_checkpoint_on_order_that_is_gone_on_with(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = play(2, job.play_job, name, str(tmp_path / "whole"), False, {})
    folder = tmp_path / "kept"
    folder.mkdir()
    posts = [checkpoint(1, 5, leave=True)] + ([] if name == "transformers" else [split(0, 1, [3, 5])])
    first = play(2, job.play_job, name, str(folder), False, {}, posts=posts)
    for got in first:
        check_ends_alike(name, got, 3)
        mailbox = got["mailbox"]
        assert mailbox.of("mesh")[0] == ("dp=2", job.PER_STEP)
        assert [b for (b,) in mailbox.of("begin")] == [0, 1, 2]
        assert [u for (u,) in mailbox.of("update")] == [0, 1, 2]
        assert mailbox.of("updated") == [(1,), (2,), (3,)]
        assert mailbox.of("checkpoint") == [(3,)]
        assert mailbox.of("ack")[-1] == (5, 3, 0)
        assert mailbox.of("zero")[0] == ((1, 1) if name == "deepspeed" else (0, 0))
        assert mailbox.of("can")[-1][0] & (_hook.CAN_PARK | _hook.CAN_PLACE) == 0
        assert mailbox.of("can")[-1][0] & _hook.CAN_CHECKPOINT
        assert bool(mailbox.of("can")[-1][0] & _hook.CAN_SPLIT) == (name == "transformers")
    again = play(2, job.play_job, name, str(folder), True, {})
    for got, want in zip(again, whole, strict=True):
        assert got["mailbox"].of("begin")[0] == (3,)
        assert got["seen"] == want["seen"][3:]
        for g, w in zip(got["weights"], want["weights"], strict=True):
            assert same(torch.from_numpy(g), torch.from_numpy(w)) <= 1e-6
    if WORDS[name]:
        assert f"falcon_torch: micro-batches stay where they are: {WORDS[name]}" in capfd.readouterr().err


@pytest.mark.parametrize("name", NAMES)
def test_an_order_to_stop_ends_it(name: str, tmp_path: Path) -> None:
    for got in play(2, job.play_job, name, str(tmp_path), False, {}, posts=[stop(2, 9)]):
        check_ends_alike(name, got, 4)
        assert got["mailbox"].of("ack") == [(9, 4, 0)]
        assert got["mailbox"].of("finish") == [()]


@pytest.mark.skipif("transformers" not in NAMES, reason="transformers is not installed")
@pytest.mark.parametrize("options", [{}, {"masks": 3}], ids=["means", "tokens of all ranks"])
def test_batches_of_a_trainer_move(options: dict[str, Any], tmp_path: Path, record_property: Any) -> None:
    even = play(2, job.play_job, "transformers", str(tmp_path), False, options)
    posts = [split(0, 1, [1, 7]), split(2, 2, [6, 2])]
    moved = play(2, job.play_job, "transformers", str(tmp_path), False, options, posts=posts)
    worst = 0.0
    for got, want in zip(moved, even, strict=True):
        assert got["mailbox"].of("ack") == [(1, 2, 0), (2, 4, 0)]
        for mine, theirs in zip(got["gradients"], want["gradients"], strict=True):
            for g, w in zip(mine, theirs, strict=True):
                worst = max(worst, same(torch.from_numpy(g), torch.from_numpy(w)))
    for i, counts in enumerate([[4, 4]] * 2 + [[1, 7]] * 2 + [[6, 2]] * 2):
        assert [len(got["seen"][i]) // job.SIZE for got in moved] == counts
        assert numbers(moved, i) == numbers(even, i)
    record_property("largest_relative_difference", worst)
    assert worst <= 1e-6


@pytest.mark.skipif("deepspeed" not in NAMES, reason="DeepSpeed is not installed")
@pytest.mark.parametrize(
    ("stage", "mesh", "zero"), [(0, "dp=2", (0, 0)), (2, "dp=2", (2, 1)), (3, "fsdp=2", (3, 1))], ids=str
)
def test_stages_of_zero(stage: int, mesh: str, zero: tuple[int, int], tmp_path: Path) -> None:
    for got in play(2, job.play_job, "deepspeed", str(tmp_path), False, {"stage": stage}, posts=[stop(1, 9)]):
        assert (got["mailbox"].of("mesh")[0][0], got["mailbox"].of("zero")[0]) == (mesh, zero)
        assert got["mailbox"].of("updated") == [(1,), (2,), (3,)]


def test_groups_of_batches() -> None:
    sizes = [[len(g.batches) for g in groups_of([{"x": k} for k in range(m)], 4)] for m in (1, 4, 7, 9)]
    assert sizes == [[0, 0, 0, 1], [1, 1, 1, 1], [1, 2, 2, 2], [2, 2, 2, 3]]


@pytest.mark.parametrize(
    ("environment", "rank", "refused"),
    [
        ("LightningEnvironment", "2", True),
        ("LightningEnvironment", "0", False),
        ("LightningEnvironment", "", False),
        ("SLURMEnvironment", "2", False),
    ],
)
def test_a_trainer_that_counts_ranks_by_itself_is_refused(
    environment: str, rank: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", rank)
    kind = type(environment, (), {})
    trainer = SimpleNamespace(global_rank=0, strategy=SimpleNamespace(cluster_environment=kind()))
    said = ""
    try:
        _lightning.check_rank(trainer)
    except ValueError as error:
        said = str(error)
    assert said == refused * (
        "Lightning takes this process for rank 0, and it was started as rank 2: give the Trainer "
        "plugins=[TorchElasticEnvironment()]"
    )


def misuse(_: Mailbox) -> list[str]:
    said = []
    for call in (falcon_torch.transformers, falcon_torch.accelerate, falcon_torch.lightning, falcon_torch.deepspeed):
        with pytest.raises(ValueError, match="Linear") as e:
            call(torch.nn.Linear(1, 1))
        said.append(str(e.value))
    engine = SimpleNamespace(
        optimizer=1, global_steps=0, save_checkpoint=0, gradient_accumulation_steps=0, has_moe_layers=True
    )
    engine.zero_optimization_stage = lambda: 1
    with pytest.raises(ValueError, match="this engine has experts: give falcon_torch"):
        _deepspeed.shape_of(engine, None)
    return said


def test_misuse_is_refused_with_a_sentence() -> None:
    assert play(1, misuse) == [
        [
            "trainer is a Linear without add_callback; give a Trainer of transformers",
            "accelerator is a Linear; give an Accelerator",
            "trainer is a Linear without callbacks; give a Trainer of Lightning",
            "engine is a Linear without global_steps; give one of DeepSpeed",
        ]
    ]
