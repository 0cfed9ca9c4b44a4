"""Agreement of all ranks on what their agents have prepared, over gloo.

It guarantees that an order holds on all ranks from one iteration on, or on none, and that its own
network's failures never stop training: then there are no more votes, and the split stays. Every
rank takes one turn per iteration; at which turns there are votes follows from outcomes alone, which
are the same on all ranks, so that no rank ever votes by itself. It must not decide what an order
does.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

DELAY = 2  # iterations from a vote to what follows from it: gloo has it done by then
STRIDE_MOST = 64  # iterations from one vote to the next
LATE_S = 2.0  # from one vote to the next, where an iteration is shorter
SHARE = 0.0002  # of the training thread's time that votes may take
LOOK_S = 0.0005  # between two looks at a vote
LEAVE_S = 0.05  # between two looks whether a group can be left
ASK_S = (1.0, 16.0)  # between two questions to the store of a wait without end: at first, and at most
LEFT = "left"  # the key in the store that a rank sets whose votes are lost
MEET_S = 60.0  # for all ranks to come to the group
QUIET_S = 1800.0  # for one vote in gloo: an iteration of the slowest rank, or its writing of a checkpoint
PATIENCE_S = 120.0  # for a vote whose iterations are over: a rank that is still missing left the loop


@dataclass
class _Vote:
    turn: int  # at which it began
    work: Any
    values: torch.Tensor
    cost_s: float


class Pace:
    """How many iterations lie between two votes, for their cost to stay below SHARE."""

    def __init__(self) -> None:
        self._costs: deque[float] = deque(maxlen=4)

    def record(self, cost_s: float) -> None:
        """Take what one vote has cost this rank."""
        self._costs.append(cost_s)

    def wanted(self, iteration_s: float) -> int:
        """As many as this rank would have: the least cost counts, as others' load only adds to it."""
        if not self._costs or iteration_s <= 0:
            return 1
        cheap = math.ceil(min(self._costs) / (SHARE * iteration_s))
        return max(1, min(cheap, int(LATE_S / iteration_s), STRIDE_MOST))


