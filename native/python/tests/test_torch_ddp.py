"""DistributedDataParallel over gloo: whatever the split, the gradients are the global batch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

import falcon_torch
import model
from fake_hook import Mailbox, Post, split, stop
from falcon_torch import _hook
from falcon_torch._votes import DELAY
from ranks import play, same

ITERATIONS = 12
Result = dict[str, Any]


def train(
    mailbox: Mailbox, micro_batches: int, iterations: int = ITERATIONS, dtype: Any = torch.float32
) -> dict[str, Any]:
    ddp = DistributedDataParallel(model.network(dtype))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=model.RATE)
    job = falcon_torch.ddp(ddp, optimizer, micro_batches)
    gradients, dealt, splits = [], [], []
    while job.next_iteration(iterations):
        splits.append(job.split)
        for number in job.micro_batches():
            inputs, targets = model.batch(number, dtype)
            job.backward(model.loss(ddp(inputs), targets))
            dealt.append(number)
        gradients.append([p.grad.numpy().copy() for p in ddp.parameters()])
        optimizer.step()
        optimizer.zero_grad()
    return {"gradients": gradients, "dealt": dealt, "splits": splits, "mailbox": mailbox}


def largest_difference(ranks: list[Result], per_iteration: int, dtype: Any = torch.float32) -> float:
    worst = 0.0
    want = model.reference(len(ranks[0]["gradients"]), per_iteration, dtype)
    for rank in ranks:
        for got, expected in zip(rank["gradients"], want, strict=True):
            worst = max([worst] + [same(torch.from_numpy(g), w) for g, w in zip(got, expected, strict=True)])
    return worst


UNEVEN = [
    (2, 4, [split(0, 1, [1, 7]), split(5, 2, [5, 3])]),
    (3, 2, [split(1, 1, [1, 1, 4]), split(4, 2, [4, 1, 1])]),
    (4, 3, [split(0, 1, [6, 1, 2, 3]), split(3, 2, [3, 3, 3, 3]), split(6, 3, [1, 1, 1, 9])]),
    (8, 2, [split(0, 1, [1, 1, 1, 1, 3, 3, 3, 3])]),
]


@pytest.mark.parametrize(("world", "micro_batches", "posts"), UNEVEN)
def test_gradients_with_uneven_splits(world: int, micro_batches: int, posts: list[Post], record_property: Any) -> None:
    ranks = play(world, train, micro_batches, ITERATIONS, torch.float64, posts=posts)
    got = ranks[0]["splits"]
    assert got[0] == [micro_batches] * world
    assert [s for k, s in enumerate(got) if k and s != got[k - 1]] == [p.order.values for p in posts]
    assert all(r["splits"] == got for r in ranks)
    worst = largest_difference(ranks, world * micro_batches, torch.float64)
    record_property("largest_relative_difference", worst)
    assert worst <= model.tolerance(torch.float64)


def test_gradients_in_single_precision() -> None:
    ranks = play(3, train, 4, posts=[split(0, 1, [1, 2, 9]), split(4, 2, [6, 5, 1])])
    assert largest_difference(ranks, 12) <= model.tolerance(torch.float32)


def test_every_micro_batch_is_dealt_once() -> None:
    posts = [split(k, k + 1, [1 + k % 3, 4, 7 - k % 3]) for k in range(20)]
    ranks = play(3, train, 4, 30, posts=posts)
    assert len({tuple(s) for s in ranks[0]["splits"]}) == 4
    dealt = sorted(n for r in ranks for n in r["dealt"])
    assert dealt == list(range(30 * 12))


def test_marks_of_an_iteration() -> None:
    (rank, _) = play(2, train, 2, 2)
    assert rank["mailbox"].calls == [
        ("mesh", "dp=2", 2),
        ("state", rank["mailbox"].of("state")[0][0], 1, 1),
        ("zero", 0, 0),
        ("can", _hook.CAN_PARK | _hook.CAN_PLACE | _hook.CAN_SPLIT, 1),
        *[("begin", 0), ("update", 0), ("updated", 1)],
        *[("begin", 1), ("update", 1), ("updated", 2)],
        ("finish",),
    ]


def acks(posts: list[Post], iterations: int = ITERATIONS) -> list[Any]:
    ranks = play(2, train, 4, iterations, posts=posts)
    got = [r["mailbox"].of("ack") for r in ranks]
    assert got[0] == got[1]
    assert largest_difference(ranks, 8) <= model.tolerance(torch.float32)
    return got[0]


REFUSED = [
    ("another sum", split(0, 1, [4, 5]), _hook.REFUSED_VALUES),
    ("a replica without work", split(0, 1, [0, 8]), _hook.REFUSED_VALUES),
    ("a negative count", split(0, 1, [-1, 9]), _hook.REFUSED_VALUES),
    ("too few replicas", split(0, 1, [8]), _hook.REFUSED_VALUES),
    ("too many replicas", split(0, 1, [3, 3, 2]), _hook.REFUSED_VALUES),
    ("no counts", split(0, 1, []), _hook.REFUSED_VALUES),
    ("a kind that it can't carry out", Post(0, _hook.Order(1, 1, 99)), _hook.REFUSED_KIND),
    ("gone on one rank", split(0, 1, [2, 6], gone=frozenset({1})), _hook.REFUSED_GONE),
    ("gone on all ranks", split(0, 1, [2, 6], gone=frozenset({0, 1})), _hook.REFUSED_GONE),
]


@pytest.mark.parametrize(("post", "status"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_refused_alike_on_all_ranks(post: Post, status: int) -> None:
    assert acks([post]) == [(1, DELAY, status)]


def test_an_order_of_an_older_epoch_is_stale() -> None:
    posts = [split(0, 1, [2, 6], epoch=5), split(4, 2, [6, 2], epoch=4), split(7, 3, [3, 5], epoch=5)]
    assert acks(posts) == [(1, 2, _hook.APPLIED), (2, 6, _hook.REFUSED_STALE), (3, 9, _hook.APPLIED)]


def test_an_order_that_reaches_a_rank_late_holds_from_one_iteration_on() -> None:
    assert acks([split(1, 1, [2, 6], late={1: 5})]) == [(1, 5 + DELAY, _hook.APPLIED)]


def test_the_newest_of_several_orders_counts() -> None:
    assert acks([split(0, 1, [2, 6]), split(0, 2, [6, 2])]) == [(2, DELAY, _hook.APPLIED)]


def test_an_order_to_stop_ends_all_ranks() -> None:
    ranks = play(2, train, 4, posts=[stop(3, 1)])
    assert [len(r["gradients"]) for r in ranks] == [3 + DELAY] * 2
    assert all(r["mailbox"].calls[-2:] == [("ack", 1, 3 + DELAY, 0), ("finish",)] for r in ranks)


def test_an_order_too_late_to_be_voted_on_changes_nothing() -> None:
    assert acks([split(ITERATIONS - DELAY + 1, 1, [2, 6])]) == []


def test_a_rank_without_the_hook_leaves_the_split_alone() -> None:
    ranks = play(3, train, 2, posts=[split(0, 1, [1, 1, 4])], hookless=frozenset({2}))
    assert all(s == [2, 2, 2] for r in ranks for s in r["splits"])
    assert all(not r["mailbox"].of("ack") and not r["mailbox"].of("mesh") for r in ranks)
    assert largest_difference(ranks, 6) <= model.tolerance(torch.float32)


def skip_a_step(mailbox: Mailbox) -> list[int]:
    ddp = DistributedDataParallel(model.network())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=model.RATE)
    job = falcon_torch.ddp(ddp, optimizer, 2)
    dealt = []
    while job.next_iteration(4):
        dealt += list(job.micro_batches())
        if job.iteration != 1:  # as a GradScaler does after an overflow
            optimizer.step()
    return [*dealt, *[i for (i,) in mailbox.of("updated")]]


def test_a_skipped_optimizer_step_repeats_no_data() -> None:
    ranks = play(2, skip_a_step)
    assert ranks[0] == [0, 1, 4, 5, 8, 9, 12, 13, 1, 2, 3, 4]


def misuse(_: Mailbox) -> list[str]:
    ddp = DistributedDataParallel(model.network())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=model.RATE)
    said = []
    for arguments in ((model.network(), optimizer, 4), (ddp, optimizer, 0)):
        with pytest.raises(ValueError, match=r"\w+") as e:
            falcon_torch.ddp(*arguments)
        said.append(str(e.value))
    return said


def test_misuse_is_refused_with_a_sentence() -> None:
    (said,) = play(1, misuse)
    assert said == [
        "model is a Sequential; ddp takes the DistributedDataParallel module",
        "micro_batches is 0; it must be at least 1",
    ]
