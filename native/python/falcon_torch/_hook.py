"""The functions of libfalcon_hook.so (native/include/falcon_job.h), by ctypes."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

VALUES_MAX = 1024  # FALCON_JOB_VALUES_MAX

# enum falcon_order_kind
MICRO_BATCHES, PLACEMENT, CHECKPOINT, STOP, REJOIN = 1, 2, 3, 4, 5

# status of falcon_job_ack: 0 = applied, others as the Go trainer's adapter has them
APPLIED, REFUSED_STALE, REFUSED_VALUES, REFUSED_KIND, REFUSED_GONE = range(5)


class _Order(ctypes.Structure):
    _fields_ = [
        ("id", ctypes.c_uint64),
        ("epoch", ctypes.c_uint64),
        ("kind", ctypes.c_uint32),
        ("n", ctypes.c_uint32),
        ("values", ctypes.c_int32 * VALUES_MAX),
    ]


@dataclass(frozen=True)
class Order:
    """One order of the agent."""

    id: int
    epoch: int
    kind: int
    values: list[int] = field(default_factory=list)


_SIGNATURES = {
    "falcon_job_mesh": (None, [ctypes.c_char_p, ctypes.c_int]),
    "falcon_job_begin_iteration": (None, [ctypes.c_int64]),
    "falcon_job_begin_optimizer": (None, [ctypes.c_int64]),
    "falcon_job_end_optimizer": (None, [ctypes.c_int64]),
    "falcon_job_poll": (ctypes.c_uint64, [ctypes.c_int64]),
    "falcon_job_fetch": (ctypes.c_int, [ctypes.c_uint64, ctypes.POINTER(_Order)]),
    "falcon_job_ack": (None, [ctypes.c_uint64, ctypes.c_int64, ctypes.c_int32]),
    "falcon_job_state": (None, [ctypes.c_int, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64] + [ctypes.c_int] * 3),
    "falcon_job_paused_ns": (ctypes.c_uint64, []),
    "falcon_job_finish": (None, []),
}


class Hook:
    """The hook of this process; absent where it was not preloaded."""

    def __init__(self) -> None:
        self._calls: dict[str, Any] = {}
        process = ctypes.CDLL(None)
        for name, (result, arguments) in _SIGNATURES.items():
            try:
                call = getattr(process, name)
            except AttributeError:
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

    def state(self, state_bytes: int, least: int, multiple: int) -> None:
        """Report the bytes that move with this rank, and the micro-batches that its replica may be given."""
        if self._calls:
            self._calls["falcon_job_state"](0, 0, state_bytes, 0, least, 0, multiple)

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

    def paused_ms(self) -> float:
        """How long this process's calls have been held so far."""
        return float(self._calls["falcon_job_paused_ns"]()) / 1e6 if self._calls else 0.0

    def finish(self) -> None:
        """Mark the end of the training."""
        if self._calls:
            self._calls["falcon_job_finish"]()


def hook_loaded() -> bool:
    """Whether Falcon's hook is in this process."""
    return Hook().present
