"""Jobs whose ranks hold different state: the training function is entered again, in the same process.

A process that leaves the function, as a peer died or as it gets another rank, keeps what its rank trains in memory.
The function is called again in new groups and makes the job again; the call that makes it (falcon_torch.fsdp) gives it
the kept state, or that of a replica. Until all ranks have theirs nothing is given up.
"""

from __future__ import annotations

import gc
import importlib
import io
import operator
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from . import _hook, _join
from ._log import Log
from ._place import BACK_S, STEPS, drain_device, partners, settle_device
from ._recover import Recovery, abort_groups, digest_of, source_of
from ._state import Kept
from ._votes import Votes

if TYPE_CHECKING:
    from ._job import Job

TENSOR = "torch.distributed.tensor"
_runner: list[Runner] = []
_resets: list[Callable[[], None]] = []  # whenever the function was left
_once: list[Callable[[], None]] = []  # when it is left the next time


class Moved(BaseException):
    """A placement was voted: raised out of the training function, which is entered again with another rank."""


class Undone(BaseException):
    """A placement did not come about: the function is entered again with the old rank."""


@dataclass
class Known:
    """What a process knows of its job, whichever rank it holds."""

    split: list[int]
    newest: int = 0  # order
    epoch: int = 0


@dataclass
class Left:
    """Why a process has left the function, and what it holds."""

    why: str
    status: int
    step: int = _hook.NOTHING
    kept: Kept | None = None
    known: Known | None = None
    older: tuple[int, Kept] | None = None  # another step that it holds, where it could not know which one counts

    def at(self, step: int) -> Kept:
        """What it holds of a step. Raise ValueError where that is nothing."""
        if self.older is not None and self.older[0] == step:
            return self.older[1]
        if self.kept is None or self.step != step:
            raise ValueError(f"this rank holds iteration {self.step}, not {step}")
        return self.kept

    def drop(self) -> None:
        """Hold nothing any more."""
        self.step, self.kept, self.older = _hook.NOTHING, None, None


def current() -> Runner | None:
    """What enters the training function that runs, where run was called."""
    return _runner[0] if _runner else None


def when_left(reset: Callable[[], None], once: bool = False) -> None:
    """Call reset whenever the training function was left: what a framework keeps for its process is made again."""
    (_once if once else _resets).append(reset)


def _forget_meshes() -> None:
    """Clear what DTensor remembers of operations: its results name the mesh of the first call, which is gone."""
    if TENSOR not in sys.modules:
        return
    with suppress(ImportError, AttributeError):  # other versions have others of them
        importlib.import_module(f"{TENSOR}.debug")._clear_sharding_prop_cache()
    redistribute: Any = sys.modules.get(f"{TENSOR}._redistribute")
    for clear in ("_gen_transform_infos.cache_clear", "clear_redistribute_planner_cache"):
        with suppress(AttributeError):
            operator.attrgetter(clear)(redistribute)()


def run(train: Callable[[], Any]) -> Any:
    """See falcon_torch.run."""
    if not _hook.Hook().present:
        return train()
    if _runner:
        raise RuntimeError(
            "falcon_torch.run is called inside falcon_torch.run; call it once, around all of the training"
        )
    if not dist.is_initialized():
        raise RuntimeError("call init_process_group before falcon_torch.run, and make all else inside the function")
    _runner.append(Runner(train))
    try:
        return _runner[0].loop()
    finally:
        _runner.clear()


