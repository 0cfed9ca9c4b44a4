"""What happens to training when the adapter's own group fails."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest
import torch
import torch.distributed as dist

from fake_hook import Mailbox, split
from falcon_torch import _votes
from falcon_torch._job import Job
from falcon_torch._mesh import place
from ranks import play

ITERATIONS = 30


def sockets() -> set[int]:
    """The descriptors of this process's sockets."""
    links = {int(fd): os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")}
    return {fd for fd, target in links.items() if "socket:" in target}


def make_job(mailbox: Mailbox, world: int) -> Job:
    layout = place(f"dp={world}", mailbox.rank, world)
    return Job(layout, 4, parameters=[torch.zeros(1)])


def train(mailbox: Mailbox, cut_at: int, *cut: int) -> tuple[list[list[int]], int, bool]:
    """Train on a group of the job's own, while the votes' connections of some ranks are cut."""
    _votes.PATIENCE_S = 5
    before = sockets()
    job = make_job(mailbox, dist.get_world_size())
    votes = sockets() - before
    splits = []
    while job.next_iteration(ITERATIONS):
        splits.append(job.split)
        if job.iteration == cut_at and mailbox.rank in cut:
            for fd in votes:
                own = socket.socket(fileno=os.dup(fd))
                if own.family in (socket.AF_INET, socket.AF_INET6) and own.getsockopt(socket.SOL_SOCKET, 30) == 0:
                    own.shutdown(socket.SHUT_RDWR)
                own.close()
        dist.barrier()
    return splits, len(mailbox.of("ack")), job._votes is None


def test_training_goes_on_when_one_rank_loses_its_votes() -> None:
    began = time.monotonic()
    ranks = play(4, train, 10, 1, posts=[split(20, 1, [1, 1, 7, 7])])
    assert ranks == [([[4, 4, 4, 4]] * ITERATIONS, 0, True)] * 4
    assert time.monotonic() - began < 60


def test_an_order_holds_everywhere_or_nowhere_when_the_votes_are_cut_around_it() -> None:
    for cut_at in range(5, 10):
        ranks = play(4, train, cut_at, 2, posts=[split(5, 1, [1, 1, 7, 7])])
        assert [r[0] for r in ranks] == [ranks[0][0]] * 4, f"cut at {cut_at}"
        changed = [1, 1, 7, 7] in ranks[0][0]
        assert [r[1] for r in ranks] == [1] * 4 or not changed
        assert all(lost for _, _, lost in ranks)


def leave(mailbox: Mailbox) -> int:
    """Rank 1 ends in the middle, as one that crashed; the others are not part of its exchange."""
    job = make_job(mailbox, dist.get_world_size())
    while job.next_iteration(ITERATIONS):
        if mailbox.rank == 1 and job.iteration == 7:
            os._exit(0)
        time.sleep(0.01)
    return job.iteration


def test_votes_never_hold_a_rank_that_outlives_another() -> None:
    began = time.monotonic()
    assert play(3, leave) == [ITERATIONS, None, ITERATIONS]
    assert time.monotonic() - began < 30


def train_unevenly(mailbox: Mailbox, ends: dict[int, int], breaks: bool) -> tuple[int, list[int]]:
    """Ranks end at iterations of their own, by count or out of the loop; none leaves the process before all have."""
    _votes.PATIENCE_S = 1
    job = make_job(mailbox, dist.get_world_size())
    until = ends.get(mailbox.rank, ITERATIONS)
    done = 0
    while job.next_iteration(ITERATIONS if breaks else until):
        done += 1
        if done == until:
            break
    dist.barrier()
    return done, [order for order, _, _ in mailbox.of("ack")]


@pytest.mark.parametrize("breaks", [False, True], ids=["by count", "by break"])
@pytest.mark.parametrize("stride_most", [1, 64])
def test_no_rank_waits_for_one_that_ended_before_it(breaks: bool, stride_most: int) -> None:
    ends = {1: 7, 2: 11}
    ranks = play(4, train_unevenly, ends, breaks, posts=[split(12, 1, [1, 1, 7, 7])], stride_most=stride_most)
    assert ranks == [(30, []), (7, []), (11, []), (30, [])], "an order held without all ranks"


def vote_at_odds(mailbox: Mailbox, iterations: int) -> tuple[list[int], list[int], list[tuple[int, int]]]:
    """Each rank would have another pace at each vote. Where a vote began, the strides, and where orders held."""
    random = Random(mailbox.rank)
    job = make_job(mailbox, dist.get_world_size())
    votes = job._votes
    assert votes is not None
    votes._pace.wanted = lambda _: random.randint(1, 9)  # type: ignore[method-assign]
    asked, strides, begin = [], [], votes._begin

    def begin_noted(newest: int) -> None:
        asked.append(job.iteration)
        begin(newest)

    votes._begin = begin_noted  # type: ignore[method-assign]
    while job.next_iteration(iterations):
        strides.append(votes.stride)
    return asked, strides, [(order, i) for order, i, _ in mailbox.of("ack")]


def test_all_ranks_vote_at_the_same_iterations_whatever_each_wants() -> None:
    posts = [split(k, k + 1, [1 + k % 3, 4, 7 - k % 3], late={1: k + 2}) for k in range(0, 280, 7)]
    ranks = play(3, vote_at_odds, 300, posts=posts, stride_most=_votes.STRIDE_MOST)
    assert ranks[0] == ranks[1] == ranks[2]
    asked, strides, held = ranks[0]
    assert len(set(strides)) > 4
    assert len(held) > 10
    for order, i in held:  # order is prepared on all ranks from iteration order + 1 on
        assert i - _votes.DELAY in asked
        assert order + 1 + _votes.DELAY <= i <= order + 1 + 9 + 2 * _votes.DELAY


def test_the_pace_keeps_votes_below_their_share() -> None:
    pace = _votes.Pace()
    assert pace.wanted(0.1) == 1, "nothing is known yet"
    for cost in (1.0, 250e-6, 2.0, 300e-6):
        pace.record(cost)
    assert pace.wanted(0.1) == 13  # 250 µs of 1.3 s are below 0.02 %
    assert pace.wanted(10.0) == 1
    assert pace.wanted(0.0) == 1
    assert pace.wanted(1e-4) == _votes.STRIDE_MOST
    for _ in range(4):
        pace.record(1.0)
    assert pace.wanted(0.1) == 20, "an order waits 2 s at most"
    assert pace.wanted(3.0) == 1


def one_round(mailbox: Mailbox) -> list[object]:
    """Rank 1 leaves between the vote and the commit."""
    store = dist.PrefixStore("t", dist.distributed_c10d._get_default_store())
    votes = _votes.Votes(store, mailbox.rank, dist.get_world_size())
    out: list[object] = [votes.everywhere(True)]
    out += [votes.take_turn(lambda: 9) for _ in range(_votes.DELAY + 1)][-1:]
    if mailbox.rank == 1:
        votes._lose(RuntimeError("cut"))
    out += [votes.commit(9, True) if not votes.lost else False, bool(votes.lost)]
    return [*out, votes.take_turn(lambda: 10)]


def test_a_commit_without_all_ranks_holds_nowhere() -> None:
    assert play(3, one_round) == [[True, 9, False, True, 0]] * 3


class NeverDone:
    """A call that waits for a rank which makes no such call: with it a group that is left stays open."""

    def is_completed(self) -> bool:
        return False


def commit_beside(mailbox: Mailbox, how: str) -> list[object]:
    """Rank 1 takes no part in a commit, and its connections stay."""
    store = dist.PrefixStore("t", dist.distributed_c10d._get_default_store())
    votes = _votes.Votes(store, mailbox.rank, dist.get_world_size())
    out: list[object] = [votes.everywhere(True)]
    if mailbox.rank == 1 and how == "lost":
        votes._works.append(NeverDone())
        votes._lose(RuntimeError("cut"))
    if mailbox.rank == 1 and how == "done":
        store.compare_set("order/9", "", "holds")
    if mailbox.rank != 1:
        out += [votes.commit(9, True), bool(votes.lost)]
    dist.barrier()
    return out


@pytest.mark.parametrize(("how", "holds"), [("lost", False), ("done", True)])
def test_no_commit_waits_for_a_rank_that_is_past_it(how: str, holds: bool) -> None:
    assert play(3, commit_beside, how) == [[True, holds, True], [True], [True, holds, True]]


ENDS = """
import os, sys, torch, torch.distributed as dist
from falcon_torch import _votes
rank, how = int(sys.argv[1]), sys.argv[3]
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
votes = _votes.agree(True)
votes.take_turn(lambda: 0)
if how == "missing":
    votes.cut_off = lambda: True
    if rank == 1:
        votes.take_turn(lambda: 0)
        dist.barrier()
        os._exit(0)
    votes.take_turn(lambda: 0)
    votes._start([1])
votes.end()
assert votes.lost
dist.barrier()
"""


@pytest.mark.parametrize("how", ["whole", "missing"])
def test_a_process_that_left_the_votes_ends_in_order(tmp_path: Path, how: str) -> None:
    """With a call that still runs, too: a thread in the end of the group aborted the process as it exited."""
    command = [sys.executable, "-c", ENDS]
    arguments = [[*command, str(rank), str(tmp_path / "store"), how] for rank in range(2)]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": os.pathsep.join(sys.path)}
    ranks = [subprocess.Popen(a, stderr=subprocess.PIPE, env=environment) for a in arguments]
    try:
        for process in ranks:
            _, errors = process.communicate(timeout=60)
            assert process.returncode == 0, errors.decode()
    finally:
        for process in ranks:
            process.kill()


TRADE_CUT_OFF = """
import os, sys, time, torch.distributed as dist
from falcon_torch import _votes
rank, store, released = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
votes = _votes.agree(True)
if rank == 1:  # agrees on the sizes, and never takes part in what follows
    votes.least([0, 0])
    while not os.path.exists(released):
        time.sleep(0.01)
    os._exit(0)
began = time.monotonic()
votes.cut_off = lambda: time.monotonic() > began + 2
try:
    votes.trade(b"state", 1, 1)
except RuntimeError:
    pass
assert votes.lost
dist.destroy_process_group()
"""


def test_a_trade_that_still_runs_does_not_hold_up_the_end_of_the_process(tmp_path: Path) -> None:
    """The end of the group waits for it, for as long as the peer is silent."""
    released = tmp_path / "released"
    arguments = [[sys.executable, "-c", TRADE_CUT_OFF, str(k), str(tmp_path / "store"), str(released)] for k in (0, 1)]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": os.pathsep.join(sys.path)}
    ranks = [subprocess.Popen(a, stderr=subprocess.PIPE, env=environment) for a in arguments]
    try:
        _, errors = ranks[0].communicate(timeout=30)
        assert ranks[0].returncode == 0, errors.decode()
    finally:
        released.touch()
        for process in ranks:
            process.kill()
