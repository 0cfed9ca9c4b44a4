"""Megatron-LM's own pretrain() is entered again: after a death, or with other ranks. Same to the bit."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
from dataclasses import replace
from datetime import timedelta
from functools import cache, partial, wraps
from typing import Any

import pytest
import torch

import falcon_torch
from entered import STEPS, Case, Death, Noted, check_deaths, check_places, die, long, many_deaths, many_places
from falcon_torch import _hook, _recover, _run
from falcon_torch._mesh import place
from falcon_torch._state import checksum
from on_cpu import pretend
from parking import GLOO_S, ParkingMailbox

if importlib.util.find_spec("megatron") is None or importlib.util.find_spec("megatron.training") is None:
    pytest.skip("megatron-core with megatron.training is not installed", allow_module_level=True)

import megatron_job

for name in ("training.training", "core.tokenizers.text", "core.models.gpt.gpt_layer_specs"):
    importlib.import_module(f"megatron.{name}")  # once, before processes are forked
COMMON = "--global-batch-size 16 --optimizer adam --lr-warmup-iters 3 --num-workers 0"


class Noisy(megatron_job.Script):
    """A script that draws random numbers, may die, and notes what each iteration was."""

    def __init__(self, more: str, steps: int, deaths: tuple[Death, ...], mailbox: ParkingMailbox) -> None:
        super().__init__(f"{COMMON} --train-iters {steps} {more}")
        self.deaths, self.mailbox, self.notes = deaths, mailbox, Noted()
        self.draws = more != QUIET
        self.chunks: list[Any] = []
        self.log, self.training.training_log = self.training.training_log, self.note
        self.agree = self.training.logical_and_across_model_parallel_group
        self.training.logical_and_across_model_parallel_group = self.all_updated
        self.decides = self.training.checkpoint_and_decide_exit
        self.training.checkpoint_and_decide_exit = wraps(self.decides)(partial(Noisy.decide, self))
        importlib.import_module("megatron.core.parallel_state").timedelta = lambda **_: timedelta(seconds=GLOO_S)

    @property
    def iteration(self) -> int:
        return int(self.training.get_args().curr_iteration)

    def at(self, point: str) -> None:
        """Where a rank may die."""
        die(self.deaths, self.mailbox, self.iteration, point)

    def provide(self, *args: Any, **kwargs: Any) -> Any:
        made = super().provide(*args, **kwargs)
        whole = made.config.finalize_model_grads_func

        def finalize(*args: Any, **kwargs: Any) -> None:
            self.at("before gradients are exchanged")
            whole(*args, **kwargs)
            self.at("before the update")

        made.config.finalize_model_grads_func = finalize
        self.chunks.append(made)
        return made

    def forward_step(self, batches: Any, model: Any) -> Any:
        output, loss = super().forward_step(batches, model)
        self.at("in the forward pass")
        return (output + 0.01 * torch.rand_like(output) if self.draws else output), loss

    def note(self, losses: Any, total: Any, rate: Any, iteration: int, *args: Any, **kwargs: Any) -> Any:
        given, parameters = self.training.get_args(), [p for chunk in self.chunks for p in chunk.parameters()]
        counts = rate, given.consumed_train_samples
        sums = checksum(parameters), checksum([torch.get_rng_state()])
        what = {k: v.item() for k, v in losses.items()}, *counts, sorted(self.seen[-2]), *sums
        self.notes[given.rank, iteration - 1] = what
        self.at("after the update")
        return self.log(losses, total, rate, iteration, *args, **kwargs)

    def decide(self, *args: Any, **kwargs: Any) -> Any:
        call = inspect.signature(self.decides).bind(*args, **kwargs).arguments
        done = call["iteration"], call["num_floating_point_operations_so_far"]
        self.notes[self.training.get_args().rank, f"operations until {done[0]}"] = done[1]
        return self.decides(*args, **kwargs)

    def all_updated(self, *args: Any, **kwargs: Any) -> Any:
        self.at("behind the optimizer")
        return self.agree(*args, **kwargs)

    def run(self) -> None:
        self.chunks, self.seen = [], []
        super().run()


class Gpt(Noisy):
    """The same with a GPT of Megatron's: attention, tensor-parallel layers, experts, dropout."""

    def run(self) -> None:
        importlib.import_module("torch._dynamo").config.disable = True  # it would compile for minutes
        draws: Any = importlib.import_module("megatron.core.tensor_parallel.random")
        draws._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()
        draws._set_cuda_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
        super().run()

    def make(self, pre_process: bool, post_process: bool, config: Any, vp_stage: int) -> Any:
        specs = importlib.import_module("megatron.core.models.gpt.gpt_layer_specs")
        spec = specs.get_gpt_layer_local_spec(num_experts=self.training.get_args().num_experts)
        return importlib.import_module("megatron.core.models.gpt.gpt_model").GPTModel(
            config, spec, 128, megatron_job.SEQ, pre_process, post_process, vp_stage=vp_stage
        )

    def run_model(self, batch: Any, model: Any) -> tuple[Any, Any]:
        tokens = torch.stack([torch.arange(megatron_job.SEQ + 1) * 7 + int(k) for k in batch["index"]]) % 100
        mask = torch.ones(1, 1, megatron_job.SEQ, megatron_job.SEQ).triu(1) > 0
        places = torch.arange(megatron_job.SEQ).repeat(len(tokens), 1)
        return model(tokens[:, :-1], places, mask, labels=tokens[:, 1:]), self.sum_up

    @staticmethod
    def sum_up(output: Any) -> Any:
        loss, tokens = output.sum(), torch.tensor(output.numel(), dtype=torch.int)
        return loss, tokens, {"loss": torch.stack([loss.detach(), tokens.float()])}


