"""Agreement of all ranks on what their agents have prepared, over gloo."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
import torch.distributed as dist

DELAY = 2  # iterations from a vote to what follows from it: gloo has it done by then


class Votes:
    """The ranks' votes on orders: the smallest id that any of them has prepared counts for all."""

    def __init__(self, group: Any) -> None:
        self._group = group
        self._running: deque[tuple[Any, torch.Tensor]] = deque()

    def begin(self, newest: int) -> None:
        """Begin a vote, with the id of the newest order that this rank has prepared."""
        mine = torch.tensor([newest])
        self._running.append((dist.all_reduce(mine, op=dist.ReduceOp.MIN, group=self._group, async_op=True), mine))

    def due(self) -> int:
        """The outcome of the vote begun DELAY calls of begin ago, 0 for none."""
        if len(self._running) <= DELAY:
            return 0
        work, vote = self._running.popleft()
        work.wait()
        return int(vote)

    def all_have(self, mine: bool) -> bool:
        """Whether mine is true on every rank; waits for them."""
        return everywhere(mine, self._group)

    def drain(self) -> None:
        """Wait for the votes that run."""
        while self._running:
            self._running.popleft()[0].wait()


def everywhere(mine: bool, group: Any) -> bool:
    """Whether mine is true on every rank of the group; waits for them."""
    have = torch.tensor([int(mine)])
    dist.all_reduce(have, op=dist.ReduceOp.MIN, group=group)
    return int(have) == 1


def agree(mine: bool) -> Votes | None:
    """Votes of all ranks, or None unless every rank has the hook: an order needs all of them."""
    group = dist.new_group(backend="gloo")
    if everywhere(mine, group):
        return Votes(group)
    dist.destroy_process_group(group)
    return None
