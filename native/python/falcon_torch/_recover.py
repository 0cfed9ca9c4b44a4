"""Staying in the job when a peer dies: leave the iteration, park, make new groups, restore, go on."""

from __future__ import annotations

import _thread
import gc
import hashlib
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from types import FrameType, TracebackType
from typing import Any, ParamSpec, TypeVar

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from . import _environment, _hook, _join, _launched, _limit, _raised, _votes
from ._log import Log
from ._state import State
from ._storage import Storage

P = ParamSpec("P")
R = TypeVar("R")
LOOK_S = 0.05  # between two looks for a suspension
AGAIN_S = 0.05  # between two tries to leave user code that was elsewhere at the first
ALIVE_S = 10.0  # after an error that a dead peer may have caused, for the suspension to come
SILENT_S = 60.0  # the same where communication has failed: a node that fell silent is given up after some beats
MEET_S = 60.0  # for the ranks to meet in a new generation
PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
ENTRY = PACKAGE + "_run.py"  # what it calls is user code again


_through: set[Any] = set()  # code of this package that a framework's loop is called from


def through(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a function that calls a framework's own, and that an exception may leave there at any point."""
    _through.add(function.__code__)
    return function


class Suspended(BaseException):
    """The job is suspended: raised in the main thread, inside an iteration."""


class _Watcher:
    """Raises Suspended in the main thread while it is armed and the job is suspended.

    The exception comes out of a signal's handler, without a signal being sent: so it is known at
    which frame it would be raised, and never is inside this package.
    """

    def __init__(self, hook: _hook.Hook, limit: _limit.Limit) -> None:
        self._hook, self._limit = hook, limit
        self.armed = False
        self._signal = self._free_signal()
        signal.signal(self._signal, self._raise)
        threading.Thread(target=self._watch, name="falcon-suspend", daemon=True).start()

    @staticmethod
    def _free_signal() -> Any:
        for number in range(signal.SIGRTMAX - 1, signal.SIGRTMIN, -1):
            if signal.getsignal(number) in (signal.SIG_DFL, None):
                return number
        raise RuntimeError("every real-time signal has a handler; free one")

    def _watch(self) -> None:
        while True:
            self._limit.look()
            suspended = self.armed and self._hook.suspended()
            if suspended:
                _thread.interrupt_main(self._signal)
            time.sleep(AGAIN_S if suspended else LOOK_S)

    def _raise(self, _: int, frame: FrameType | None) -> None:
        outside = False
        while frame is not None:
            name = frame.f_code.co_filename
            if outside and name == ENTRY:
                break
            if name.startswith(PACKAGE) and not (outside and frame.f_code in _through):
                return  # it looks by itself, or ends soon
            outside, frame = True, frame.f_back
        if self.armed and self._hook.suspended():
            self.armed = False
            raise Suspended


class Recovery:
    """Parking and rejoining of one rank."""

    def __init__(
        self,
        log: Log,
        state: State | None = None,
        storage: Storage | None = None,
        regroup: Callable[[_votes.Votes | None], None] | None = None,
    ) -> None:
        if "nccl" in str(dist.get_backend()):
            _environment.check()
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("make the job in the main thread: only that can leave an iteration whose peer died")
        self._state: State | None = state
        self._storage, self._regroup = storage, regroup
        self._hook, self._log = _hook.Hook(), log
        self.votes: _votes.Votes | None = None
        self.epoch = 0  # newest that any rank has heard of
        self._tainted = False  # the last rejoin failed with part of another state in place
        world = c10d._get_default_group()
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        (self._backend, self.store), self._device = c10d._world.pg_map[world], world.bound_device_id
        self._timeout = _join.asked_timeout() or _limit.limit_of(world)
        self._watcher = _Watcher(self._hook, _limit.Limit(self._hook, log))

    @property
    def state(self) -> State:
        """What this rank trains."""
        assert self._state is not None
        return self._state

    def train(self, state: State | None) -> None:
        """Have another state: the job is made again."""
        self._state = state

    def regroup(self, votes: _votes.Votes | None) -> None:
        """Make again what the job has on the default group; with votes also what a process that begins has not."""
        if self._regroup is not None:
            self._regroup(votes)

    def arm(self, on: bool) -> None:
        """Whether the main thread may be interrupted: it is in user code that can be run again."""
        self._watcher.armed = on

    def watch_votes(self, votes: _votes.Votes | None) -> _votes.Votes | None:
        """Have a wait for a vote end when the job is suspended."""
        if votes is not None:
            votes.cut_off = self._hook.suspended
        return votes

    @staticmethod
    def unwatch(votes: _votes.Votes | None) -> None:
        """Let go of votes that are not needed."""
        if votes is not None:
            votes.leave()

    def check(self) -> None:
        """Leave the iteration where the job is suspended."""
        if self._hook.suspended():
            raise Suspended

    def caused_by_peer(self, error: BaseException) -> bool:
        """Whether an exception of an iteration came of a peer's death."""
        if isinstance(error, Suspended):
            return True
        if not isinstance(error, Exception):
            return False
        if self._hook.suspended():
            return True
        if not isinstance(error, RuntimeError):
            return False
        return self.await_suspension(SILENT_S if communication_failed(error) else ALIVE_S)

    def await_suspension(self, within_s: float = ALIVE_S) -> bool:
        """Give the engine time to tell of a death that is known here already; whether the job is suspended."""
        until = time.monotonic() + within_s
        while not self._hook.suspended() and time.monotonic() < until:
            time.sleep(LOOK_S)
        return self._hook.suspended()

    def forget(self, error: BaseException, trace: TracebackType | None) -> str:
        """Let go of what the frames of an iteration that was left hold: tensors, works, groups. What it was."""
        why = "".join(traceback.format_exception_only(type(error), error)).strip()
        while trace is not None and trace.tb_frame is not None:
            with suppress(RuntimeError):  # still running
                trace.tb_frame.clear()
            trace = trace.tb_next
        error.__traceback__ = None
        error.__context__ = None
        return why

    def rejoin(self, why: str, status: int, step: int, split: list[int]) -> _hook.Rejoin:
        """Park, and come back with the job; step is what this rank holds. It ends the process where the job ended."""
        self.arm(False)
        while True:
            self.leave_groups()
            order = self.park(why, status, step, self.state.checksum() if step >= 0 else 0)
            if order is None:
                status, step, why = _hook.FAILED_ORDER, step, "an order that can't be followed"
                continue
            status, why = self._obey(order, step, split)
            if status == _hook.REJOINED:
                return order
            if self._tainted:
                step = _hook.NOTHING  # part of another step may be there

    # ---- out ----

    def leave_groups(self) -> None:
        """Give all groups up, and what the device has to do for them."""
        if self._state is not None:
            self._state.drop_gradients()
        if dist.is_initialized():
            abort_groups()
        gc.collect()
        for _ in range(2):  # an emulated device reports once that it was given up
            with suppress(RuntimeError):
                if torch.cuda.is_initialized():
                    torch.cuda.synchronize()

    def park(
        self, why: str, status: int, step: int, total: int, older: tuple[int, int] = (_hook.NOTHING, 0)
    ) -> _hook.Rejoin | None:
        """Wait for the agent's order; None where it can't be followed. It ends the process where the job ended.

        older is another step that this rank holds, with its checksum.
        """
        self._log.write(
            park=status,
            next_iteration=step,
            sum=f"{total:016x}",
            older=older[0],
            why=why[:200],
            unix_ns=time.time_ns(),
        )
        try:
            went, order = self._hook.park(status, step, total, older)
        except ValueError as error:
            self._log.write(park_error=str(error))
            return None
        if went == _hook.PARK_REJOIN:
            return order
        if went == _hook.PARK_STOP:
            self._log.write(end="stopped", next_iteration=step)
            self._hook.finish()
            raise SystemExit(0)
        raise RuntimeError(f"parked ({why}), and no agent came")

    # ---- in ----

    def _obey(self, order: _hook.Rejoin, step: int, split: list[int]) -> tuple[int, str]:
        """Carry a rejoin out; the status with which it failed and why, or REJOINED."""
        began, groups, received, self._tainted = time.monotonic_ns(), 0, 0, False
        status, why = _hook.FAILED_GROUPS, ""
        source = source_of(order, self.rank)
        try:
            self.make_groups(order.generation)
            groups = time.monotonic_ns() - began
            status = _hook.FAILED_STORAGE if source == _hook.FROM_STORAGE else _hook.FAILED_STATE
            received = self._exchange(order, source, step)
            status = _hook.FAILED_STATE
            self.epoch = self._compare(self.state.checksum(), order.split or split, self.epoch)
            status = _hook.REJOINED
        except Exception as error:  # whatever it is, the engine decides how it goes on
            if self._hook.suspended():
                status = _hook.FAILED_GROUPS
            why = self.forget(error, error.__traceback__)
            self.unwatch(self.votes)  # the others need not wait for this rank
        times = (groups, time.monotonic_ns() - began - groups)
        self.report(order, status, why, source, times, received, step < 0)
        return status, why

    def report(
        self,
        order: _hook.Rejoin,
        status: int,
        why: str,
        source: int,
        times: tuple[int, int],
        received: int,
        replaced: bool,
    ) -> None:
        """Tell the agent and the log what became of a rejoin; times are those of groups and of the state, in ns."""
        self._log.write(
            rejoin=order.generation,
            resume_iteration=order.resume,
            status=status,
            replaced=replaced,
            bytes=received,
            groups_ms=times[0] / 1e6,
            restore_ms=times[1] / 1e6,
            why=why[:400],
            unix_ns=time.time_ns(),
            **{"from": source},
        )
        self._hook.rejoined(order, status, *times, received)

    def make_groups(self, generation: int) -> None:
        """Make the groups of a generation."""
        _join.restore_backends()
        within = timedelta(seconds=MEET_S)
        os.environ["TORCHELASTIC_RESTART_COUNT"] = str(
            generation
        )  # PyTorch 2.4's keys, of which a store refuses old ones
        self.store, _, _ = next(dist.rendezvous("env://", self.rank, self.size, timeout=within))
        _launched.say(self.store, generation)
        self.votes = self.open_groups(self.store, f"falcon/{generation}", self.rank)
        self.regroup(self.votes)

    def open_groups(self, store: dist.Store, name: str, rank: int, within_s: float = 0) -> _votes.Votes:
        """Make the default group and the votes' group, with this rank; names are used once."""
        os.environ["RANK"] = str(rank)
        within = timedelta(seconds=within_s or MEET_S)
        store.set_timeout(within)
        c10d._world.group_count = 0  # a failed try has counted, and the count is in the group's name
        waits = "gloo" in str(self._backend)  # it takes one time for meeting and for every call
        dist.init_process_group(
            self._backend,
            store=dist.PrefixStore(name, store),
            rank=rank,
            world_size=self.size,
            timeout=within if waits else self._timeout,
            device_id=self._device,
        )
        if waits:
            _limit.set_limit(self._timeout)
        votes = self.watch_votes(_votes.agree(True, cut_off=self._hook.suspended))
        if votes is None:
            raise RuntimeError("a rank has no hook")
        if self._storage is not None:
            self._storage.agree(votes)
        store.set_timeout(self._timeout)
        return votes

    def _exchange(self, order: _hook.Rejoin, source: int, step: int) -> int:
        """Make this rank's state that of the resumed iteration; how many bytes came from another rank."""
        if source == _hook.FROM_STORAGE:
            assert self.votes is not None
            assert self._storage is not None
            self._tainted = self._storage.can_load
            self._storage.read(self.votes, order.resume)
            return 0
        if source == self.rank:
            if step != order.resume:
                raise ValueError(f"rank {self.rank} holds iteration {step}, not {order.resume}")
            self.state.rewind()
            for to in sorted(t for t, s in order.moves.items() if s == self.rank):
                self.state.send(to)
            return 0
        self._tainted = True
        return self.state.receive(source)

    def _compare(self, total: int, split: list[int], epoch: int) -> int:
        """Make sure that all ranks hold the same bits and the same split; the newest epoch that any has heard of."""
        digest = digest_of(split)
        signed = total - (1 << 64) if total >> 63 else total
        words = torch.tensor([signed, ~signed, digest, ~digest, ~epoch]).to(self.state.device)
        dist.all_reduce(words, op=dist.ReduceOp.MIN)
        least, most, first, last, newest = words.tolist()
        if least != ~most:
            raise ValueError("replicas differ after the restore")
        if first != ~last:
            raise ValueError("ranks know different splits of the batch")
        return int(~newest)


def digest_of(split: list[int]) -> int:
    """A checksum of a split."""
    return int.from_bytes(hashlib.sha256(repr(split).encode()).digest()[:7], "big")


def source_of(order: _hook.Rejoin, rank: int) -> int:
    """From whom a rank has its state. Where one needs storage all go back to it: a load may be one of all ranks."""
    if order.from_checkpoint or _hook.FROM_STORAGE in order.moves.values():
        return _hook.FROM_STORAGE
    return order.moves.get(rank, rank)


def communication_failed(error: BaseException) -> bool:
    """Whether an error is one of communication, or a group has met one that explains it."""
    return _raised.of_peers(type(error), str(error)) or group_failed()


def group_failed() -> bool:
    """Whether a group has met an error of communication."""
    for group in list(c10d._world.pg_map):
        with suppress(Exception):  # before 2.6 a group can't be asked
            if str(group._get_backend(torch.device("cuda")).get_error()).endswith(("REMOTE_ERROR", "COMM_ERROR")):
                return True
    return False


def abort_groups() -> None:
    """End all process groups at once, and forget them, without waiting for a peer."""
    for group in list(c10d._world.pg_map):
        _keep_gloo(group)
    with suppress(Exception):
        c10d._abort_process_group(c10d.GroupMember.WORLD)  # by its name: 2.6 takes None for one group of many
    if dist.is_initialized():
        with suppress(Exception):
            dist.destroy_process_group()


_kept: list[Any] = []


def keep(what: Any) -> None:
    """Let something of gloo's live as long as the process: its end would wait for what was never received."""
    _kept.append(what)


def _keep_gloo(group: Any) -> None:
    """Gloo can't end an operation whose peer is silent, and its end would wait for it: it is never ended.

    A survivor that waits for another one leaves its operation by the group's timeout.
    """
    with suppress(RuntimeError):
        backend = group._get_backend(torch.device("cpu"))
        if "Gloo" in type(backend).__name__:
            keep((group, backend))
