"""Processes of a DDP job change places, and each rank goes on as if nothing had been: the same to the bit."""

from __future__ import annotations

import os
from functools import cache, partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import falcon_torch
import model
from fake_hook import Mailbox, Post, placement, split
from falcon_torch import _hook, _place, _recover
from falcon_torch._hook import Order
from falcon_torch._place import is_permutation, rank_after
from falcon_torch._state import checksum
from falcon_torch._votes import DELAY, Votes
from parking import Job, ParkingMailbox
from ranks import play

WORLD, ITERATIONS, PER_REPLICA = 4, 16, 3
STEPS = ("_pause", "_dump", "_swap", "_trade", "_restore")
Fault = tuple[int, str, str]  # of a rank: in which step, and how: "raises", "raises late", "dies" or "dies late"


class Drawn:
    """A state of the user's that is each rank's own."""

    def __init__(self, rank: int) -> None:
        self.total = float(rank)

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.total = state["total"]


def network() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(model.WIDTH, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))


def inject(fault: Fault | None, mailbox: ParkingMailbox) -> None:
    """Have one rank fail in one step of its first placement."""
    if fault is None or mailbox.rank != fault[0] or mailbox.generation > 0:
        return
    _, name, how = fault
    owner: Any = Votes if name == "decide" else _place.Placement
    step = getattr(owner, name)

    def faulty(self: Any, *arguments: Any) -> Any:
        setattr(owner, name, step)
        if name == "decide" and not arguments[0].startswith("falcon/"):
            inject(fault, mailbox)
            return step(self, *arguments)
        if how.endswith("late"):
            step(self, *arguments)
        if how.startswith("dies"):
            os._exit(9)
        raise OSError("a failure was injected")

    setattr(owner, name, faulty)


def train(fault: Fault | None, dies_at: tuple[int, int] | None, own_draws: bool, mailbox: ParkingMailbox) -> Any:
    """What happened to each rank at each iteration, as this process saw it; dies_at is a rank and an iteration."""
    first = mailbox.rank
    _recover.MEET_S, _recover.ALIVE_S, _place.BACK_S = 6, 6, 30
    inject(fault, mailbox)
    made = []
    groups = None
    if own_draws:

        def groups() -> None:
            made.append(dist.new_group([0, 1]))

        groups()
    wrapped = DistributedDataParallel(network(), broadcast_buffers=not own_draws)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-2)
    drawn = Drawn(mailbox.rank if own_draws else 0)
    torch.manual_seed(50 + mailbox.rank if own_draws else 50)
    job = falcon_torch.ddp(wrapped, optimizer, PER_REPLICA, state=[drawn], groups=groups)
    seen: dict[tuple[int, int], Any] = {}
    while job.next_iteration(ITERATIONS):
        with job.attempt():
            i, rank = job.iteration, dist.get_rank()
            assert rank == mailbox.rank == int(os.environ["RANK"])
            if dies_at == (rank, i) and mailbox.generation == 0:
                os._exit(9)
            losses, dealt = [], []
            for number in job.micro_batches():
                inputs, targets = model.batch(number)
                if own_draws:  # a rank that dies takes its own random numbers with it
                    inputs = inputs + 0.01 * torch.rand(inputs.shape)
                loss = model.loss(wrapped(inputs), targets)
                job.backward(loss)
                losses.append(loss.item())
                dealt.append(number)
            drawn.total += torch.rand(()).item()
            optimizer.step()
            optimizer.zero_grad()
            sums = checksum([*wrapped.parameters(), *(wrapped.buffers() if own_draws else ())])
            seen[rank, i] = (losses, dealt, drawn.total, sums)
    return {
        "first": first, "rank": mailbox.rank, "seen": seen, "split": job.split, "made": len(made),
        "calls": {name: mailbox.of(name) for name in ("place", "ack", "rejoined")},
    }  # fmt: skip


def run(
    posts: list[Post],
    fault: Fault | None = None,
    dies_at: tuple[int, int] | None = None,
    dead: tuple[int, int] | None = None,
    own_draws: bool = True,
) -> list[Any]:
    """What the processes returned; dead is the process that dies, and the rank that it holds by then."""
    job = Job(WORLD, partial(train, fault, dies_at, own_draws), posts)
    return job.play(dead)


@cache
def undisturbed(own_draws: bool, *splits: tuple[int, int, tuple[int, ...]]) -> dict[tuple[int, int], Any]:
    got = run([split(at, k, list(counts)) for at, k, counts in splits], own_draws=own_draws)
    return {at: seen for r in got for at, seen in r["seen"].items()}


def merged(got: list[Any]) -> dict[tuple[int, int], Any]:
    """What each rank saw, whichever process held it; what is trained twice must be the same."""
    out: dict[tuple[int, int], Any] = {}
    for r in got:
        for at, seen in r["seen"].items():
            assert out.setdefault(at, seen) == seen
    return out


SPLIT = (1, 5, (1, 2, 4, 5))
ORDERS = [
    ([placement(2, 7, [1, 0])], (), [2, 3, 0, 1]),
    ([placement(2, 7, [2, 0, 1, 3])], (), [2, 0, 1, 3]),
    ([split(*SPLIT[:2], list(SPLIT[2])), placement(6, 7, [2, 0, 1, 3])], (SPLIT,), [2, 0, 1, 3]),
    ([placement(2, 7, [2, 0, 1, 3]), placement(7, 8, [3, 0, 2, 1])], (), [2, 3, 0, 1]),
]


