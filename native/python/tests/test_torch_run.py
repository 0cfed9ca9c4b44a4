"""Jobs whose ranks hold different state are entered again: after a death, or with other ranks. Same to the bit."""

from __future__ import annotations

import os
import time
from collections import Counter
from datetime import timedelta
from functools import cache, partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.parallel import DistributedDataParallel

import falcon_torch
import model
from fake_hook import Mailbox, Post, placement, split
from falcon_torch import _barrier, _hook, _recover, _run
from falcon_torch._state import _local, checksum
from falcon_torch._votes import DELAY
from parking import GLOO_S, Job, ParkingMailbox
from ranks import play
from test_torch_fsdp import fully_shard

WORLD, ITERATIONS = 4, 12
Death = tuple[int, int, str]  # a rank, an iteration, and where in it


def replicated(job: Any, optimizer: Any, network: Any, draws: bool) -> Any:
    """A job whose ranks each run all layers; with draws its inputs have noise."""

    def iterate() -> list[int]:
        dealt = list(job.numbers())
        for number in job.micro_batches():
            inputs, targets = model.batch(number)
            job.backward(model.loss(network(inputs + 0.01 * torch.rand(inputs.shape) if draws else inputs), targets))
        return dealt

    return job, optimizer, network.parameters(), iterate


def make_fsdp(state: list[Any], draws: bool) -> Any:
    """HSDP of 2 replicas of 2 shards."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    network = model.network()
    for layer in network:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(network, mesh=mesh)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    job = falcon_torch.fsdp(network, optimizer, 4, state=state)

    return replicated(job, optimizer, network, draws)


def make_pipeline(state: list[Any], _: bool) -> Any:
    """2 stages, each with 2 replicas.

    They average gradients by themselves: DistributedDataParallel in a stage reduces the first micro-batch of a stage's
    life by itself, as the stage's search for shapes counts as a forward, and that rounds differently.
    """
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp"))
    at, network, dp = mesh.get_local_rank("pp"), model.network(), mesh.get_group("dp")
    module = [network[:2], network[2:]][at]
    stage = PipelineStage(module, at, 2, torch.device("cpu"), group=mesh.get_group("pp"))
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
    job = falcon_torch.pipeline(Schedule1F1B(stage, 4, loss_fn=model.loss), optimizer, mesh, state=state)

    def iterate() -> list[int]:
        dealt = list(job.numbers())
        batches = [model.batch(number) for number in dealt]
        inputs, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
        job.step(inputs) if at == 0 else job.step(target=targets)
        for p in module.parameters():
            dist.all_reduce(p.grad, group=dp)
            p.grad /= 2
        return dealt

    return job, optimizer, module.parameters(), iterate


def make_ddp(state: list[Any], draws: bool) -> Any:
    """4 replicas."""
    network = DistributedDataParallel(model.network())
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    job = falcon_torch.ddp(network, optimizer, 4, state=state)

    return replicated(job, optimizer, network, draws)


MAKE = {"fsdp": make_fsdp, "pipeline": make_pipeline, "ddp": make_ddp}
SHARD_OF = {"fsdp": lambda rank: rank % 2, "pipeline": lambda rank: rank // 2, "ddp": lambda _: 0}


class Count:
    def __init__(self) -> None:
        self.steps = 0

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]


def disturb_barrier(at: int, plan: dict[int, str], mailbox: ParkingMailbox) -> None:
    """At an iteration, have ranks die behind the barrier, not learn that all came, or not be there yet."""
    whole = _barrier.Barrier.passes

    def passes(self: Any) -> bool:
        got = whole(self)
        what = plan.get(mailbox.rank, "") if _run.current().job.iteration == at and mailbox.generation == 0 else ""
        if what == "dies":
            os._exit(9)
        if what == "away":
            _run.current().recovery.await_suspension()
            raise _recover.Suspended
        return got and what != "cut off"

    _barrier.Barrier.passes = passes  # type: ignore[method-assign]


def train(kind: str, draws: bool, dies: Death | None, fault: Any, mailbox: ParkingMailbox) -> Any:
    """What each rank saw at each iteration, as this process saw it."""
    _recover.ALIVE_S, _recover.MEET_S, _run.BACK_S = 30, 15, 60
    dist.distributed_c10d.default_pg_timeout = timedelta(seconds=GLOO_S)  # of a mesh's groups
    seen: dict[tuple[int, int], Any] = {}
    entered = []

    def at(point: str, i: int) -> None:
        if dies == (mailbox.rank, i, point) and mailbox.generation == 0:
            os._exit(9)

    def body() -> str:
        entered.append(dist.get_rank())
        if fault == (mailbox.rank, "in the function") and len(entered) == 2:
            raise OSError("a failure was injected")
        if fault == (mailbox.rank, "dies in the function") and len(entered) == 2 and mailbox.generation == 0:
            os._exit(9)
        count = Count()
        torch.manual_seed(50)
        job, optimizer, parameters, iterate = MAKE[kind]([count], draws)
        torch.rand(3)  # a script may draw numbers before its loop
        parameters, backwards = list(parameters), Counter[int]()

        def backward_of_last(gradient: torch.Tensor) -> torch.Tensor:
            """Stand in the backward pass of the iteration's last micro-batch: the next stage is done with it."""
            backwards[job.iteration] += 1
            if backwards[job.iteration] == job.split[job._layout.replica]:
                if dies is not None and dies[2] == "in the backward pass" and job.iteration == dies[1]:
                    time.sleep(0.5)  # in which a stage that does not wait would update
                at("in the backward pass", job.iteration)
            return gradient

        if kind == "pipeline":
            next(iter(parameters)).register_hook(backward_of_last)
        while job.next_iteration(ITERATIONS):
            i, rank = job.iteration, dist.get_rank()
            assert rank == int(os.environ["RANK"])
            at("begin", i)
            dealt = iterate()
            at("before the update", i)
            optimizer.step()
            optimizer.zero_grad()
            at("after the update", i)
            count.steps += 1
            draw = torch.rand(()).item()
            seen[rank, i] = (dealt, checksum([_local(p.data) for p in parameters]), count.steps, draw)
        return "the end"

    if fault is not None and isinstance(fault[1], dict):
        disturb_barrier(*fault, mailbox)
        fault = None
    if fault is not None and "in the function" not in fault[1] and mailbox.rank == fault[0]:
        inject(fault[1])
    assert falcon_torch.run(body) == "the end"
    calls = {name: mailbox.of(name) for name in ("place", "ack", "rejoined", "park")}
    return {"seen": seen, "entered": entered, "calls": calls, "pid": os.getpid()}