class Runner:
    """Enters the training function as often as it takes."""

    def __init__(self, train: Callable[[], Any]) -> None:
        self._train, self.log = train, Log(dist.get_rank())
        self.hook, self.recovery = _hook.Hook(), Recovery(self.log)
        if _join.joins():  # the others have declared it
            self.hook.can(_hook.CAN_PARK | _hook.CAN_PLACE, 1)
        self.votes: Votes | None = None  # of the groups that are there
        self.job: Job | None = None
        self.task: Rejoining | Moving | None = None  # for the call that makes the job

    def loop(self) -> Any:
        """Return what the function returns in the end."""
        done = Left("this process takes a dead one's place", _hook.PARK_JOIN) if _join.joins() else self._enter()
        while isinstance(done, (Left, Moved)):
            done = self._rejoin(done) if isinstance(done, Left) else self._move(done)
        return done

    def _enter(self) -> Any:
        """One call of the function; Left where it is to be called again."""
        try:
            return self._train()
        except Moved as moved:
            return moved
        except BaseException as error:  # whatever a peer's death has caused
            return self._leave(error)

    def _leave(self, error: BaseException) -> Left:
        """Keep what this rank holds. Raise the error again where no peer's death has caused it."""
        self.recovery.arm(False)
        task, job, self.task = self.task, self.job, None
        if task is not None and isinstance(error, Exception):
            return task.failed(self.recovery.forget(error, error.__traceback__))
        if job is None or not self.recovery.caused_by_peer(error):
            raise error
        left = self._keep(job, "")
        left.why = self.recovery.forget(error, error.__traceback__)
        return left

    def _keep(self, job: Job, why: str) -> Left:
        """Take out of the job what its rank trains."""
        step = job.leave()
        settle_device()
        kept = self.recovery.state.keep() if step >= 0 else None
        left = Left(why, _hook.PARK_SUSPENDED, step, kept, job.known, job.older)
        if step < 0 and left.older is not None:
            left.step, left.kept, left.older = *left.older, None
        self.clear()
        return left

    def clear(self) -> None:
        """Let go of what the function has made."""
        self.recovery.train(None)
        self.job = self.votes = None
        _forget_meshes()
        resets = _resets + _once
        _once.clear()
        for reset in resets:
            reset()

    def _rejoin(self, left: Left) -> Any:
        """Park, make the groups of the new generation, and enter the function again."""
        self.recovery.leave_groups()
        older = (left.older[0], left.older[1].total) if left.older is not None else (_hook.NOTHING, 0)
        order = self.recovery.park(left.why, left.status, left.step, left.kept.total if left.kept else 0, older)
        if order is None:
            return replace(left, why="an order that can't be followed", status=_hook.FAILED_ORDER)
        task = Rejoining(self, order, left)
        try:
            self.recovery.make_groups(order.generation)
        except Exception as error:  # whatever it is, the engine decides how it goes on
            return task.failed(self.recovery.forget(error, error.__traceback__))
        task.groups_ns = time.monotonic_ns() - task.began
        self.votes, self.task = self.recovery.votes, task
        return self._enter()

    def _move(self, moved: Moved) -> Any:
        """Carry a voted placement out: in groups with the new ranks, or back in ones with the old."""
        order, job = moved.args[0], self.job
        assert job is not None
        votes = job.votes
        assert votes is not None
        self.recovery.forget(moved, moved.__traceback__)
        move = Moving(self, order, votes, job.iteration)
        drain_device()
        move.mark("pause")
        left = self._dump(move, job)
        del job
        if left is None:
            raise RuntimeError(f"placement {order.id}: the state of this rank can't be kept")
        move.left = left
        done = self._try_to_move(move)
        return self._go_back(move) if isinstance(done, Undone) else done

    def _dump(self, move: Moving, job: Job) -> Left | None:
        left = self._keep(job, "a placement")
        if left.kept is not None:
            left.kept = left.kept.on_host()  # two copies of the state may not fit the device
        move.mark("dump")
        return left

    def _try_to_move(self, move: Moving) -> Any:
        """Enter the function with the new rank; Undone where some rank failed."""
        self.task = move
        try:
            if not move.votes.passes(True):
                return Undone()
            dist.destroy_process_group()
            gc.collect()  # the model that was left, before the next one is there
            self.votes = self.recovery.open_groups(self.recovery.store, move.name, move.rank)
            return self._train()
        except Undone as undone:
            self.recovery.forget(undone, undone.__traceback__)
        except Moved as moved:  # the next one
            return moved
        except BaseException as error:
            if self.task is None or not isinstance(error, Exception):  # it trained already
                return self._leave(error)
            self.task = None
            move.fail(self.recovery.forget(error, error.__traceback__))
        return Undone()

    def _go_back(self, move: Moving) -> Any:
        """Be what this process was, in new groups."""
        self.recovery.unwatch(self.votes)
        self.clear()
        if move.votes.lost:
            self.recovery.await_suspension()
        if self.hook.suspended():
            return move.left
        abort_groups()
        gc.collect()
        try:
            self.votes = self.recovery.open_groups(self.recovery.store, move.name + "/back", move.was, BACK_S)
        except Exception as error:  # whatever it is, only the engine can help
            return move.failed(self.recovery.forget(error, error.__traceback__))
        move.back, self.task = True, move
        return self._enter()