@pytest.mark.parametrize(("posts", "splits", "ends"), ORDERS, ids=["blocks", "ranks", "with S2", "twice"])
def test_each_rank_goes_on_as_it_was(posts: list[Post], splits: Any, ends: list[int]) -> None:
    got = run(posts)
    assert [r["rank"] for r in got] == ends
    assert merged(got) == undisturbed(True, *splits)
    for r in got:
        orders = [p.order.id for p in posts]
        assert [(order, status) for order, _, status in r["calls"]["ack"]] == [(o, _hook.APPLIED) for o in orders]
        places = r["calls"]["place"]
        assert [order for order, *_ in places] == [o for o in orders if o >= 7]
        for _, i, _, step_ns, received in places:
            assert i in (2 + DELAY, 6 + DELAY, 7 + DELAY)
            assert all(ns > 0 for ns in step_ns)
            assert received > 5000 or len(posts) == 2 or r["rank"] == r["first"]
        assert r["made"] == 1 + len(places)


REFUSED = [[0, 0], [0], [1, 0, 2], [0, 1, 2, 4], [-1, 0], [], [1, 2, 3, 4], [3, 2, 1, 0, 4, 5, 6, 7]]


def refused(mailbox: Mailbox) -> Any:
    ddp = DistributedDataParallel(model.network())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=model.RATE)
    job = falcon_torch.ddp(ddp, optimizer, 2)
    while job.next_iteration(4 * len(REFUSED) + 6):
        for number in job.micro_batches():
            job.backward(ddp(model.batch(number)[0]).mean())
        optimizer.step()
    return mailbox.of("ack"), mailbox.of("place"), dist.get_rank()


def test_what_is_no_permutation_is_refused() -> None:
    posts = [Post(4 * k, Order(k + 1, 1, _hook.PLACEMENT, v)) for k, v in enumerate(REFUSED) if v != [0]]
    for rank, (acks, places, at) in enumerate(play(4, refused, posts=posts)):
        assert [(order, status) for order, _, status in acks] == [(p.order.id, _hook.REFUSED_VALUES) for p in posts]
        assert not places
        assert at == rank


def test_blocks_take_each_others_places() -> None:
    assert is_permutation([0], 4)
    assert not any(is_permutation(v, 4) for v in REFUSED if v != [0])
    assert [rank_after([2, 0, 1], r, 6) for r in range(6)] == [4, 5, 0, 1, 2, 3]


FAULTS = [(k % WORLD, step, "raises") for k, step in enumerate(STEPS)] + [(1, "_swap", "raises late")]
AFTER = [placement(2, 7, [2, 0, 1, 3]), placement(8, 8, [1, 0])]  # the second one finds all in order


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_failure_of_one_rank_undoes_all(fault: Fault) -> None:
    got = run(AFTER, fault)
    assert merged(got) == undisturbed(True)
    for r in got:
        assert [(order, status) for order, _, status in r["calls"]["ack"]] == [
            (7, _hook.ROLLED_BACK),
            (8, _hook.APPLIED),
        ]
        assert [order for order, *_ in r["calls"]["place"]] == [8]
        assert r["rank"] == (r["first"] + 2) % 4


DEATHS = [
    (1, "_pause", "dies"),
    (1, "_swap", "dies"),
    (1, "_swap", "dies late"),
    (3, "_trade", "dies"),
    (1, "_restore", "dies late"),
    (2, "decide", "dies late"),
]


def check_survivors(got: list[Any], want: dict[tuple[int, int], Any], lost: set[tuple[int, int]]) -> None:
    """All is as in the undisturbed run; what the process that died had seen is lost."""
    seen = merged(got)
    assert seen == {at: want[at] for at in seen}
    assert set(want) - lost <= set(seen)


@pytest.mark.parametrize("fault", DEATHS, ids=str)
def test_a_death_in_the_midst_leaves_all_with_one_answer(fault: Fault) -> None:
    ends = [2, 0, 1, 3] if fault[1] == "decide" else [0, 1, 2, 3]
    got = run(AFTER[:1], fault, dead=(fault[0], ends[fault[0]]), own_draws=False)
    check_survivors(got, undisturbed(False), {(fault[0], i) for i in range(2 + DELAY)})
    assert [r["rank"] for r in got] == ends
    for k, r in enumerate(got):
        assert len(r["calls"]["rejoined"]) == 1
        assert [order for order, *_ in r["calls"]["place"]] == ([7] if fault[1] == "decide" and k != fault[0] else [])


@pytest.mark.parametrize("rank", [2, 0])
def test_a_rank_dies_after_its_process_changed_places(rank: int) -> None:
    ends = [2, 0, 1, 3]
    got = run(
        [split(*SPLIT[:2], list(SPLIT[2])), placement(6, 7, ends)],
        dies_at=(rank, 11),
        dead=(ends.index(rank), rank),
        own_draws=False,
    )
    lost = {(ends.index(rank), i) for i in range(6 + DELAY)} | {(rank, i) for i in range(6 + DELAY, 11)}
    check_survivors(got, undisturbed(False, SPLIT), lost)
    assert [r["rank"] for r in got] == ends
    assert all(r["split"] == list(SPLIT[2]) for r in got)
