"""torch.distributed.pipelining with data-parallel replicas: whatever the split, the same gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

import falcon_torch
import model
from fake_hook import Mailbox, Post, split
from ranks import play, same

ITERATIONS = 8


def parts(count: int) -> list[torch.nn.Sequential]:
    """The network cut into stages."""
    network = model.network()
    return [network[:2], network[2:]] if count == 2 else [network[:1], network[1:2], network[2:3], network[3:]]


def dataset(numbers: int) -> TensorDataset:
    batches = [model.batch(n) for n in range(numbers)]
    return TensorDataset(torch.cat([b[0] for b in batches]), torch.cat([b[1] for b in batches]))


def train(mailbox: Mailbox, kind: Any, micro_batches: int) -> dict[str, Any]:
    world = dist.get_world_size()
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("pp", "dp"))
    pp, dp = mesh.get_group("pp"), mesh.get_group("dp")
    stages, at = (4, mesh.get_local_rank("pp")) if kind is ScheduleInterleaved1F1B else (2, mesh.get_local_rank("pp"))
    modules: dict[int, Any] = {}
    for k, module in enumerate(parts(stages)):
        if k % 2 == at:
            modules[k] = DistributedDataParallel(module, process_group=dp) if kind is Schedule1F1B else module
    made = [PipelineStage(modules[k], k, stages, torch.device("cpu"), group=pp) for k in sorted(modules)]
    parameters = [p for k in sorted(modules) for p in modules[k].parameters()]
    schedule = kind(made if stages == 4 else made[0], micro_batches, loss_fn=model.loss)
    optimizer = torch.optim.SGD(parameters, lr=model.RATE)
    job = falcon_torch.pipeline(schedule, optimizer, mesh)
    loader = job.loader(dataset(ITERATIONS * micro_batches * (world // 2)), model.SAMPLES)
    gradients, splits, reported = [], [], []
    while job.next_iteration(ITERATIONS):
        splits.append(job.split)
        inputs, targets = job.batch(loader)
        losses: list[torch.Tensor] = []
        job.step(
            *([inputs] if at == 0 else []), target=targets if at == 1 else None, losses=losses if at == 1 else None
        )
        reported += [float(x) for x in losses]
        if kind is not Schedule1F1B:  # replicas that a script averages by itself
            for p in parameters:
                dist.all_reduce(p.grad, group=dp)
                p.grad /= dist.get_world_size(dp)
        gradients.append([p.grad.numpy().copy() for p in parameters])
        optimizer.step()
        optimizer.zero_grad()
    names = sorted(modules)
    return {"gradients": gradients, "splits": splits, "stages": names, "losses": reported, "mailbox": mailbox}


def check(ranks: list[dict[str, Any]], micro_batches: int, posts: list[Post], record_property: Any) -> None:
    replicas = len(ranks) // 2
    want = model.reference(ITERATIONS, replicas * micro_batches)
    splits = ranks[0]["splits"]
    assert all(r["splits"] == splits for r in ranks)
    assert [s for k, s in enumerate(splits) if k and s != splits[k - 1]] == [p.order.values for p in posts]
    worst = 0.0
    for rank, got in enumerate(ranks):
        count = len(parts(4 if len(got["stages"]) == 2 else 2))
        flat = [p for m in parts(count) for p in m.parameters()]
        starts, n = [], 0
        for m in parts(count):
            starts.append((n, n + len(list(m.parameters()))))
            n = starts[-1][1]
        assert n == len(flat)
        index = [i for k in got["stages"] for i in range(*starts[k])]
        for i in range(ITERATIONS):
            for g, at in zip(got["gradients"][i], index, strict=True):
                worst = max(worst, same(torch.from_numpy(g), want[i][at]))
        assert got["mailbox"].of("mesh")[0] == (f"dp={replicas},pp=2", micro_batches), rank
    record_property("largest_relative_difference", worst)
    assert worst <= 1e-6


@pytest.mark.parametrize("kind", [Schedule1F1B, ScheduleGPipe], ids=["1f1b", "gpipe"])
def test_gradients_with_uneven_splits(kind: Any, record_property: Any) -> None:
    posts = [split(0, 1, [2, 6]), split(3, 2, [5, 3])]
    check(play(4, train, kind, 4, posts=posts), 4, posts, record_property)


def test_interleaved_stages(record_property: Any) -> None:
    posts = [split(0, 1, [2, 6]), split(2, 2, [6, 2])]
    check(play(4, train, ScheduleInterleaved1F1B, 4, posts=posts), 4, posts, record_property)


def test_losses_are_reported_as_they_are() -> None:
    ranks = play(4, train, Schedule1F1B, 4, posts=[split(0, 1, [2, 6])])
    network = model.network()
    first = [model.loss(network(x), y).item() for x, y in (model.batch(n) for n in range(4))]
    assert ranks[2]["losses"][:4] == pytest.approx(first, rel=1e-6)


def test_too_few_micro_batches_for_the_stages_are_refused() -> None:
    ranks = play(4, train, Schedule1F1B, 4, posts=[split(0, 1, [1, 7])])
    assert all(r["mailbox"].of("ack") == [(1, 2, 2)] and r["mailbox"].of("state")[0][1:] == (2, 1) for r in ranks)


def misuse(_: Mailbox) -> list[str]:
    stage = PipelineStage(parts(2)[dist.get_rank()], dist.get_rank(), 2, torch.device("cpu"))
    schedule = Schedule1F1B(stage, 4, loss_fn=model.loss)
    optimizer = torch.optim.SGD(stage.submod.parameters(), lr=model.RATE)
    said = []
    for arguments in ((stage, optimizer, "pp=2"), (schedule, optimizer, "dp=2"), (schedule, optimizer, "pp=4")):
        with pytest.raises(ValueError, match=r"\w+") as e:
            falcon_torch.pipeline(*arguments)
        said.append(str(e.value))
    return said


def test_misuse_is_refused_with_a_sentence() -> None:
    assert play(2, misuse)[0] == [
        "schedule is a PipelineStage; pipeline takes a schedule of torch.distributed.pipelining",
        "mesh 'dp=2' has 1 pipeline stages; the schedule's group has 2",
        "mesh 'pp=4' has 4 ranks; the job has 2",
    ]