def inject(step: str) -> None:
    """Have this rank fail once where it trades states, or takes the other one over."""
    whole = getattr(_run.Moving, step)

    def faulty(self: Any, *arguments: Any) -> Any:
        setattr(_run.Moving, step, whole)
        if step == "_fits":
            whole(self, *arguments)
            return False
        raise OSError("a failure was injected")

    setattr(_run.Moving, step, faulty)


def run(
    kind: str, posts: list[Post], dies: Death | None = None, fault: Any = None, dead: Any = None, draws: bool = False
) -> list[Any]:
    job = Job(WORLD, partial(train, kind, draws, dies, fault), posts, SHARD_OF[kind])
    return job.play(dead)


@cache
def undisturbed(kind: str, draws: bool, *splits: tuple[int, int, tuple[int, ...]]) -> dict[tuple[int, int], Any]:
    got = run(kind, [split(at, k, list(counts)) for at, k, counts in splits], draws=draws)
    assert all(len(r["entered"]) == 1 for r in got)
    return merged(got)


def merged(got: list[Any]) -> dict[tuple[int, int], Any]:
    out: dict[tuple[int, int], Any] = {}
    for r in got:
        for at, seen in r["seen"].items():
            assert out.setdefault(at, seen) == seen
    return out


SPLIT = {"fsdp": (1, 5, (3, 5)), "pipeline": (1, 5, (3, 5)), "ddp": (1, 5, (1, 4, 6, 5))}
KINDS = pytest.mark.parametrize("kind", ["fsdp", "pipeline", "ddp"])


def ordered(kind: str) -> Post:
    at, order, counts = SPLIT[kind]
    return split(at, order, list(counts))


@pytest.mark.parametrize(
    ("kind", "dies"),
    [
        ("fsdp", (1, 6, "begin")),
        ("fsdp", (2, 7, "before the update")),
        ("fsdp", (3, 6, "after the update")),
        ("pipeline", (2, 6, "before the update")),
        ("pipeline", (0, 6, "in the backward pass")),
        ("pipeline", (1, 7, "after the update")),
        ("ddp", (2, 6, "begin")),
    ],
    ids=str,
)
def test_a_rank_dies_and_its_replica_gives_its_state(kind: str, dies: Death) -> None:
    want = undisturbed(kind, False, SPLIT[kind])
    got = run(kind, [ordered(kind)], dies, dead=(dies[0], dies[0]))
    seen = merged(got)
    assert seen == {at: want[at] for at in seen}
    assert {(r, i) for r, i in want if r != dies[0] or i > dies[1]} <= set(seen)
    for rank, r in enumerate(got):
        assert len(r["entered"]) == (1 if rank == dies[0] else 2)
        assert [status for _, status, *_ in r["calls"]["rejoined"]] == [_hook.REJOINED]


