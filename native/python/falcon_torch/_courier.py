"""Micro-batches that move between replicas take their data along.

For jobs whose data come from a loader of the framework's: each rank goes on reading what it would read with an even
split, and hands over what it is not to run. So loaders, samplers and their checkpoints stay as they are, and every
sample is trained on as often as without Falcon. It must not decide how many micro-batches move.
"""

from __future__ import annotations

import io
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

from ._mesh import Layout
from ._recover import through
from ._votes import meet

LOOK_S = 0.001  # between two looks for a message
TAGS = 2  # of a message: one for its length, one for its bytes


def moves(split: Sequence[int], each: int) -> list[tuple[int, int, int]]:
    """Who gives how many micro-batches to whom: (from, to, count), where every replica reads each."""
    givers = [[k, each - m] for k, m in enumerate(split) if m < each]
    takers = [[k, m - each] for k, m in enumerate(split) if m > each]
    found = []
    while givers and takers:
        count = min(givers[0][1], takers[0][1])
        found.append((givers[0][0], takers[0][0], count))
        for side in (givers, takers):
            side[0][1] -= count
            if side[0][1] == 0:
                side.pop(0)
    return found


def pack(batches: Any) -> bytes:
    """Batches as bytes."""
    out = io.BytesIO()
    torch.save(batches, out)
    return out.getvalue()


def unpack(data: bytes) -> Any:
    """What was packed; only tensors and plain containers, as a peer must not be able to run code here."""
    return torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")


class Courier:
    """Carries batches between the ranks that do the same work in different replicas."""

    def __init__(self, layout: Layout, cut_off: Callable[[], bool] | None = None) -> None:
        name = f"falcon/batches/{layout.shard}"
        store = dist.PrefixStore(name, dist.distributed_c10d._get_default_store())
        self._group: Any = meet(store, layout.replica, layout.replicas)
        self._store, self._me, self._cut_off = store, layout.replica, cut_off
        self._numbers: Counter[tuple[int, int, int]] = Counter()  # of messages: from, to, tag
        self._under_way: list[tuple[Any, torch.Tensor]] = []  # a tensor must live until it is sent
        self.carries: bool | None = None  # whether this rank's batches can be packed; None while it has seen none

    def try_on(self, batch: Any) -> None:
        """Find out whether batches like this one can be carried."""
        try:
            unpack(pack(batch))
        except Exception:  # whatever it is, they stay where they are
            self.carries = False
        else:
            self.carries = True

    def send(self, to: int, batches: list[Any], tag: int) -> None:
        """Send batches to a replica, without waiting for it."""
        data = bytearray(pack(batches))
        if self._cut_off is not None:
            self._store.set(self._key(self._me, to, tag), "1")
        parts = torch.tensor([len(data)]), torch.frombuffer(data, dtype=torch.uint8)
        self._under_way += [(self._group.send([t], to, tag * TAGS + k), t) for k, t in enumerate(parts)]

    def finish(self) -> None:
        """Let go of what was sent in an iteration that is over: the others have it."""
        for work, _ in self._under_way:
            work.wait()
        self._under_way.clear()

    def receive(self, source: int, tag: int) -> list[Any]:
        """Wait for the batches of a replica."""
        if self._cut_off is not None:
            self._await(self._key(source, self._me, tag), self._cut_off)
        length = torch.tensor([0])
        self._group.recv([length], source, tag * TAGS).wait()
        data = torch.empty(int(length), dtype=torch.uint8)
        self._group.recv([data], source, tag * TAGS + 1).wait()
        batches: list[Any] = unpack(data.numpy().tobytes())
        return batches

    def _key(self, source: int, to: int, tag: int) -> str:
        """The key of the store by which the next message is announced."""
        self._numbers[source, to, tag] += 1
        return f"{source}/{to}/{tag}/{self._numbers[source, to, tag]}"

    def _await(self, key: str, cut_off: Callable[[], bool]) -> None:
        """Wait until a message is announced: the wait for itself can't be cut off, and its sender may have parked."""
        while not self._store.check([key]):
            if cut_off():
                raise RuntimeError("the job is suspended")
            time.sleep(LOOK_S)
        self._store.delete_key(key)


class Dealt:
    """The batches of one rank in one iteration, out of the framework's own iterator."""

    def __init__(self, source: Iterator[Any], courier: Courier, layout: Layout, split: Sequence[int], tag: int) -> None:
        each, me = sum(split) // len(split), layout.replica
        found = moves(split, each)
        self._source, self._courier, self._tag = source, courier, tag
        self._gives = [(to, count) for giver, to, count in found if giver == me]
        self._gets = [giver for giver, to, _ in found if to == me]
        self._own, self._came = min(split[me], each), list[Any]()

    def __iter__(self) -> Iterator[Any]:
        """Iterate over them."""
        return self

    @through
    def __next__(self) -> Any:
        """The next batch; what is given away goes first, as others wait for it."""
        while self._gives:
            to, count = self._gives.pop(0)
            self._courier.send(to, [next(self._source) for _ in range(count)], self._tag)
        if self._own > 0 or not (self._came or self._gets):
            self._own -= 1
            batch = next(self._source)
            if self._courier.carries is None:
                self._courier.try_on(batch)
            return batch
        if not self._came:
            self._came = self._courier.receive(self._gets.pop(0), self._tag)
        return self._came.pop(0)
