"""Batches that move between replicas: who gives whom how many, and that none is lost."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import pytest
import torch
import torch.distributed as dist

from fake_hook import Mailbox
from falcon_torch._courier import Courier, Dealt, moves, pack, unpack
from falcon_torch._mesh import place
from ranks import play


def test_moves_make_the_split_of_an_even_one() -> None:
    rng = random.Random(4)
    for _ in range(300):
        replicas, each = rng.randint(1, 9), rng.randint(1, 8)
        split = [each] * replicas
        for _ in range(rng.randint(0, 12)):
            a, b = rng.randrange(replicas), rng.randrange(replicas)
            if a != b and split[a] > 1:
                split[a], split[b] = split[a] - 1, split[b] + 1
        has = [each] * replicas
        for giver, to, m in moves(split, each):
            assert m > 0
            assert split[giver] < each < split[to]
            has[giver], has[to] = has[giver] - m, has[to] + m
        assert has == split


def batch_of(source: int, number: int) -> torch.Tensor:
    return torch.tensor([source, number])


def deal(_: Mailbox, text: str, splits: list[list[int]], twice: bool) -> list[list[list[int]]]:
    """What each rank gets by iteration and iterator; its own batches have its rank's number in front."""
    layout = place(text, dist.get_rank(), dist.get_world_size())
    courier = Courier(layout)
    sources = [map(partial(batch_of, 1000 * k + dist.get_rank()), count()) for k in range(1 + twice)]
    got = []
    for split in splits:
        courier.finish()
        dealt = [Dealt(source, courier, layout, split, tag) for tag, source in enumerate(sources)]
        took: list[list[int]] = [[] for _ in dealt]
        for _ in range(split[layout.replica]):
            for k, one in enumerate(dealt):
                took[k].append(tuple(next(one).tolist()))  # type: ignore[arg-type]
        got.append(took)
    assert courier.carries
    courier.finish()
    dist.barrier()
    return got


@pytest.mark.parametrize(
    ("text", "splits"),
    [
        ("dp=3", [[4, 4, 4], [1, 1, 10], [10, 1, 1], [4, 4, 4], [5, 2, 5]]),
        ("fsdp=2,dp=2", [[4, 4], [1, 7], [6, 2]]),
    ],
)
@pytest.mark.parametrize("twice", [False, True], ids=["one iterator", "two iterators"])
def test_every_batch_is_dealt_once(text: str, splits: list[list[int]], twice: bool) -> None:
    world = 3 if text == "dp=3" else 4
    ranks = play(world, deal, text, splits, twice)
    for i, split in enumerate(splits):
        for k in range(1 + twice):
            dealt = [tuple(b) for got in ranks for b in got[i][k]]
            assert sorted(dealt) == sorted((1000 * k + r, n) for r in range(world) for n in range(4 * i, 4 * i + 4))
        width = world // len(split)
        assert [len(got[i][0]) for got in ranks] == [m for m in split for _ in range(width)]


@dataclass
class Strange:
    """What a loader may hand out that a peer must not be able to make here."""

    number: int


@pytest.mark.parametrize(
    ("batch", "carries"),
    [
        ({"text": torch.arange(3), "name": ["a"], "n": 1, "none": None}, True),
        ((torch.ones(2),), True),
        (Strange(1), False),
    ],
)
def test_what_can_be_carried(batch: Any, carries: bool) -> None:
    courier = Courier.__new__(Courier)
    courier.try_on(batch)
    assert courier.carries == carries


def test_a_batch_arrives_as_it_was() -> None:
    batch = {"x": torch.randn(2, 3, dtype=torch.bfloat16), "at": (1, "two"), "empty": torch.empty(0)}
    came = unpack(pack([batch]))[0]
    assert came["at"] == batch["at"]
    assert torch.equal(came["x"], batch["x"])  # type: ignore[arg-type]
    assert came["empty"].shape == (0,)