class Votes:
    """The ranks' votes on orders: the smallest id that any of them has prepared counts for all."""

    def __init__(self, store: dist.Store, rank: int, world: int) -> None:
        self._store, self._rank, self._world = store, rank, world
        self._group: Any = meet(store, rank, world)
        self._least = dist.AllreduceOptions()
        self._least.reduceOp = dist.ReduceOp.MIN
        self._running: deque[_Vote] = deque()
        self._works: list[Any] = []  # that may still run
        self._turn, self._last, self._last_s = 0, -STRIDE_MOST, 0.0
        self._pace = Pace()
        self.stride = 1  # iterations from one vote to the next, the largest that any rank wanted
        self.lost = ""  # why there are no more votes
        self.cut_off: Callable[[], bool] = lambda: False  # whether to wait no longer

    def take_turn(self, newest: Callable[[], int]) -> int:
        """Take this rank's turn at an iteration boundary: the outcome of the vote that is due, 0 for none.

        newest gives the id of the newest order that this rank has prepared; it is called where a vote begins.
        """
        self._turn += 1
        if self.lost:
            return 0
        try:
            voted = self._outcome() if self._running and self._turn >= self._running[0].turn + DELAY else 0
            if self._turn >= self._last + self.stride:
                self._begin(newest())
        except RuntimeError as e:
            self._lose(e)
            return 0
        return voted

    def commit(self, order: int, held: bool) -> bool:
        """Whether the voted order holds: every rank gets the same answer."""
        return self.decide(f"order/{order}", held)

    def decide(self, name: str, mine: bool) -> bool:
        """Whether mine is true on every rank; waits for them, and every rank gets the same answer.

        One where the group fails meanwhile can't know what the others saw, so the store decides: what
        the first rank wrote there under the name counts. Who lost an earlier vote takes no part, and
        then no rank finds that mine is true everywhere.
        """
        all_hold = self.passes(mine, name)
        return bool(self._store.compare_set(name, "", "holds" if all_hold else "dropped") == b"holds")

    def passes(self, mine: bool, decided: str = LEFT) -> bool:
        """Whether mine is true on every rank, as far as this rank knows: false too where the group fails.

        It has failed, too, once the store has that key: another rank is done with this vote.
        """
        try:
            return self.everywhere(mine, decided)
        except RuntimeError as e:
            self._lose(e)
            return False

    def everywhere(self, mine: bool, decided: str = LEFT) -> bool:
        """Whether mine is true on every rank; waits for them. Raise RuntimeError as least does."""
        return self.least([int(mine)], decided) == [1]

    def least(self, mine: list[int], decided: str = LEFT) -> list[int]:
        """The least of each value over all ranks; waits for them.

        Raise RuntimeError where the network fails, where another rank has left, or has set that key of the store.
        """
        work, values = self._start(mine)
        return self._wait(work, values, _Unended(self._store, decided))

    def alike(self, value: int, shard: int = 0, shards: int = 1) -> bool:
        """Whether ranks of the same shard have the same value, of 64 bits, for every shard: one answer for all."""
        signed = value - (1 << 64) if value >> 63 else value
        mine = [(1 << 63) - 1] * (2 * shards)
        mine[2 * shard : 2 * shard + 2] = [signed, ~signed]
        got = self.least(mine)
        return all(least == ~most for least, most in zip(got[::2], got[1::2], strict=True))

    def trade(self, data: bytes, to: int, source: int) -> bytes:
        """Give data to a rank, and get that of another one; every rank trades at once.

        Ranks are those that this group was made with. Raise RuntimeError where the network fails.
        """
        try:
            return self._trade(data, to, source)
        except Exception as e:  # the others wait for this rank: they must not mistake its next call for this one
            self._lose(e)
            raise

    def _trade(self, data: bytes, to: int, source: int) -> bytes:
        sizes = [0] * self._world
        sizes[self._rank] = -len(data)
        out, gets = [0] * self._world, [0] * self._world
        out[to], gets[source] = len(data), -self.least(sizes)[source]
        came = torch.empty(gets[source], dtype=torch.uint8)
        given = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
        work = self._group.alltoall_base(came, given, gets, out, dist.AllToAllOptions())
        self._await(self._issued(work), _Unended(self._store, LEFT))
        return bytes(came.numpy().data)

    def leave(self) -> None:
        """Leave the group: a peer died, and the votes that run may never end."""
        if not self.lost:
            self._lose(RuntimeError("the job is suspended"))

    def end(self) -> None:
        """Wait for the votes that run, and leave: ranks that train longer go on without votes."""
        try:
            while self._running and not self.lost:
                self._outcome()
        except RuntimeError as e:
            self._lose(e)
        if not self.lost:
            self._lose(RuntimeError("training is over"))

    def _begin(self, newest: int) -> None:
        now, turns = time.perf_counter(), self._turn - self._last
        wanted = self._pace.wanted((now - self._last_s) / turns) if self._last > 0 else 1
        work, values = self._start([newest, -wanted])
        self._running.append(_Vote(self._turn, work, values, time.perf_counter() - now))
        self._last, self._last_s = self._turn, now

    def _outcome(self) -> int:
        """Finish the oldest vote."""
        began, vote = time.perf_counter(), self._running.popleft()
        voted, stride = self._wait(vote.work, vote.values, _Late(PATIENCE_S))
        self.stride = -stride
        self._pace.record(vote.cost_s + time.perf_counter() - began)
        return voted

    def _start(self, mine: list[int]) -> tuple[Any, torch.Tensor]:
        if self.lost:
            raise RuntimeError(self.lost)
        values = torch.tensor(mine)
        return self._issued(self._group.allreduce([values], self._least)), values

    def _issued(self, work: Any) -> Any:
        """Note a call of the group: its end waits for all of them."""
        self._works = [w for w in self._works if not w.is_completed()] + [work]
        return work

    def _wait(self, work: Any, values: torch.Tensor, patience: _Late | _Unended) -> list[int]:
        self._await(work, patience)
        agreed: list[int] = values.tolist()
        return agreed

    def _await(self, work: Any, patience: _Late | _Unended) -> None:
        while not work.is_completed():  # a wait inside gloo would not end when a peer parks
            if self.cut_off():
                raise RuntimeError("the job is suspended")
            patience.check()
            time.sleep(LOOK_S)
        work.wait()

    def _lose(self, why: Exception) -> None:
        """Leave the group, so that the others' votes fail too.

        The store says so as well: a group whose calls wait for others stays, and so do its connections. A job that
        is suspended ends its ranks' waits itself, and its store may be gone.
        """
        if not self.cut_off():
            with contextlib.suppress(RuntimeError):
                self._store.set(LEFT, "1")
        self.lost = (str(why).splitlines() or [type(why).__name__])[0]
        _Leaving(self._group, self._works)
        self._group, self._works = None, []
        self._running.clear()


