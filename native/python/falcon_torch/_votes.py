"""Agreement of all ranks on what their agents have prepared, over gloo.

It guarantees that an order holds on all ranks from one iteration on, or on none, and that its own
network's failures never stop training: then there are no more votes, and the split stays.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

DELAY = 2  # iterations from a vote to what follows from it: gloo has it done by then
LOOK_S = 0.0005  # between two looks at a vote


class Votes:
    """The ranks' votes on orders: the smallest id that any of them has prepared counts for all."""

    def __init__(self, store: dist.Store, rank: int, world: int) -> None:
        self._store = store
        self._group: Any = dist.ProcessGroupGloo(store, rank, world)
        self._least = dist.AllreduceOptions()
        self._least.reduceOp = dist.ReduceOp.MIN
        self._running: deque[tuple[Any, torch.Tensor]] = deque()
        self.lost = ""  # why there are no more votes
        self.cut_off: Callable[[], bool] = lambda: False  # whether to wait no longer

    def begin(self, newest: int) -> None:
        """Begin a vote, with the id of the newest order that this rank has prepared."""
        if self.lost:
            return
        try:
            self._running.append(self._start(newest))
        except RuntimeError as e:
            self._lose(e)

    def due(self) -> int:
        """The outcome of the vote begun DELAY calls of begin ago, 0 for none."""
        if self.lost or len(self._running) <= DELAY:
            return 0
        try:
            return self._finish(*self._running.popleft())
        except RuntimeError as e:
            self._lose(e)
            return 0

    def commit(self, order: int, held: bool) -> bool:
        """Whether the voted order holds: every rank gets the same answer.

        One where the group fails meanwhile can't know what the others saw, so the store decides: what
        the first rank wrote there counts. Who lost an earlier vote takes no part, and then no rank
        finds that all hold the order.
        """
        try:
            all_hold = self.everywhere(held)
        except RuntimeError as e:
            self._lose(e)
            all_hold = False
        if not all_hold and not self.lost:
            return False
        return bool(self._store.compare_set(f"order/{order}", "", "holds" if all_hold else "dropped") == b"holds")

    def everywhere(self, mine: bool) -> bool:
        """Whether mine is true on every rank; waits for them. Raise RuntimeError where the network fails."""
        return self._finish(*self._start(int(mine))) == 1

    def leave(self) -> None:
        """Leave the group: a peer died, and the votes that run may never end."""
        if not self.lost:
            self._lose(RuntimeError("the job is suspended"))

    def drain(self) -> None:
        """Wait for the votes that run."""
        while self._running and not self.lost:
            try:
                self._finish(*self._running.popleft())
            except RuntimeError as e:
                self._lose(e)

    def _start(self, mine: int) -> tuple[Any, torch.Tensor]:
        vote = torch.tensor([mine])
        return self._group.allreduce([vote], self._least), vote

    def _finish(self, work: Any, vote: torch.Tensor) -> int:
        while not work.is_completed():  # a wait inside gloo would not end when a peer parks
            if self.cut_off():
                raise RuntimeError("the job is suspended")
            time.sleep(LOOK_S)
        work.wait()
        return int(vote)

    def _lose(self, why: Exception) -> None:
        """Leave the group, so that the others' votes fail too. It waits for calls that run: not here."""
        self.lost = (str(why).splitlines() or [type(why).__name__])[0]
        left = [self._group, *self._running]
        self._group = None
        self._running.clear()
        if self.cut_off():  # the peers have left too, and its end would hold up this whole process until a timeout
            for kept in left:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
            return
        threading.Thread(target=left.clear, daemon=True).start()


def agree(mine: bool, prefix: str = "falcon") -> Votes | None:
    """Votes of all ranks, or None unless every rank has the hook: an order needs all of them."""
    store = dist.PrefixStore(prefix, dist.distributed_c10d._get_default_store())
    votes = Votes(store, dist.get_rank(), dist.get_world_size())
    return votes if votes.everywhere(mine) else None
