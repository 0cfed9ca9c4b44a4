"""FSDP2 and HSDP over gloo: whatever the split between replicas, the gradients are the global batch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import falcon_torch
import model
from fake_hook import Mailbox, Post, split
from falcon_torch import _hook
from ranks import play, same

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:
    from torch.distributed._composable.fsdp import fully_shard

ITERATIONS = 10
Result = dict[str, Any]


def shard(replicas: int, dtype: torch.dtype = torch.float32) -> Any:
    world = dist.get_world_size()
    shape, names = ((world,), ("shard",)) if replicas == 1 else ((replicas, world // replicas), ("replicate", "shard"))
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    network = model.network(dtype)
    for layer in network:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    return fully_shard(network, mesh=mesh)


def train(mailbox: Mailbox, replicas: int, micro_batches: int, sync_shards: bool, dtype: Any = torch.float32) -> Result:
    network = shard(replicas, dtype)
    optimizer = torch.optim.SGD(network.parameters(), lr=model.RATE)
    job = falcon_torch.fsdp(network, optimizer, micro_batches, sync_shards=sync_shards)
    gradients, dealt, splits = [], [], []
    while job.next_iteration(ITERATIONS):
        splits.append(job.split)
        for number in job.micro_batches():
            inputs, targets = model.batch(number, dtype)
            job.backward(model.loss(network(inputs), targets))
            dealt.append(number)
        gradients.append([p.grad.full_tensor().numpy().copy() for p in network.parameters()])
        optimizer.step()
        optimizer.zero_grad()
    return {"gradients": gradients, "dealt": dealt, "splits": splits, "mailbox": mailbox}


def largest_difference(ranks: list[Result], per_iteration: int, dtype: Any = torch.float32) -> float:
    want = model.reference(ITERATIONS, per_iteration, dtype)
    return max(
        same(torch.from_numpy(got), expected)
        for rank in ranks
        for both in zip(rank["gradients"], want, strict=True)
        for got, expected in zip(*both, strict=True)
    )


PLAYS = [
    (2, 4, 2, [split(0, 1, [3, 1])]),
    (2, 4, 4, [split(0, 1, [1, 7]), split(4, 2, [6, 2])]),
    (4, 8, 2, [split(0, 1, [1, 1, 1, 5]), split(3, 2, [3, 2, 2, 1])]),
    (3, 6, 3, [split(1, 1, [7, 1, 1])]),
]


@pytest.mark.parametrize("sync_shards", [True, False], ids=["sharded", "whole"])
@pytest.mark.parametrize(("replicas", "world", "micro_batches", "posts"), PLAYS, ids=[f"{p[0]}x{p[1]}" for p in PLAYS])
def test_gradients_with_uneven_splits(
    replicas: int, world: int, micro_batches: int, posts: list[Post], sync_shards: bool, record_property: Any
) -> None:
    ranks = play(world, train, replicas, micro_batches, sync_shards, torch.float64, posts=posts)
    got = ranks[0]["splits"]
    assert [s for k, s in enumerate(got) if k and s != got[k - 1]] == [p.order.values for p in posts]
    assert sorted(n for r in ranks for n in r["dealt"]) == list(range(ITERATIONS * world * micro_batches))
    worst = largest_difference(ranks, world * micro_batches, torch.float64)
    record_property("largest_relative_difference", worst)
    assert worst <= model.tolerance(torch.float64)
    # Outside run nothing could bring a rank's shard back: it declares that it can't park.
    assert all(r["mailbox"].of("can") == [(_hook.CAN_SPLIT if replicas > 1 else 0, 1)] for r in ranks)
    text = f"fsdp={world // replicas},dp={replicas}"
    assert {(m[0]) for r in ranks for m in r["mailbox"].of("mesh")} == {text}


def test_gradients_in_single_precision() -> None:
    ranks = play(4, train, 2, 3, True, posts=[split(0, 1, [1, 5])])
    assert largest_difference(ranks, 12) <= model.tolerance(torch.float32)


def test_shards_alone_are_one_replica() -> None:
    ranks = play(4, train, 1, 2, True, posts=[split(0, 1, [1, 1, 3, 3]), split(3, 2, [2])])
    assert all(r["splits"] == [[2]] * ITERATIONS for r in ranks)
    assert all(r["mailbox"].of("ack") == [(1, 2, _hook.REFUSED_VALUES), (2, 5, _hook.APPLIED)] for r in ranks)
    assert largest_difference(ranks, 8) <= model.tolerance(torch.float32)
    assert ranks[0]["mailbox"].of("mesh")[0] == ("fsdp=4", 2)


def misuse(_: Mailbox) -> list[str]:
    network, plain = shard(2), model.network()
    half = model.network()
    fully_shard(half, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("other", "fsdp"))["fsdp"])
    optimizer = torch.optim.SGD(network.parameters(), lr=model.RATE)
    said = []
    for arguments in (
        {"model": plain},
        {"micro_batches": 0},
        {"mesh": "fsdp=2,dp=3"},
        {"mesh": "fsdp=2,dp"},
        {"mesh": init_device_mesh("cpu", (4,))},
        {"model": half},
    ):
        with pytest.raises(ValueError, match=r"\w+") as e:
            falcon_torch.fsdp(**{"model": network, "optimizer": optimizer, "micro_batches": 2, **arguments})
        said.append(str(e.value))
    return said


def test_misuse_is_refused_with_a_sentence() -> None:
    said = play(4, misuse)[0]
    assert said == [
        "model is a Sequential; fsdp takes a module that fully_shard was applied to",
        "micro_batches is 0; it must be at least 1",
        "mesh 'fsdp=2,dp=3' has 6 ranks; the job has 4",
        "mesh 'fsdp=2,dp': 'dp' is not NAME=SIZE with a name of tp, cp, etp, ep, fsdp, dp, pp, vpp, each once",
        "the DeviceMesh has no mesh_dim_names; name its dimensions tp, cp, fsdp, dp or pp",
        "the model is spread over 2 of the job's 4 ranks by fsdp; give the mesh of the whole job as mesh",
    ]
