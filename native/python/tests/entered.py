"""Jobs whose training function is entered again: what becomes of them, against a job that nothing disturbed."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import pytest

from fake_hook import Post, placement, split
from falcon_torch import _hook
from falcon_torch._votes import DELAY
from parking import Job, ParkingMailbox

Death = tuple[int, int, str]  # a rank, an iteration, and where in it
Noted = dict[tuple[int, Any], Any]  # what an iteration of a rank was; other keys where it can be left out
TIMES = 20  # kills and swaps of the long tests
STEPS = 4 * TIMES + 8  # iterations of them
long = pytest.mark.skipif(os.environ.get("FALCON_LONG") != "1", reason="takes minutes; FALCON_LONG=1 has it")


@dataclass(frozen=True)
class Case:
    """A job. train gives "seen", what each iteration was, "entered", the ranks, and "calls" of the hook."""

    world: int
    train: Callable[..., Any]
    kind: str
    shard_of: Callable[[int], int]
    steps: int = 8

    def play(self, posts: list[Post], deaths: tuple[Death, ...] = ()) -> list[Any]:
        """What the processes returned that have come to the end."""
        train = partial(self.train, self.kind, self.steps, deaths)
        job = Job(self.world, train, posts, self.shard_of, spares=len(deaths))
        try:
            for rank in range(self.world):
                job.start(rank, rank)
            for rank, _, _ in deaths:
                job.recover(rank, rank)
            return job.results()
        finally:
            job.end()


def die(deaths: tuple[Death, ...], mailbox: ParkingMailbox, iteration: int, point: str) -> None:
    """Die where this is the next death: each makes a generation."""
    if deaths[mailbox.generation : mailbox.generation + 1] == ((mailbox.rank, iteration, point),):
        os._exit(9)


def merged(got: list[Any]) -> Noted:
    out: Noted = {}
    for r in got:
        for at, seen in r["seen"].items():
            assert out.setdefault(at, seen) == seen, at
    return out


Counts = tuple[int, ...]


@cache
def undisturbed(case: Case, counts: Counts = ()) -> Noted:
    return merged(case.play(splits(counts)))


def splits(counts: Counts) -> list[Post]:
    return [split(0, 1, list(counts))] if counts else []


def check_deaths(case: Case, *deaths: Death, counts: Counts = ()) -> None:
    """Every iteration was what it is in a job that nobody kills, and survivors have stayed.

    counts are micro-batches that each replica runs from iteration 2 on.
    """
    want = undisturbed(case, counts)
    got = case.play(splits(counts), deaths)
    seen = merged(got)
    assert seen == {at: want[at] for at in seen}
    last = {rank: i for rank, i, _ in deaths}
    cut = {i for _, i, _ in deaths}
    assert {(r, i) for r, i in want if isinstance(i, int) and i not in cut and i > last.get(r, -1)} <= set(seen)
    assert {r for r, i in seen if i == case.steps - 1} == {r for r, i in want if i == case.steps - 1}
    for rank, r in enumerate(got):
        since = [rank for rank, _, _ in deaths]
        entered = len(since) - (len(since) - 1 - since[::-1].index(rank) if rank in since else -1)
        assert len(r["entered"]) == entered
        assert [status for _, status, *_ in r["calls"]["rejoined"]] == [_hook.REJOINED] * (entered - (rank not in last))


def check_places(case: Case, *moves: tuple[int, list[int]]) -> None:
    """Processes change places before iterations, by blocks of ranks; nothing else changes."""
    got = case.play([placement(at, 7 + k, blocks) for k, (at, blocks) in enumerate(moves)])
    assert merged(got) == undisturbed(case)
    for r in got:
        assert len(r["entered"]) == 1 + len(moves)
        assert r["calls"]["ack"] == [(7 + k, at + DELAY, _hook.APPLIED) for k, (at, _) in enumerate(moves)]
        assert [place[1] for place in r["calls"]["place"]] == [at + DELAY for at, _ in moves]
        assert [place[2] for place in r["calls"]["place"]] == r["entered"][1:]
        assert all(ns > 0 for *_, step_ns, _ in r["calls"]["place"] for ns in step_ns)


def many_deaths(world: int, points: list[str]) -> list[Death]:
    return [((3 * k + 1) % world, 4 * k + 3, points[k % len(points)]) for k in range(TIMES)]


def many_places() -> list[tuple[int, list[int]]]:
    return [(4 * k + 2, [1, 0]) for k in range(TIMES)]