PLANS = [
    {0: "dies", 1: "cut off"},  # the other stage has passed
    {0: "dies", 1: "cut off", 2: "cut off", 3: "cut off"},
    {0: "dies", 1: "cut off", 2: "away", 3: "away"},  # the step before is the one that is held whole
    {3: "dies", 2: "cut off", 0: "cut off"},
]


@pytest.mark.parametrize("kind", ["fsdp", "pipeline"])
@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_a_rank_that_dies_at_the_barrier_leaves_a_common_step(kind: str, plan: dict[int, str]) -> None:
    want, dead = undisturbed(kind, False, SPLIT[kind]), next(r for r, what in plan.items() if what == "dies")
    got = run(kind, [ordered(kind)], fault=(6, plan), dead=(dead, dead))
    seen = merged(got)
    assert seen == {at: want[at] for at in seen}
    assert {(r, i) for r, i in want if r != dead or i > 6} <= set(seen)
    resumed = 6 if "away" in plan.values() else 7
    for rank, r in enumerate(got):
        assert [order.resume for order, *_ in r["calls"]["rejoined"]] == [resumed], rank
        assert [status for _, status, *_ in r["calls"]["rejoined"]] == [_hook.REJOINED]


@KINDS
@pytest.mark.parametrize("blocks", [[1, 0], [2, 0, 3, 1]], ids=str)
def test_processes_change_places(kind: str, blocks: list[int]) -> None:
    got = run(kind, [ordered(kind), placement(6, 7, blocks)], draws=True)
    assert merged(got) == undisturbed(kind, True, SPLIT[kind])
    for r in got:
        assert len(r["entered"]) == 2
        assert r["calls"]["ack"][-1] == (7, 6 + DELAY, _hook.APPLIED)
        ((order, i, rank, step_ns, _),) = r["calls"]["place"]
        assert (order, i, rank) == (7, 6 + DELAY, r["entered"][1])
        assert all(ns > 0 for ns in step_ns)


@pytest.mark.parametrize("fault", [(1, "in the function"), (2, "_trade"), (0, "_fits")], ids=str)
def test_a_failure_of_one_rank_undoes_all(fault: Any) -> None:
    kind = "fsdp"
    got = run(kind, [ordered(kind), placement(4, 7, [2, 0, 3, 1])], fault=fault, draws=True)
    assert merged(got) == undisturbed(kind, True, SPLIT[kind])
    for rank, r in enumerate(got):
        assert r["entered"] == [rank, [2, 0, 3, 1][rank], rank]
        assert r["calls"]["ack"][-1] == (7, 4 + DELAY, _hook.ROLLED_BACK)
        assert not r["calls"]["place"]


def test_a_rank_dies_in_the_midst_of_a_placement() -> None:
    want = undisturbed("fsdp", False)
    got = run("fsdp", [placement(4, 7, [2, 0, 3, 1])], fault=(1, "dies in the function"), dead=(1, 1))
    seen = merged(got)
    assert seen == {at: want[at] for at in seen}
    assert set(want) - {(1, i) for i in range(4 + DELAY)} <= set(seen)
    for r in got:
        assert not r["calls"]["place"]
        assert [status for _, status, *_ in r["calls"]["rejoined"]] == [_hook.REJOINED]


def test_a_rank_dies_after_its_process_changed_places() -> None:
    want = undisturbed("fsdp", False)
    ends = [2, 0, 3, 1]
    got = run("fsdp", [placement(3, 7, ends)], (3, 9, "begin"), dead=(ends.index(3), 3))
    seen = merged(got)
    assert seen == {at: want[at] for at in seen}
    lost = {(2, i) for i in range(5)} | {(3, i) for i in range(5, 9)}  # what the process that died had seen
    assert set(want) - lost <= set(seen)


def misuse(_: Mailbox) -> list[str]:
    with pytest.raises(RuntimeError, match=r"\w+") as inside:
        falcon_torch.run(lambda: falcon_torch.run(print))
    dist.destroy_process_group()
    with pytest.raises(RuntimeError, match=r"\w+") as without:
        falcon_torch.run(print)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    return [str(inside.value), str(without.value)]


def test_misuse_is_refused_with_a_sentence() -> None:
    assert play(1, misuse)[0] == [
        "falcon_torch.run is called inside falcon_torch.run; call it once, around all of the training",
        "call init_process_group before falcon_torch.run, and make all else inside the function",
    ]
