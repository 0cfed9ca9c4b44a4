"""Placements (S3): processes change ranks between two iterations, and what belongs to a rank goes along.

Replicas hold the same parameters, so that only random numbers, buffers and the job's own state move. Four steps, each
ended by a vote of all ranks over the adapter's group, which the job's groups are no part of. The last vote is the
commit. Before it every failure, on whatever rank, undoes all on all ranks; behind it nothing is left that could fail.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress

import torch
import torch.distributed as dist

from . import _hook
from ._recover import MEET_S, Recovery, abort_groups
from ._votes import Votes

STEPS = ("pause", "dump", "swap", "restore")  # as falcon_job_place has them
SWAP, TRADE = 2, 3  # of the steps below; what follows the trade counts as part of it
BACK_S = 3 * MEET_S  # for the groups of an undone placement: some ranks still wait in those that did not come about


def is_permutation(blocks: Sequence[int], world: int) -> bool:
    """Whether every block of ranks gets another block's place, each once."""
    return len(blocks) > 0 and world % len(blocks) == 0 and sorted(blocks) == list(range(len(blocks)))


def rank_after(blocks: Sequence[int], rank: int, world: int) -> int:
    """The rank that the process with a rank takes over: its block's new place, and its own in the block."""
    size = world // len(blocks)
    return blocks[rank // size] * size + rank % size


def partners(blocks: Sequence[int], rank: int, world: int) -> tuple[int, int]:
    """The rank that the process with a rank takes over, and the process that takes that one's own over."""
    to = [rank_after(blocks, other, world) for other in range(world)]
    return to[rank], to.index(rank)


def drain_device() -> None:
    """Wait until the device has done all that was given to it."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def settle_device() -> None:
    """Take the errors of what a peer's death has cut off on the device, which is told of once, by whoever waits next.

    An error that lasts is met again by who reads the state.
    """
    with suppress(RuntimeError):
        drain_device()


class Placement:
    """One placement on its way, on one rank."""

    def __init__(self, recovery: Recovery, votes: Votes, order: _hook.Order) -> None:
        self._recovery, self._state, self._votes, self._id = recovery, recovery.state, votes, order.id
        self._was = recovery.rank
        self.rank, self._gives_to = partners(order.values, self._was, recovery.size)
        self._store, self._name = recovery.store, f"falcon/{order.epoch}.{order.id}"
        self._own, self._came, self._total, self._alike = b"", b"", 0, False
        self.step_ns, self.received, self.why = [0, 0, 0, 0], 0, ""
        self.votes: Votes | None = None  # of the new groups, once there are any

    def carry_out(self) -> bool:
        """Carry it out; false where it was undone. Raise Suspended where a peer has died meanwhile."""
        steps = (self._pause, self._dump, self._swap, self._trade, self._restore)
        for k, step in enumerate(steps):
            began = time.monotonic_ns()
            done = self._run(step, k == TRADE)
            last = k == len(steps) - 1
            if not (self._votes.decide(self._name, done) if last else self._votes.passes(done)):
                self.why = self.why or f"another rank failed, at the latest in {STEPS[min(k, TRADE)]}"
                self._roll_back(k >= SWAP)
                return False
            self.step_ns[min(k, TRADE)] += time.monotonic_ns() - began
        self._recovery.rank = self.rank
        self._votes.leave()
        return True

    def _run(self, step: Callable[[], None], together: bool) -> bool:
        try:
            step()
        except Exception as error:  # whatever it is, all ranks go back
            self.why = "".join(traceback.format_exception_only(type(error), error)).strip()
            print(f"falcon_torch: placement {self._id} is undone: {self.why}", file=sys.stderr, flush=True)
            traceback.clear_frames(error.__traceback__)
            if together:  # the others wait in it, and must not mistake this rank's next vote for its part
                self._votes.leave()
            return False
        return True

    def _pause(self) -> None:
        """Behind the vote no rank has anything on its way to another."""
        drain_device()

    def _dump(self) -> None:
        self._state.save()
        self._own, self._total = self._state.pack(), self._state.checksum()

    def _swap(self) -> None:
        """Make the groups again, with the new ranks."""
        self._state.drop_gradients()
        dist.destroy_process_group()
        self.votes = self._recovery.open_groups(self._store, self._name, self.rank)
        self._recovery.regroup(None)

    def _trade(self) -> None:
        """Give what belongs to the old rank away, and get what belongs to the new one."""
        self._alike = self._votes.alike(self._total)
        self._came = self._votes.trade(self._own, self._gives_to, self.rank)

    def _restore(self) -> None:
        if not self._alike:
            raise ValueError("the ranks do not hold the same parameters: they can't change places")
        self.received = len(self._came) if self.rank != self._was else 0
        self._state.unpack(self._came)

    def _roll_back(self, gone: bool) -> None:
        """Be what this process was, in new groups; a rank that lost the votes can't know that the old ones live."""
        self._recovery.unwatch(self.votes)
        self.votes = None
        if self._own:
            self._state.rewind()
        os.environ["RANK"] = str(self._was)
        lost = bool(self._votes.lost)
        if lost:
            self._recovery.await_suspension()
        self._recovery.check()
        if gone or lost:
            abort_groups()
            self.votes = self._recovery.open_groups(self._store, self._name + "/back", self._was, BACK_S)
            self._recovery.regroup(None)
            self._votes.leave()
        if self._own:
            self._state.rewind()  # making groups may draw random numbers
