"""The functions of libfalcon_hook.so (native/include/falcon_job.h), by ctypes."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

VALUES_MAX = 1024  # FALCON_JOB_VALUES_MAX

# enum falcon_order_kind
MICRO_BATCHES, PLACEMENT, CHECKPOINT, STOP, REJOIN = 1, 2, 3, 4, 5

# enum falcon_can: what a process declares that it can do
CAN_PARK, CAN_SPLIT, CAN_PLACE, CAN_CHECKPOINT, CAN_NOTHING = 1, 2, 4, 8, 1 << 31
# status of falcon_job_park: why a process parks, and how it leaves
PARK_SUSPENDED, PARK_JOIN = 0, 1
PARK_REJOIN, PARK_STOP = 0, 1

# status of falcon_job_rejoined, and of the park after a rejoin that failed
REJOINED, FAILED_GROUPS, FAILED_STATE, FAILED_STORAGE, FAILED_ORDER = 0, -1, -2, -3, -4

NOTHING = -1  # for a step that is not held
FROM_STORAGE = -2  # for a rank whose state no other rank has

# status of falcon_job_ack: 0 = applied, others as the Go trainer's adapter has them
APPLIED, REFUSED_STALE, REFUSED_VALUES, REFUSED_KIND, REFUSED_GONE, ROLLED_BACK, NOT_WRITTEN = range(7)


class _Order(ctypes.Structure):
    _fields_ = [
        ("id", ctypes.c_uint64),
        ("epoch", ctypes.c_uint64),
        ("kind", ctypes.c_uint32),
        ("n", ctypes.c_uint32),
        ("values", ctypes.c_int32 * VALUES_MAX),
    ]


_Steps, _Sums = ctypes.c_int64 * 2, ctypes.c_uint64 * 2


@dataclass(frozen=True)
class Order:
    """One order of the agent."""

    id: int
    epoch: int
    kind: int
    values: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Rejoin:
    """An order to train again: in which generation, from where, and who gets its state from whom."""

    generation: int
    resume: int  # first iteration to train
    from_checkpoint: bool  # all ranks restore from storage
    split: list[int]  # micro-batches of each replica; empty = as it was
    moves: dict[int, int]  # from whom a rank gets its state; who is not named keeps its own


def decode_rejoin(order: int, values: list[int]) -> Rejoin:
    """Read the values of a REJOIN order as falcon_job.h lays them out."""
    if len(values) < 5 or min(values[1:4]) < 0 or values[3] > len(values) - 5:
        raise ValueError(f"an order to rejoin of {len(values)} values can't be read")
    split, rest = values[4 : 4 + values[3]], values[4 + values[3] :]
    pairs = rest[1:]
    if len(pairs) != 2 * rest[0]:
        raise ValueError(f"an order to rejoin names {rest[0]} moves in {len(pairs)} values")
    moves = dict(zip(pairs[::2], pairs[1::2], strict=True))
    if len(moves) != rest[0] or any(to < 0 or to == src or src < FROM_STORAGE for to, src in moves.items()):
        raise ValueError(f"an order to rejoin has moves that can't be: {pairs}")
    return Rejoin(order, values[2] << 31 | values[1], values[0] == 1, split, moves)


_SIGNATURES = {
    "falcon_job_mesh": (None, [ctypes.c_char_p, ctypes.c_int]),
    "falcon_job_begin_iteration": (None, [ctypes.c_int64]),
    "falcon_job_begin_optimizer": (None, [ctypes.c_int64]),
    "falcon_job_end_optimizer": (None, [ctypes.c_int64]),
    "falcon_job_poll": (ctypes.c_uint64, [ctypes.c_int64]),
    "falcon_job_fetch": (ctypes.c_int, [ctypes.c_uint64, ctypes.POINTER(_Order)]),
    "falcon_job_ack": (None, [ctypes.c_uint64, ctypes.c_int64, ctypes.c_int32]),
    "falcon_job_state": (None, [ctypes.c_int, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64] + [ctypes.c_int] * 3),
    "falcon_job_place": (
        None,
        [ctypes.c_uint64, ctypes.c_int64, ctypes.c_int, ctypes.POINTER(ctypes.c_uint64), ctypes.c_uint64],
    ),
    "falcon_job_checkpoint": (None, [ctypes.c_int64]),
    "falcon_job_suspended": (ctypes.c_uint64, []),
    "falcon_job_park": (
        ctypes.c_int,
        [ctypes.c_int, ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(_Order)],
    ),
    "falcon_job_rejoined": (
        None,
        [ctypes.c_uint64, ctypes.c_int64, ctypes.c_int32, ctypes.POINTER(ctypes.c_uint64), ctypes.c_uint64],
    ),
    "falcon_job_paused_ns": (ctypes.c_uint64, []),
    "falcon_job_waited_ns": (ctypes.c_uint64, []),
    "falcon_job_finish": (None, []),
}
_NEWER = {  # which older hooks have not
    "falcon_job_can": (None, [ctypes.c_uint32, ctypes.c_int]),
    "falcon_job_raised": (None, [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int]),
}


class Hook:
    """The hook of this process; absent where it was not preloaded."""

    _parks = False  # what the process has declared

    def __init__(self) -> None:
        self._calls: dict[str, Any] = {}
        process = ctypes.CDLL(None)
        for name, (result, arguments) in (_SIGNATURES | _NEWER).items():
            try:
                call = getattr(process, name)
            except AttributeError:
                if name in _NEWER:
                    continue
                self._calls = {}
                return
            call.restype, call.argtypes = result, arguments
            self._calls[name] = call

    @property
    def present(self) -> bool:
        """Whether the hook is in this process."""
        return bool(self._calls)

    def mesh(self, dims: str, micro_batches: int) -> None:
        """Report the dimensions of the ranks, innermost first, and the micro-batches per iteration of this rank."""
        if self._calls:
            self._calls["falcon_job_mesh"](dims.encode(), micro_batches)

    def state(self, state_bytes: int, least: int, multiple: int, zero: tuple[int, int] = (0, 0)) -> None:
        """Report the bytes that move with this rank, the micro-batches that its replica may be given, and ZeRO."""
        if self._calls:
            self._calls["falcon_job_state"](*zero, state_bytes, 0, least, 0, multiple)

    def can(self, what: int, versions: int) -> None:
        """Declare what this process can do, and how many steps of its state it holds at a time."""
        Hook._parks = bool(what & CAN_PARK)
        if "falcon_job_can" in self._calls:
            self._calls["falcon_job_can"](what or CAN_NOTHING, versions)

    def raised(self, kind: str, where: str, text: str, of_peers: bool) -> None:
        """Report the error that this program ends with."""
        if "falcon_job_raised" in self._calls:
            texts = (s.encode(errors="replace") for s in (kind, where, text))
            self._calls["falcon_job_raised"](*texts, of_peers)

    def begin_iteration(self, i: int) -> None:
        """Mark the beginning of iteration i."""
        if self._calls:
            self._calls["falcon_job_begin_iteration"](i)

    def begin_optimizer(self, i: int) -> None:
        """Mark that the update of iteration i begins: its gradients are reduced on all ranks."""
        if self._calls:
            self._calls["falcon_job_begin_optimizer"](i)

    def end_optimizer(self, following: int) -> None:
        """Mark that the update has finished on the device; following is the next iteration."""
        if self._calls:
            self._calls["falcon_job_end_optimizer"](following)

    def poll(self, i: int) -> int:
        """Id of the newest order that this rank has prepared, 0 for none."""
        return int(self._calls["falcon_job_poll"](i)) if self._calls else 0

    def fetch(self, order: int) -> Order | None:
        """The order with this id, None when it is no longer in the mailbox."""
        out = _Order()
        if not self._calls or self._calls["falcon_job_fetch"](order, ctypes.byref(out)) != 0:
            return None
        return Order(out.id, out.epoch, out.kind, list(out.values[: min(out.n, VALUES_MAX)]))

    def ack(self, order: int, i: int, status: int) -> None:
        """Report that the voted order holds from iteration i on (status 0), or was refused by all ranks."""
        if self._calls:
            self._calls["falcon_job_ack"](order, i, status)

    def place(self, order: int, i: int, rank: int, step_ns: list[int], received: int) -> None:
        """Report that this process holds rank from iteration i on; step_ns: pause, dump, swap and restore."""
        if self._calls:
            self._calls["falcon_job_place"](order, i, rank, (ctypes.c_uint64 * 4)(*step_ns), received)

    def checkpoint(self, i: int) -> None:
        """Report that storage holds a complete checkpoint with which a restart begins at iteration i."""
        if self._calls:
            self._calls["falcon_job_checkpoint"](i)

    def suspended(self) -> bool:
        """Whether a suspension waits for this process to park, which it has declared. Any thread may ask.

        Nobody else asks the hook: an older one takes the question for the declaration.
        """
        return Hook._parks and bool(self._calls) and self._calls["falcon_job_suspended"]() != 0

    def park(
        self, status: int, step: int, checksum: int, older: tuple[int, int] = (NOTHING, 0)
    ) -> tuple[int, Rejoin | None]:
        """Wait for the agent's order; step is what this rank holds, older another one that it holds, with its checksum.

        How it went on, and the order, which is None where it can't be read, or there is none.
        """
        out, steps, sums = _Order(), _Steps(step, older[0]), _Sums(checksum, older[1])
        went = self._calls["falcon_job_park"](status, steps, sums, ctypes.byref(out))
        if went != PARK_REJOIN:
            return went, None
        return went, decode_rejoin(out.id, list(out.values[: min(out.n, VALUES_MAX)]))

    def rejoined(self, order: Rejoin, status: int, groups_ns: int, restore_ns: int, received: int) -> None:
        """Report what became of a rejoin: with status 0 this rank trains again."""
        times = _Sums(groups_ns, restore_ns)
        self._calls["falcon_job_rejoined"](order.generation, order.resume, status, times, received)

    def paused_ms(self) -> float:
        """How long this process's calls have been held so far."""
        return float(self._calls["falcon_job_paused_ns"]()) / 1e6 if self._calls else 0.0

    def waited_s(self) -> float:
        """How long this process has waited for its peers in one call; 0 where it does not, or that is not known."""
        return float(self._calls["falcon_job_waited_ns"]()) / 1e9 if self._calls else 0.0

    def finish(self) -> None:
        """Mark the end of the training."""
        if self._calls:
            self._calls["falcon_job_finish"]()


def hook_loaded() -> bool:
    """Whether Falcon's hook is in this process."""
    return Hook().present