class _Late:
    """The wait for a vote whose iterations are over."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s, self._until = patience_s, time.monotonic() + patience_s

    def check(self) -> None:
        """Raise RuntimeError once it has lasted too long."""
        if time.monotonic() > self._until:
            raise RuntimeError(f"a rank did not vote for {self._patience_s} s")


class _Unended:
    """A wait for all ranks, however long they take: it ends early only by a key in the store.

    It asks seldom and ever more seldom, as all ranks may wait for one.
    """

    def __init__(self, store: dist.Store, decided: str) -> None:
        self._store, self._keys = store, {LEFT, decided}
        self._every_s = ASK_S[0]
        self._next = time.monotonic() + self._every_s

    def check(self) -> None:
        """Raise RuntimeError where the store has one of the keys. A store that does not answer says nothing."""
        if time.monotonic() < self._next:
            return
        ended = False
        with contextlib.suppress(RuntimeError):
            ended = any(self._store.check([key]) for key in self._keys)
        if ended:
            raise RuntimeError("another rank has left the votes")
        self._every_s = min(2 * self._every_s, ASK_S[1])
        self._next = time.monotonic() + self._every_s


class _Leaving:
    """Lets go of a group once none of its calls runs: its end waits for them.

    A thread that is in there as the interpreter ends would abort the process, so it is over before, and a group
    whose calls still run then stays.
    """

    def __init__(self, group: Any, works: list[Any]) -> None:
        self._group, self._works = group, works
        self._exiting = threading.Event()
        self._thread = threading.Thread(target=self._leave, name="falcon-votes", daemon=True)
        self._thread.start()
        atexit.register(self._exit)

    def _leave(self) -> None:
        while not all(work.is_completed() for work in self._works):
            if self._exiting.wait(LEAVE_S):
                for kept in (self._group, *self._works):
                    ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
                return
        self._group = None
        self._works.clear()
        atexit.unregister(self._exit)

    def _exit(self) -> None:
        self._exiting.set()
        self._thread.join()


def meet(store: dist.Store, rank: int, world: int) -> Any:
    """Make a gloo group that waits for its ranks for MEET_S, and in its calls for QUIET_S."""
    group = dist.ProcessGroupGloo(store, rank, world, timeout=timedelta(seconds=MEET_S))
    try:
        group._set_default_timeout(timedelta(seconds=QUIET_S))
    except (AttributeError, RuntimeError):  # an older PyTorch: one timeout for both
        again = dist.PrefixStore("again", store)
        return dist.ProcessGroupGloo(again, rank, world, timeout=timedelta(seconds=QUIET_S))
    return group


def agree(mine: bool, prefix: str = "falcon", cut_off: Callable[[], bool] | None = None) -> Votes | None:
    """Votes of all ranks, or None unless every rank has the hook: an order needs all of them."""
    store = dist.PrefixStore(prefix, dist.distributed_c10d._get_default_store())
    votes = Votes(store, dist.get_rank(), dist.get_world_size())
    votes.cut_off = cut_off or votes.cut_off
    return votes if votes.everywhere(mine) else None
