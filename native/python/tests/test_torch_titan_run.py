"""torchtitan's own Trainer is made and entered again: after a death, or with other ranks. Same to the bit."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from datetime import timedelta
from functools import cache, partial
from typing import Any

import pytest
import torch
import torch.distributed as dist

import falcon_torch
from entered import STEPS, Case, Death, Noted, check_deaths, check_places, die, long, many_deaths, many_places
from falcon_torch import _recover, _run
from falcon_torch._mesh import place
from falcon_torch._state import _local, checksum
from parking import GLOO_S, ParkingMailbox

if importlib.util.find_spec("torchtitan") is None:
    pytest.skip("torchtitan is not installed", allow_module_level=True)

import titan_job

MESHES = {"dp=2": (2, 1), "fsdp=2,dp=2": (2, 2)}


class Script:
    """A script that may die, and notes what each step was."""

    def __init__(self, mesh: str, steps: int, deaths: tuple[Death, ...], mailbox: ParkingMailbox) -> None:
        self.mesh, self.steps, self.deaths, self.mailbox, self.notes = mesh, steps, deaths, mailbox, Noted()

    def at(self, point: str) -> None:
        """Where a rank may die."""
        die(self.deaths, self.mailbox, self.trainer.step - 1, point)

    def run(self, folder: str) -> None:
        config = titan_job.config(folder, *MESHES[self.mesh], keeps=False)
        config.optimizer, config.metrics.log_freq = titan_job.optimizer_of.default_adamw(lr=1e-2), 1
        config.training.steps = self.steps
        self.trainer = trainer = config.build()
        for model in trainer.model_parts:
            titan_job.set_weights(model)
            for module in model.modules():
                if hasattr(module, "set_force_sum_reduction_for_comms"):
                    module.set_force_sum_reduction_for_comms(True)
        for owner, name, mine in (
            (trainer, "post_dataloading_process", self.process),
            (trainer.optimizers, "step", self.update),
            (trainer.lr_schedulers, "step", self.schedule),
            (trainer.metrics_processor, "log", self.log),
        ):
            setattr(owner, name, partial(mine, getattr(owner, name)))
        self.batches: list[int] = []
        falcon_torch.torchtitan(trainer)
        trainer.train()
        trainer.close()

    def process(self, theirs: Any, batch: dict[str, Any], labels: Any) -> Any:
        self.at("in the forward pass")
        self.batches.append(int(batch.pop("number")))
        return theirs(batch, labels)

    def update(self, theirs: Any) -> None:
        self.at("before the update")
        torch.rand(())
        theirs()

    def schedule(self, theirs: Any) -> None:
        self.at("behind the optimizer")
        theirs()

    def log(self, theirs: Any, step: int, *losses: Any, **more: Any) -> None:
        parameters = [_local(p.data) for part in self.trainer.model_parts for p in part.parameters()]
        rates = [g["lr"] for o in self.trainer.optimizers.optimizers for g in o.param_groups]
        each = sorted(self.batches[-self.trainer.gradient_accumulation_steps :])
        sums = checksum(parameters), checksum([torch.get_rng_state()])
        self.notes[dist.get_rank(), step - 1] = losses, rates, each, *sums
        self.at("after the update")
        theirs(step, *losses, **more)


def train(mesh: str, steps: int, deaths: tuple[Death, ...], mailbox: ParkingMailbox) -> Any:
    """What each rank noted of each step, as this process saw it."""
    _recover.ALIVE_S, _recover.MEET_S, _run.BACK_S = 30, 30, 60
    dist.distributed_c10d.default_pg_timeout = timedelta(seconds=GLOO_S)  # of a mesh's groups
    script, entered = Script(mesh, steps, deaths, mailbox), []

    def body() -> str:
        entered.append(int(os.environ["RANK"]))
        with tempfile.TemporaryDirectory() as folder:
            script.run(folder)
        return "the end"

    assert falcon_torch.run(body) == "the end"
    calls = {name: mailbox.of(name) for name in ("place", "ack", "rejoined")}
    return {"seen": script.notes, "entered": entered, "calls": calls}


POINTS = ["in the forward pass", "before the update", "behind the optimizer", "after the update"]


@cache
def case(mesh: str, steps: int = 6) -> Case:
    world = MESHES[mesh][0] * MESHES[mesh][1]
    return Case(world, train, mesh, lambda rank: place(mesh, rank, world).shard, steps)


@pytest.mark.parametrize("point", POINTS[:3:2])
def test_a_rank_dies_and_its_replica_gives_its_state(point: str) -> None:
    check_deaths(case("dp=2"), (1, 2, point))


@pytest.mark.parametrize("point", POINTS)
@long
def test_a_rank_dies_anywhere(point: str) -> None:
    check_deaths(case("dp=2"), (0, 2, point))


def test_a_rank_dies_while_another_waits_for_its_batches() -> None:
    check_deaths(case("dp=2"), (1, 4, POINTS[0]), counts=(6, 2))


def test_processes_change_places() -> None:
    check_places(case("dp=2"), (1, [1, 0]))


@pytest.mark.parametrize("point", POINTS)
@long
def test_a_rank_of_shards_dies(point: str) -> None:
    check_deaths(case("fsdp=2,dp=2"), (1, 2, point))


@pytest.mark.parametrize("blocks", [[1, 0], [2, 0, 3, 1]], ids=str)
@long
def test_processes_with_shards_change_places(blocks: list[int]) -> None:
    check_places(case("fsdp=2,dp=2"), (1, blocks))


@long
def test_ranks_die_time_and_again() -> None:
    check_deaths(case("dp=2", STEPS), *many_deaths(case("dp=2").world, POINTS))


@pytest.mark.parametrize("mesh", MESHES)
@long
def test_processes_change_places_time_and_again(mesh: str) -> None:
    check_places(case(mesh, STEPS), *many_places())
