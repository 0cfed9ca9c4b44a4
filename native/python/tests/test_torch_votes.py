"""What happens to training when the adapter's own group fails."""

from __future__ import annotations

import os
import socket
import time

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


def one_round(mailbox: Mailbox) -> list[object]:
    """Rank 1 leaves between the vote and the commit."""
    store = dist.PrefixStore("t", dist.distributed_c10d._get_default_store())
    votes = _votes.Votes(store, mailbox.rank, dist.get_world_size())
    out: list[object] = [votes.everywhere(True)]
    for _ in range(_votes.DELAY + 1):
        votes.begin(9)
    out.append(votes.due())
    if mailbox.rank == 1:
        votes._lose(RuntimeError("cut"))
    out += [votes.commit(9, True) if not votes.lost else False, bool(votes.lost)]
    votes.begin(10)
    return [*out, votes.due()]


def test_a_commit_without_all_ranks_holds_nowhere() -> None:
    assert play(3, one_round) == [[True, 9, False, True, 0]] * 3
