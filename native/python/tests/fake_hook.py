"""A mailbox that stands in for the hook: it hands out orders, and keeps what was reported."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from falcon_torch import _hook
from falcon_torch._hook import Order, Rejoin


@dataclass
class Post:
    """An order that ranks find in their mailboxes when they poll for iteration `at` or a later one."""

    at: int
    order: Order
    late: dict[int, int] = field(default_factory=dict)  # by rank, where it is another iteration
    gone: frozenset[int] = frozenset()  # ranks that no longer hold it when it is voted for


@dataclass
class Mailbox:
    """What _hook.Hook is, for one rank."""

    rank: int
    posts: list[Post] = field(default_factory=list)
    present: bool = True
    calls: list[tuple[Any, ...]] = field(default_factory=list)

    def mesh(self, dims: str, micro_batches: int) -> None:
        self.calls.append(("mesh", dims, micro_batches))

    def state(self, state_bytes: int, least: int, multiple: int, zero: tuple[int, int] = (0, 0)) -> None:
        self.calls += [("state", state_bytes, least, multiple), ("zero", *zero)]

    def can(self, what: int, versions: int) -> None:
        self.calls.append(("can", what, versions))

    def begin_iteration(self, i: int) -> None:
        self.calls.append(("begin", i))

    def begin_optimizer(self, i: int) -> None:
        self.calls.append(("update", i))

    def end_optimizer(self, following: int) -> None:
        self.calls.append(("updated", following))

    def poll(self, i: int) -> int:
        there = [p.order.id for p in self.posts if i >= p.late.get(self.rank, p.at)]
        return max(there, default=0) if self.present else 0

    def fetch(self, order: int) -> Order | None:
        return next((p.order for p in self.posts if p.order.id == order and self.rank not in p.gone), None)

    def ack(self, order: int, i: int, status: int) -> None:
        self.calls.append(("ack", order, i, status))

    def place(self, order: int, i: int, rank: int, step_ns: list[int], received: int) -> None:
        self.calls.append(("place", order, i, rank, step_ns, received))

    def checkpoint(self, i: int) -> None:
        self.calls.append(("checkpoint", i))

    def suspended(self) -> bool:
        return False

    def park(
        self, status: int, step: int, checksum: int, older: tuple[int, int] = (-1, 0)
    ) -> tuple[int, Rejoin | None]:
        self.calls.append(("park", status, step, checksum, *(older if older[0] >= 0 else ())))
        return _hook.PARK_STOP, None

    def rejoined(self, order: Rejoin, status: int, groups_ns: int, restore_ns: int, received: int) -> None:
        self.calls.append(("rejoined", order, status, groups_ns, restore_ns, received))

    def paused_ms(self) -> float:
        return 0.0

    def waited_s(self) -> float:
        return 0.0

    def raised(self, kind: str, where: str, text: str, of_peers: bool) -> None:
        self.calls.append(("raised", kind, where, text, of_peers))

    def finish(self) -> None:
        self.calls.append(("finish",))

    def of(self, name: str) -> list[tuple[Any, ...]]:
        """The arguments of the calls with this name."""
        return [c[1:] for c in self.calls if c[0] == name]


def install(mailbox: Mailbox) -> Mailbox:
    """Have jobs that this process makes find the mailbox instead of the hook."""
    _hook.Hook = lambda: mailbox  # type: ignore[assignment,misc]
    return mailbox


def split(at: int, id_: int, counts: list[int], epoch: int = 1, **post: Any) -> Post:
    """An order of micro-batches."""
    return Post(at, Order(id_, epoch, _hook.MICRO_BATCHES, counts), **post)


def checkpoint(at: int, id_: int, leave: bool = False, epoch: int = 1, **post: Any) -> Post:
    """An order to write a checkpoint."""
    return Post(at, Order(id_, epoch, _hook.CHECKPOINT, [int(leave)]), **post)


def placement(at: int, id_: int, blocks: list[int], epoch: int = 1, **post: Any) -> Post:
    """An order to change places."""
    return Post(at, Order(id_, epoch, _hook.PLACEMENT, blocks), **post)


def stop(at: int, id_: int, epoch: int = 1) -> Post:
    """An order to end."""
    return Post(at, Order(id_, epoch, _hook.STOP, []))