class Rejoining:
    """A rejoin on its way, on one rank: the call that makes the job ends it."""

    def __init__(self, runner: Runner, order: _hook.Rejoin, left: Left) -> None:
        self._runner, self._order, self._left = runner, order, left
        self._source = source_of(order, runner.recovery.rank)
        self.began, self.groups_ns = time.monotonic_ns(), 0
        self._status, self._replaced = _hook.FAILED_GROUPS, left.step < 0

    def failed(self, why: str) -> Left:
        """Tell of the failure; what is held still."""
        left, runner = self._left, self._runner
        Recovery.unwatch(runner.votes)  # the others need not wait for this rank
        runner.clear()
        status = _hook.FAILED_GROUPS if runner.hook.suspended() else self._status
        self._report(status, why, 0)
        return replace(left, why=why, status=status)

    def _report(self, status: int, why: str, received: int) -> None:
        times = (self.groups_ns, time.monotonic_ns() - self.began - self.groups_ns)
        self._runner.recovery.report(self._order, status, why, self._source, times, received, self._replaced)

    def finish(self, job: Job, votes: Votes) -> None:
        """Bring the resumed iteration's state into the job that was made. Raise where that fails."""
        order, left = self._order, self._left
        self._status = _hook.FAILED_STORAGE if self._source == _hook.FROM_STORAGE else _hook.FAILED_STATE
        received = self._restore(job, votes)
        self._status = _hook.FAILED_STATE
        known = left.known or Known(job.split)
        split = order.split or known.split
        if not votes.alike(digest_of(split)):
            raise ValueError("ranks know different splits of the batch")
        if not votes.alike(job.recovered.state.checksum(), *job.shard):
            raise ValueError("replicas differ after the restore")
        job.recovered.state.settle(lambda value: votes.alike(value, *job.shard))
        epoch = -votes.least([-known.epoch])[0]
        job.go_on(order.resume, Known(split, known.newest, epoch))
        left.kept = left.older = None
        self._report(_hook.REJOINED, "", received)

    def _restore(self, job: Job, votes: Votes) -> int:
        """Have the state of the resumed iteration; how many bytes came from another rank."""
        order, left, rank = self._order, self._left, self._runner.recovery.rank
        state = job.recovered.state
        if self._source == _hook.FROM_STORAGE:
            if job.storage.can_load:
                left.drop()
            job.storage.read(votes, order.resume)
            return 0
        if self._source != rank:
            left.drop()
            return state.receive(self._source)
        state.install(left.at(order.resume))
        state.save()
        for to in sorted(t for t, s in order.moves.items() if s == rank):
            state.send(to)
        return 0


