"""One rank of a training job under Falcon."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any

import torch

from . import _hook, _join, _run, _stack, _votes
from ._barrier import Barrier
from ._data import Deal, Loader
from ._log import Log
from ._mesh import Layout, place
from ._place import STEPS, Placement, is_permutation
from ._recover import Recovery, Suspended
from ._state import Kept, State
from ._storage import Load, Save, Storage
from ._zero import WHOLE, Zero, of_torch, parts_of

KINDS = {
    _hook.MICRO_BATCHES: "microbatches",
    _hook.PLACEMENT: "placement",
    _hook.CHECKPOINT: "checkpoint",
    _hook.STOP: "stop",
}


class Job:
    """One rank of a training job. Made by falcon_torch.ddp and its like."""

    _whole = False  # whether loaders give one batch per iteration

    def __init__(
        self,
        layout: Layout,
        micro_batches: int,
        *,
        parameters: Sequence[torch.Tensor],
        begin: int = 0,
        accumulate: Callable[[], AbstractContextManager[Any]] = nullcontext,
        least: int = 1,
        multiple: int = 1,
        save: Save | None = None,
        load: Load | None = None,
        zero: Zero = WHOLE,
    ) -> None:
        if micro_batches < least or micro_batches % multiple != 0:
            raise ValueError(
                f"micro_batches is {micro_batches}; it must be at least {least}"
                + (f" and a multiple of {multiple}" if multiple > 1 else "")
            )
        self._hook, self._layout, self._accumulate = _hook.Hook(), layout, accumulate
        self._least, self._multiple, self._zero = least, multiple, zero
        self._split = [micro_batches] * layout.replicas
        self._total = micro_batches * layout.replicas
        self._next, self._newest, self._epoch = begin, 0, 0
        self._open, self._end_word = False, ""
        runner = _run.current()
        self.log = Log(torch.distributed.get_rank()) if runner is None else runner.log
        self.storage = Storage(self._hook, self.log, save, load)
        self._began, self._paused = 0.0, 0.0
        self._has_device = torch.cuda.is_available()
        self._recovery: Recovery | None = None
        self._inside, self._updating = False, False
        self._runner: _run.Runner | None = None
        self._fresh = False  # what was saved must be restored once more, as the script has drawn numbers since
        self._declared = False
        self._barrier: Barrier | None = None
        self.older: tuple[int, Kept] | None = None  # what this rank held before an update that others may not take
        self._votes = self._meet()
        if self._votes is not None:
            self.storage.agree(self._votes)
            if load is not None and begin > 0:
                self._hook.checkpoint(begin)
        self._state_bytes = 3 * sum(p.numel() * p.element_size() for p in parameters)
        if self.under_falcon:
            _stack.start()
            self._hook.mesh(layout.text, micro_batches)
            self._hook.state(self._state_bytes, least, multiple, zero)

    def _meet(self) -> _votes.Votes | None:
        """The votes of all ranks; those of a process that enters its training function again are there."""
        runner = _run.current()
        if runner is not None and runner.votes is not None:
            return runner.votes
        return None if _join.joins() else _votes.agree(self._hook.present)

    def mark_updates(self, *optimizers: torch.optim.Optimizer) -> None:
        """Mark the steps of the optimizers, which are taken in this order, as the update of an iteration."""
        for optimizer in optimizers:
            zero = of_torch(optimizer, self._layout)
            if zero != WHOLE:
                self._zero = zero
                self._hook.state(self._state_bytes, self._least, self._multiple, zero)
        optimizers[0].register_step_pre_hook(self._before_update)
        optimizers[-1].register_step_post_hook(self._after_update)

    @property
    def under_falcon(self) -> bool:
        """Whether every rank has the hook, so that Falcon can order anything."""
        return self._votes is not None or self._recovery is not None or _join.joins()

    def recover_by(self, recovery: Recovery) -> None:
        """Survive the death of peers; a process that takes a dead one's place waits here for the others.

        Not where replicas hold other parts of the optimizer than this rank: there is nobody to get a part back from.
        """
        if self._zero != WHOLE:
            return
        self._recovery = recovery
        self._declare()
        recovery.watch_votes(self._votes)
        if _join.joins():
            self._rejoin("this process takes a dead one's place", _hook.PARK_JOIN, _hook.NOTHING)

    def recover_by_entering(self, state: State, has_parts: bool = False) -> None:
        """Inside falcon_torch.run: survive the death of peers, and take another rank over, by another call of it.

        has_parts: the state has this rank's part of an optimizer that is spread over replicas.
        """
        runner = _run.current()
        if runner is None or self._votes is None or not (has_parts or self._zero == WHOLE):
            return
        self._recovery, self._runner = runner.recovery, runner
        runner.recovery.train(state)
        runner.recovery.watch_votes(self._votes)
        runner.votes, runner.job = self._votes, self
        if self.shard[1] > 1:  # else any rank's state is that of the whole job
            self._barrier = Barrier(state.device, self._hook.suspended)
        if runner.task is not None:
            runner.task.finish(self, self._votes)
            runner.task = None
        self._declare()

    def _declare(self) -> None:
        """Say what this process can do: what it has not said is not ordered of it."""
        can = 0
        if self._recovery is not None:
            can |= _hook.CAN_PARK | _hook.CAN_PLACE
        if self._votes is not None and self._can_split:
            can |= _hook.CAN_SPLIT
        if self._votes is not None and self.storage.can_save:
            can |= _hook.CAN_CHECKPOINT
        self._hook.can(can, 1)
        self._declared = True

    @property
    def _can_split(self) -> bool:
        """Whether micro-batches can be moved between replicas."""
        return self._layout.replicas > 1

    @property
    def recovered(self) -> Recovery:
        """What recovers this rank."""
        assert self._recovery is not None
        return self._recovery

    @property
    def votes(self) -> _votes.Votes | None:
        """The votes of all ranks, while there are any."""
        return self._votes

    @property
    def shard(self) -> tuple[int, int]:
        """Whose state is the same as this rank's: the number of its shard, and of how many."""
        parts = parts_of(self._zero, self._layout)
        return self._layout.shard * parts + self._layout.replica % parts, self._layout.shards * parts

    @property
    def zero(self) -> Zero:
        """How the optimizer is spread over replicas, as it was declared."""
        return self._zero

    @property
    def known(self) -> _run.Known:
        """What a process takes along when it leaves the training function."""
        return _run.Known(list(self._split), self._newest, self._epoch)

    def leave(self) -> int:
        """Leave the training function; the iteration that this rank's state begins with."""
        step = self._held()
        if self._votes is not None and self._recovery is not None and self._hook.suspended():
            self._votes.leave()
        return step

    def go_on(self, resume: int, known: _run.Known) -> None:
        """Begin where the process left, or its peers are."""
        self._split, self._newest, self._epoch = list(known.split), known.newest, known.epoch
        self._next, self._end_word, self._fresh = resume, "", True
        self.recovered.state.save()
        self._paused = self._hook.paused_ms()
        self._hook.mesh(self._layout.text, self._split[self._layout.replica])

    @property
    def split(self) -> list[int]:
        """Micro-batches per iteration of each replica; their sum never changes."""
        return list(self._split)

    @property
    def iteration(self) -> int:
        """The iteration that runs, or that is begun next."""
        return self._next

    @property
    def gradient_scale(self) -> float:
        """The factor of each micro-batch's mean loss.

        Frameworks average gradients over replicas: with this factor each micro-batch of the global
        batch weighs the same, whichever replica ran it.
        """
        return self._layout.replicas / self._total

    def next_iteration(self, until: int) -> bool:
        """Begin the next iteration; False when training is over, by count or by order."""
        _join.end_where_alone()
        if not self._declared:
            self._declare()
        if self._runner is not None:
            self.recovered.arm(False)
            self._inside = False
        if self._open:  # no optimizer step: a GradScaler has skipped it
            self._await_all()
            self._close_iteration()
        while self._votes is not None and not self._vote_or_rejoin(self._votes):
            pass
        if self._end_word or self._next >= until:
            self._end()
            return False
        if self._recovery is not None:
            if self._fresh:
                self._recovery.state.rewind()
                self._fresh = False
            self._recovery.state.save()
        self._hook.begin_iteration(self._next)
        self._began = self._began or time.monotonic()
        self._open = True
        if self._runner is not None:
            self._inside = True
            self.recovered.arm(True)
        return True

    def attempt(self) -> Job:
        """One attempt at an iteration, for `with`: left when a peer dies, and made again by the loop around it.

        What follows the optimizer's step in it must not communicate.
        """
        return self

    def __enter__(self) -> Job:
        if self._recovery is not None:
            self._inside = True
            self._recovery.arm(True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._recovery is None or self._runner is not None:
            return False
        self._recovery.arm(False)
        if error is None or not self._recovery.caused_by_peer(error):
            self._inside = False
            return False
        self._rejoin(self._recovery.forget(error, trace), _hook.PARK_SUSPENDED, self._held())
        return True

    def _vote_or_rejoin(self, votes: _votes.Votes) -> bool:
        """Vote; false where a peer has died and this rank has rejoined since."""
        try:
            if self._recovery is not None:
                self._recovery.check()
            self._vote(votes, self._next)
        except (RuntimeError, Suspended) as error:
            if self._recovery is None or self._runner is not None or not self._recovery.caused_by_peer(error):
                raise
            self._rejoin(self._recovery.forget(error, error.__traceback__), _hook.PARK_SUSPENDED, self._held())
            return False
        return True

    def _held(self) -> int:
        """The iteration that this rank's state begins with; none in the middle of an update."""
        assert self._recovery is not None
        half_done = self._inside and not self._open and self._recovery.state.has_extras
        if self._updating or (half_done and not self._complete()):
            return _hook.NOTHING
        if self._open:
            self._recovery.state.rewind()
        else:
            self._recovery.state.save()
        return self._next

    def _complete(self) -> bool:
        """Do what a loop that was left would have done after the update; whether that is known."""
        return False

    def _rejoin(self, why: str, status: int, step: int) -> None:
        """Park, and take over from the order what all ranks must know alike."""
        assert self._recovery is not None
        if self._votes is not None:
            self._votes.leave()
        self._recovery.epoch = self._epoch
        order = self._recovery.rejoin(why, status, step, self._split)
        self._votes, self._epoch = self._recovery.votes, self._recovery.epoch
        self._recovery.state.save()
        self._next, self._end_word = order.resume, ""
        self._open, self._inside, self._updating = False, False, False
        self._began, self._paused = 0.0, self._hook.paused_ms()
        self._split = order.split or self._split
        self._hook.mesh(self._layout.text, self._split[self._layout.replica])
        self._declare()

    def micro_batches(self, loader: Loader | None = None) -> Iterator[Any]:
        """Iterate over this rank's micro-batches of the iteration; gradients are exchanged with the last.

        They are the loader's batches, or without one the numbers of the micro-batches.
        """
        left = self._split[self._layout.replica]
        for item in self.numbers() if loader is None else loader.of(self._next):
            left -= 1
            with self._accumulate() if left else nullcontext():
                yield item

    def numbers(self, iteration: int | None = None) -> range:
        """The numbers of this rank's micro-batches in this iteration, or with the present split in another one.

        They count over the life of the job: each is dealt to one data-parallel rank, once.
        """
        at, i = self._layout, self._next if iteration is None else iteration
        first = i * self._total + sum(self._split[: at.replica])
        return range(first * at.width + at.slot, (first + self._split[at.replica]) * at.width, at.width)

    def loader(self, dataset: Any, batch_size: int, shuffle: bool = False, seed: int = 0, **options: Any) -> Loader:
        """Deal a map-style dataset: every sample of an epoch goes to one rank, whatever the split.

        batch_size is the samples of a micro-batch; options are those of torch.utils.data.DataLoader.
        Raise ValueError where the dataset has no length or not enough samples for an iteration.
        """
        deal = Deal(dataset, batch_size, self._total * self._layout.width, shuffle, seed)
        return Loader(dataset, deal, self.numbers, self._whole, options)

    def checkpointed(self, iteration: int) -> None:
        """Report that storage holds a complete checkpoint, with which a restart begins at that iteration.

        For checkpoints that the script writes by itself. Call it on one rank or on all, once every rank's part is
        on disk; where load is given, load(iteration) must find it.
        """
        self._hook.checkpoint(iteration)

    def backward(self, loss: torch.Tensor) -> None:
        """Run backward for the mean loss of one micro-batch, with its weight in the global batch."""
        loss.backward(gradient=torch.full_like(loss, self.gradient_scale))

    def _before_update(self, *_: Any) -> None:
        if not self._open:
            return
        if self._recovery is not None:
            self._recovery.arm(False)
        self._await_device()  # the gradients of all ranks have come
        if self._recovery is not None:
            self._recovery.check()  # or were cut off
        self._await_all()
        self._updating = True
        self._hook.begin_optimizer(self._next)

    def _after_update(self, *_: Any) -> None:
        if not self._open:
            return
        self._await_device()
        self._close_iteration()

    def _await_all(self) -> None:
        """Have no rank update before every rank has all gradients of the iteration.

        A rank whose wait is cut off by a death can't know whether others go on with the update. Its own gradients are
        complete: it keeps a copy of what it holds and goes on as well, so that it holds both steps.
        """
        if self._barrier is None:
            return
        why = RuntimeError("ranks did not come to the update of the iteration")
        try:
            if self._barrier.passes():
                return
        except RuntimeError as error:
            why = error
        if not self.recovered.await_suspension():
            raise why
        try:
            self.older = (self._next, self.recovered.state.keep().copied())
        except (RuntimeError, MemoryError):  # no room for a copy: it holds what it has, and does not update
            self.recovered.check()
            raise
        self.log.write(held=self._next, why=str(why)[:200])

    def _await_device(self) -> None:
        if self._has_device and self.under_falcon:
            torch.cuda.current_stream().synchronize()

    def _close_iteration(self) -> None:
        now, paused = time.monotonic(), self._hook.paused_ms()
        first = self._next * self._total + sum(self._split[: self._layout.replica])
        mine = self._split[self._layout.replica]
        if self.older is None:  # else the iteration may run again
            self.log.iteration(self._next, 1e3 * (now - self._began), paused - self._paused, first, mine)
        self._began, self._paused, self._open, self._updating = now, paused, False, False
        self._next += 1
        self._hook.end_optimizer(self._next)

    def _vote(self, votes: _votes.Votes, i: int) -> None:
        """Take the turn of iteration i, and act on the vote that is due."""
        voted = votes.take_turn(lambda: self._hook.poll(i))
        if votes.lost:
            self._lose_votes(votes.lost)
        elif voted > self._newest:
            self._commit(votes, voted, i)

    def _commit(self, votes: _votes.Votes, order_id: int, i: int) -> None:
        """Carry out the voted order from iteration i on: all ranks come to the same answer."""
        self._newest = order_id
        order = self._hook.fetch(order_id)
        held = votes.commit(order_id, order is not None)
        status = self._judge(order) if order is not None and held else _hook.REFUSED_GONE
        if status == _hook.APPLIED and order is not None:
            status = self._apply(votes, order, i)
        self._hook.ack(order_id, i, status)
        kind = KINDS.get(order.kind, "") if order is not None else ""
        self.log.write(order=order_id, kind=kind, from_iteration=i, status=status, all_micro_batches=self._split)

    def _lose_votes(self, why: str) -> None:
        """Go on with the split as it is: no order can hold on all ranks any more."""
        self._votes = None
        self._declare()
        self.log.write(votes="lost", why=why)

    def _judge(self, order: _hook.Order) -> int:
        """Decide on an order from what all ranks know alike."""
        kind, values = order.kind, order.values
        can = {
            _hook.STOP: True,
            _hook.MICRO_BATCHES: True,
            _hook.CHECKPOINT: self.storage.can_save,
            _hook.PLACEMENT: self._recovery is not None,
        }
        if order.epoch < self._epoch:
            return _hook.REFUSED_STALE
        if not can.get(kind):
            return _hook.REFUSED_KIND
        fits = (
            kind == _hook.STOP
            or (kind == _hook.MICRO_BATCHES and self._is_split(values))
            or (kind == _hook.CHECKPOINT and values in ([0], [1]))
            or (kind == _hook.PLACEMENT and is_permutation(values, self._layout.world))
        )
        return _hook.APPLIED if fits else _hook.REFUSED_VALUES

    def _is_split(self, counts: list[int]) -> bool:
        fits = len(counts) == self._layout.replicas and sum(counts) == self._total
        return fits and all(m >= self._least and m % self._multiple == 0 for m in counts)

    def _apply(self, votes: _votes.Votes, order: _hook.Order, i: int) -> int:
        """Carry out an order that was found good; its status, on all ranks alike."""
        self._epoch = order.epoch
        if order.kind == _hook.STOP:
            self._end_word = "stopped"
        elif order.kind == _hook.CHECKPOINT:
            if not self.storage.write(votes, order.id, i):
                return _hook.NOT_WRITTEN
            self._end_word = "checkpointed" if order.values == [1] else ""
        elif order.kind == _hook.PLACEMENT:
            return self._change_places(votes, order, i)
        else:
            self._split = order.values
            self._hook.mesh(self._layout.text, self._split[self._layout.replica])
        return _hook.APPLIED

    def _change_places(self, votes: _votes.Votes, order: _hook.Order, i: int) -> int:
        """Take another rank over, from iteration i on."""
        assert self._recovery is not None
        if self._runner is not None:
            raise _run.Moved(order)
        placement = Placement(self._recovery, votes, order)
        committed = placement.carry_out()
        steps = {name: ns / 1e6 for name, ns in zip(STEPS, placement.step_ns, strict=True)}
        self.log.write(
            place=order.id, committed=committed, new_rank=self._recovery.rank, step_ms=steps, why=placement.why[:400]
        )
        self._votes = placement.votes or votes
        if not committed:
            return _hook.ROLLED_BACK
        rank = self.log.rank = placement.rank
        self._layout = place(self._layout.text, rank, self._layout.world)
        self._hook.mesh(self._layout.text, self._split[self._layout.replica])
        self._hook.place(order.id, i, rank, placement.step_ns, placement.received)
        return _hook.APPLIED

    def _end(self) -> None:
        if self._votes is not None:
            self._votes.end()
        self.log.write(end=self._end_word or "done", next_iteration=self._next)
        self._hook.finish()
