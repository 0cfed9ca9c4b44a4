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
from fake_hook import Post, placement
from falcon_torch import _hook, _recover, _run
from falcon_torch._mesh import place
from falcon_torch._state import _local, checksum
from falcon_torch._votes import DELAY
from parking import GLOO_S, Job, ParkingMailbox

if importlib.util.find_spec("torchtitan") is None:
    pytest.skip("torchtitan is not installed", allow_module_level=True)

import titan_job

Death = tuple[int, int, str]  # a rank, a step, and where in it
Noted = dict[tuple[int, int], Any]  # of a rank and a step
MESHES = {"dp=2": (2, 1), "fsdp=2,dp=2": (2, 2)}


class Script:
    """A script that may die, and notes what each step was."""

    def __init__(self, mesh: str, dies: Death | None, mailbox: ParkingMailbox) -> None:
        self.mesh, self.dies, self.mailbox, self.notes = mesh, dies, mailbox, Noted()

    def at(self, point: str) -> None:
        """Where a rank may die."""
        if self.dies == (self.mailbox.rank, self.trainer.step - 1, point) and self.mailbox.generation == 0:
            os._exit(9)

    def run(self, folder: str) -> None:
        config = titan_job.config(folder, *MESHES[self.mesh], keeps=False)
        config.optimizer, config.metrics.log_freq = titan_job.optimizer_of.default_adamw(lr=1e-2), 1
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
        torch.rand(())
        return theirs(batch, labels)

    def update(self, theirs: Any) -> None:
        self.at("before the update")
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


def train(mesh: str, dies: Death | None, mailbox: ParkingMailbox) -> Any:
    """What each rank noted of each step, as this process saw it."""
    _recover.ALIVE_S, _recover.MEET_S, _run.BACK_S = 30, 30, 60
    dist.distributed_c10d.default_pg_timeout = timedelta(seconds=GLOO_S)  # of a mesh's groups
    script, entered = Script(mesh, dies, mailbox), []

    def body() -> str:
        entered.append(int(os.environ["RANK"]))
        with tempfile.TemporaryDirectory() as folder:
            script.run(folder)
        return "the end"

    assert falcon_torch.run(body) == "the end"
    calls = {name: mailbox.of(name) for name in ("place", "ack", "rejoined")}
    return {"seen": script.notes, "entered": entered, "calls": calls}


def run(mesh: str, posts: list[Post], dies: Death | None = None, dead: Any = None) -> list[Any]:
    world = MESHES[mesh][0] * MESHES[mesh][1]
    return Job(world, partial(train, mesh, dies), posts, lambda rank: place(mesh, rank, world).shard).play(dead)


def merged(got: list[Any]) -> Noted:
    out: Noted = {}
    for r in got:
        for at, seen in r["seen"].items():
            assert out.setdefault(at, seen) == seen, at
    return out


@cache
def undisturbed(mesh: str) -> Noted:
    return merged(run(mesh, []))


def check_death(mesh: str, dies: Death) -> None:
    want = undisturbed(mesh)
    got = run(mesh, [], dies, dead=(dies[0], dies[0]))
    seen = merged(got)
    assert seen == {at: want[at] for at in seen}
    assert {(r, i) for r, i in want if i > dies[1] or (r != dies[0] and i < dies[1])} <= set(seen)
    for rank, r in enumerate(got):
        assert len(r["entered"]) == (1 if rank == dies[0] else 2)
        assert [status for _, status, *_ in r["calls"]["rejoined"]] == [_hook.REJOINED]


def check_places(mesh: str, blocks: list[int]) -> None:
    got = run(mesh, [placement(1, 7, blocks)])
    assert merged(got) == undisturbed(mesh)
    for r in got:
        assert len(r["entered"]) == 2
        assert r["calls"]["ack"][-1] == (7, 1 + DELAY, _hook.APPLIED)
        ((order, i, rank, step_ns, _),) = r["calls"]["place"]
        assert (order, i, rank) == (7, 1 + DELAY, r["entered"][1])
        assert all(ns > 0 for ns in step_ns)


POINTS = ["in the forward pass", "before the update", "behind the optimizer", "after the update"]


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("point", POINTS)
def test_a_rank_dies_and_its_replica_gives_its_state(mesh: str, point: str) -> None:
    check_death(mesh, (1, 2, point))


@pytest.mark.parametrize("mesh", MESHES)
def test_processes_change_places(mesh: str) -> None:
    check_places(mesh, [1, 0])