class Moving:
    """A placement on its way, on one rank: the call that makes the job ends it."""

    def __init__(self, runner: Runner, order: _hook.Order, votes: Votes, i: int) -> None:
        self._runner, self.order, self.votes, self._i = runner, order, votes, i
        self.was = runner.recovery.rank
        self.rank, self._gives_to = partners(order.values, self.was, runner.recovery.size)
        self.name, self.back = f"falcon/{order.epoch}.{order.id}", False
        self.left = Left("a placement", _hook.PARK_SUSPENDED)
        self._steps, self._since, self._why, self._together = [0, 0, 0, 0], time.monotonic_ns(), "", False

    def mark(self, step: str) -> None:
        """Count the time since the last mark to a step."""
        now = time.monotonic_ns()
        self._steps[STEPS.index(step)] += now - self._since
        self._since = now

    def fail(self, why: str) -> None:
        """Tell the others that this rank failed: they vote on it where they make their job."""
        self._why = why
        if self._together:
            self.votes.leave()
        self.votes.passes(False)

    def failed(self, why: str) -> Left:
        """The way back failed too: this rank holds what it held, and waits to be recovered."""
        self._runner.clear()
        if not self._runner.recovery.await_suspension():
            raise RuntimeError(f"placement {self.order.id} could not be undone: {why}")
        self.left.why = why
        return self.left

    def finish(self, job: Job, votes: Votes) -> None:
        """Bring the state into the job that was made. Raise Undone where some rank failed."""
        kept = self.left.kept
        assert kept is not None
        assert self.left.known is not None
        if self.back:
            job.recovered.state.install(kept)
            job.recovered.state.settle(lambda value: votes.alike(value, *job.shard))
            self._end(job, self.was, _hook.ROLLED_BACK, 0)
            return
        self.mark("swap")
        if not self.votes.passes(True):
            raise Undone
        self._together = True
        came = self._trade(kept)
        self._together = False
        if not self.votes.passes(self._fits(job, came)):
            raise Undone
        self._together = True
        job.recovered.state.settle(lambda value: self.votes.alike(value, *job.shard))
        self._together = False
        if not self.votes.decide(self.name, True):
            raise Undone
        self.mark("restore")
        received = sum(t.numel() * t.element_size() for t in came.tensors) if self.rank != self.was else 0
        self._end(job, self.rank, _hook.APPLIED, received)

    def _fits(self, job: Job, came: Kept) -> bool:
        try:
            job.recovered.state.install(came)
        except Exception as error:  # whatever it is, all ranks go back
            self._why = self._runner.recovery.forget(error, error.__traceback__)
            return False
        if job.recovered.state.checksum() == came.total:
            return True
        self._why = "what came is not what was sent"
        return False

    def _trade(self, kept: Kept) -> Kept:
        """Give this rank's state to the process that gets it, and get that of the new rank."""
        head = io.BytesIO()
        shapes = [(list(t.shape), t.dtype) for t in kept.tensors]
        torch.save({"head": kept.head, "total": kept.total, "shapes": shapes}, head)
        told = torch.load(io.BytesIO(self._give(head.getvalue())), weights_only=True)
        rounds = -self.votes.least([-len(kept.tensors)])[0]
        tensors = []
        for k in range(rounds):
            t = kept.tensors[k].contiguous().reshape(-1).view(torch.uint8) if k < len(kept.tensors) else None
            came = self._give(bytes(t.numpy().data) if t is not None else b"")
            if k < len(told["shapes"]):
                shape, dtype = told["shapes"][k]
                made = torch.frombuffer(bytearray(came), dtype=dtype) if came else torch.empty(0, dtype=dtype)
                tensors.append(made.reshape(shape))
        return Kept(told["head"], tensors, told["total"])

    def _give(self, data: bytes) -> bytes:
        return self.votes.trade(data, self._gives_to, self.rank)

    def _end(self, job: Job, rank: int, status: int, received: int) -> None:
        """The job goes on; nothing is left here that could fail."""
        runner, order = self._runner, self.order
        runner.recovery.rank = job.log.rank = runner.log.rank = rank
        assert self.left.known is not None
        job.go_on(self._i, self.left.known)
        self.left.kept = None
        self.votes.leave()
        if status == _hook.APPLIED:
            runner.hook.place(order.id, self._i, rank, self._steps, received)
        runner.hook.ack(order.id, self._i, status)
        job.log.write(order=order.id, kind="placement", from_iteration=self._i, status=status, why=self._why[:400])
