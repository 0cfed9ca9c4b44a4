"""One rank of a training job under Falcon."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from . import _hook, _votes
from ._log import Log
from ._mesh import Layout

KINDS = {_hook.MICRO_BATCHES: "microbatches", _hook.STOP: "stop"}


class Job:
    """One rank of a training job. Made by falcon_torch.ddp and its like."""

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
    ) -> None:
        if micro_batches < least or micro_batches % multiple != 0:
            raise ValueError(
                f"micro_batches is {micro_batches}; it must be at least {least}"
                + (f" and a multiple of {multiple}" if multiple > 1 else "")
            )
        self._hook, self._layout, self._accumulate = _hook.Hook(), layout, accumulate
        self._least, self._multiple = least, multiple
        self._split = [micro_batches] * layout.replicas
        self._total = micro_batches * layout.replicas
        self._next, self._newest, self._epoch = begin, 0, 0
        self._open, self._stopped = False, False
        self._log = Log(torch.distributed.get_rank())
        self._began, self._paused = 0.0, 0.0
        self._votes = _votes.agree(self._hook.present)
        if self._votes is not None:
            state = 3 * sum(p.numel() * p.element_size() for p in parameters)
            self._hook.mesh(layout.text, micro_batches)
            self._hook.state(state, least, multiple)

    def mark_updates(self, *optimizers: torch.optim.Optimizer) -> None:
        """Mark the steps of the optimizers, which are taken in this order, as the update of an iteration."""
        optimizers[0].register_step_pre_hook(self._before_update)
        optimizers[-1].register_step_post_hook(self._after_update)

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
        if self._open:  # no optimizer step: a GradScaler has skipped it
            self._close_iteration()
        if self._votes is not None:
            self._vote(self._votes, self._next)
        if self._stopped or self._next >= until:
            self._end()
            return False
        self._hook.begin_iteration(self._next)
        self._began = self._began or time.monotonic()
        self._open = True
        return True

    def micro_batches(self) -> Iterator[int]:
        """The numbers of this rank's micro-batches, over the life of the job; gradients are exchanged with the last."""
        numbers = self.numbers()
        for number in numbers[:-1]:
            with self._accumulate():
                yield number
        yield numbers[-1]

    def numbers(self) -> range:
        """The numbers of this rank's micro-batches in this iteration: each is dealt to one data-parallel rank, once."""
        at = self._layout
        first = self._next * self._total + sum(self._split[: at.replica])
        return range(first * at.width + at.slot, (first + self._split[at.replica]) * at.width, at.width)

    def backward(self, loss: torch.Tensor) -> None:
        """Run backward for the mean loss of one micro-batch, with its weight in the global batch."""
        loss.backward(gradient=torch.full_like(loss, self.gradient_scale))

    def _before_update(self, *_: Any) -> None:
        if not self._open:
            return
        if self._votes is not None and torch.cuda.is_available():
            torch.cuda.current_stream().synchronize()  # the gradients of all ranks have come
        self._hook.begin_optimizer(self._next)

    def _after_update(self, *_: Any) -> None:
        if not self._open:
            return
        if self._votes is not None and torch.cuda.is_available():
            torch.cuda.current_stream().synchronize()
        self._close_iteration()

    def _close_iteration(self) -> None:
        now, paused = time.monotonic(), self._hook.paused_ms()
        first = self._next * self._total + sum(self._split[: self._layout.replica])
        mine = self._split[self._layout.replica]
        self._log.iteration(self._next, 1e3 * (now - self._began), paused - self._paused, first, mine)
        self._began, self._paused, self._open = now, paused, False
        self._next += 1
        self._hook.end_optimizer(self._next)

    def _vote(self, votes: _votes.Votes, i: int) -> None:
        """Begin the vote of iteration i, and act on the one that is due."""
        votes.begin(self._hook.poll(i))
        voted = votes.due()
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
            self._apply(order)
        self._hook.ack(order_id, i, status)
        kind = KINDS.get(order.kind, "") if order is not None else ""
        self._log.write(order=order_id, kind=kind, from_iteration=i, status=status, all_micro_batches=self._split)

    def _lose_votes(self, why: str) -> None:
        """Go on with the split as it is: no order can hold on all ranks any more."""
        self._votes = None
        self._log.write(votes="lost", why=why)

    def _judge(self, order: _hook.Order) -> int:
        if order.epoch < self._epoch:
            return _hook.REFUSED_STALE
        if order.kind == _hook.STOP:
            return _hook.APPLIED
        if order.kind != _hook.MICRO_BATCHES:
            return _hook.REFUSED_KIND
        counts = order.values
        fits = len(counts) == self._layout.replicas and sum(counts) == self._total
        if fits and all(m >= self._least and m % self._multiple == 0 for m in counts):
            return _hook.APPLIED
        return _hook.REFUSED_VALUES

    def _apply(self, order: _hook.Order) -> None:
        self._epoch = order.epoch
        if order.kind == _hook.STOP:
            self._stopped = True
            return
        self._split = order.values
        self._hook.mesh(self._layout.text, self._split[self._layout.replica])

    def _end(self) -> None:
        if self._votes is not None:
            self._votes.drain()
        self._log.write(end="stopped" if self._stopped else "done", next_iteration=self._next)
        self._hook.finish()