def train(more: str, steps: int, deaths: tuple[Death, ...], mailbox: ParkingMailbox) -> Any:
    """What each rank noted of each iteration, as this process saw it."""
    _recover.ALIVE_S, _recover.MEET_S, _run.BACK_S = 30, 30, 60
    pretend()
    os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    script: Noisy = (Gpt if more in GPT else Noisy)(more, steps, deaths, mailbox)
    entered: list[int] = []
    falcon_torch.megatron_lm()

    def body() -> str:
        entered.append(int(os.environ["RANK"]))
        script.run()
        return "the end"

    assert falcon_torch.run(body) == "the end"
    calls = {name: mailbox.of(name) for name in ("place", "ack", "rejoined", "park", "can")}
    return {"seen": script.notes, "entered": entered, "calls": calls}


QUIET = "--log-interval 1"  # as it is; nothing is drawn, as replicas with other micro-batches would draw otherwise
PIPELINE = "--pipeline-model-parallel-size 2"
VIRTUAL = f"{PIPELINE} --num-virtual-stages-per-pipeline-rank 2 --num-layers 4"
TWO = "--use-distributed-optimizer --num-distributed-optimizer-instances 2"
TENSORS = "--tensor-model-parallel-size 2"
CONTEXT = "--context-parallel-size 2"
EXPERTS = "--expert-model-parallel-size 2 --num-experts 2 --moe-token-dispatcher-type allgather"
GPT = (TENSORS, EXPERTS)
MESHES = {
    "": "dp=2",
    QUIET: "dp=2",
    PIPELINE: "dp=2,pp=2",
    VIRTUAL: "dp=2,pp=2,vpp=2",
    TWO: "dp=4",
    TENSORS: "tp=2,dp=2",
    CONTEXT: "cp=2,dp=2",
    EXPERTS: "etp=1,ep=2,dp=4",
}
POINTS = [
    "in the forward pass",
    "before gradients are exchanged",
    "before the update",
    "behind the optimizer",
    "after the update",
]


@cache
def case(more: str, steps: int = 8) -> Case:
    world = 2 if MESHES[more] == "dp=2" else 4
    parts = 2 if more == TWO else 1

    def shard_of(rank: int) -> int:
        layout = place(MESHES[more], rank, world)
        return layout.shard * parts + layout.replica % parts

    return Case(world, train, more, shard_of, steps)


@pytest.mark.parametrize("point", POINTS[2:4])
def test_a_rank_dies_and_its_replica_gives_its_state(point: str) -> None:
    check_deaths(case(""), (1, 4, point))


@pytest.mark.parametrize("point", POINTS)
@long
def test_a_rank_dies_anywhere(point: str) -> None:
    check_deaths(case(""), (0, 4, point))


def test_a_rank_dies_while_another_waits_for_its_batches() -> None:
    check_deaths(case(QUIET), (1, 4, POINTS[0]), counts=(6, 2))


def test_processes_change_places() -> None:
    check_places(case(""), (3, [1, 0]))


@pytest.mark.parametrize("more", [more for more in MESHES if more != QUIET])
@pytest.mark.parametrize("point", [POINTS[1], POINTS[3]])
@long
def test_a_rank_of_any_layout_dies(more: str, point: str) -> None:
    check_deaths(case(more), (0, 4, point))


@pytest.mark.parametrize("more", [more for more in MESHES if more != QUIET])
@long
def test_processes_of_any_layout_change_places(more: str) -> None:
    check_places(case(more), (3, [1, 0]))


@pytest.mark.parametrize("more", ["", VIRTUAL])
@long
def test_ranks_die_time_and_again(more: str) -> None:
    check_deaths(case(more, STEPS), *many_deaths(case(more).world, POINTS))


@pytest.mark.parametrize("more", ["", VIRTUAL])
@long
def test_processes_change_places_time_and_again(more: str) -> None:
    check_places(case(more, STEPS), *many_places())


def test_what_can_not_be_kept_is_not_declared(capfd: pytest.CaptureFixture[str]) -> None:
    for got in replace(case(""), kind="--use-distributed-optimizer").play([]):
        assert all(not can & (_hook.CAN_PARK | _hook.CAN_PLACE) for can, _ in got["calls"]["can"])
    assert "a part of the distributed optimizer is lost with its rank" in capfd.readouterr().err
