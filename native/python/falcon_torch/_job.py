"""Data-parallel training (DistributedDataParallel) under Falcon."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist

from . import _hook
from ._log import Log

VOTE_DELAY = 2  # iterations from a vote to what follows from it: gloo has it done by then
KINDS = {_hook.MICRO_BATCHES: "microbatches", _hook.STOP: "stop"}


def ddp(model: Any, optimizer: torch.optim.Optimizer, micro_batches: int, begin: int = 0) -> Job:
    """Bring a DistributedDataParallel job under Falcon.

    model is the DistributedDataParallel module, micro_batches how many micro-batches each replica
    runs per iteration before Falcon moves any, begin the first iteration.
    """
    return Job(model, optimizer, micro_batches, begin)


class Job:
    """One rank of a data-parallel job."""

    def __init__(self, model: Any, optimizer: torch.optim.Optimizer, micro_batches: int, begin: int = 0) -> None:
        if micro_batches < 1:
            raise ValueError(f"micro_batches is {micro_batches}; it must be at least 1")
        self._model, self._hook = model, _hook.Hook()
        self._rank, self._world = dist.get_rank(), dist.get_world_size()
        self._split = [micro_batches] * self._world
        self._total = micro_batches * self._world
        self._next, self._newest, self._epoch, self._stopped = begin, 0, 0, False
        self._votes: deque[tuple[Any, torch.Tensor]] = deque()
        self._log = Log(self._rank)
        self._began, self._paused = 0.0, 0.0
        optimizer.register_step_pre_hook(self._before_update)
        optimizer.register_step_post_hook(self._after_update)
        self._control = self._agree_on_hooks()
        if self._control is None:
            return
        bytes_of = sum(p.numel() * p.element_size() for p in model.parameters())
        self._hook.describe(1, self._world, 1, micro_batches)
        self._hook.state(3 * bytes_of, 1)

    def _agree_on_hooks(self) -> Any:
        """The group for votes, or None unless every rank has the hook: a vote needs all of them."""
        group = dist.new_group(backend="gloo")
        have = torch.tensor([int(self._hook.present)])
        dist.all_reduce(have, op=dist.ReduceOp.MIN, group=group)
        if int(have) == 1:
            return group
        dist.destroy_process_group(group)
        return None

    @property
    def split(self) -> list[int]:
        """Micro-batches per iteration of each replica; their sum never changes."""
        return list(self._split)

    def next_iteration(self, until: int) -> bool:
        """Begin the next iteration; False when training is over, by count or by order."""
        if self._control is not None:
            self._vote(self._next)
        if self._stopped or self._next >= until:
            self._end()
            return False
        self._hook.begin_iteration(self._next)
        self._began = self._began or time.monotonic()
        return True

    def micro_batches(self) -> Iterator[int]:
        """The numbers of this rank's micro-batches, over the life of the job; gradients are reduced with the last."""
        first, mine = self._next * self._total + sum(self._split[: self._rank]), self._split[self._rank]
        for k in range(mine):
            with nullcontext() if k == mine - 1 else self._model.no_sync():
                yield first + k

    def backward(self, loss: torch.Tensor) -> None:
        """Run backward for the mean loss of one micro-batch.

        DDP averages over replicas: with this factor each micro-batch of the global batch weighs the
        same, whichever replica ran it.
        """
        (loss * (self._world / self._total)).backward()

    def _before_update(self, *_: Any) -> None:
        if self._control is not None and torch.cuda.is_available():
            torch.cuda.current_stream().synchronize()  # the gradients of all ranks have come
        self._hook.begin_optimizer(self._next)

    def _after_update(self, *_: Any) -> None:
        if self._control is not None and torch.cuda.is_available():
            torch.cuda.current_stream().synchronize()
        now, paused = time.monotonic(), self._hook.paused_ms()
        first = self._next * self._total + sum(self._split[: self._rank])
        self._log.iteration(self._next, 1e3 * (now - self._began), paused - self._paused, first, self._split[self._rank])
        self._began, self._paused = now, paused
        self._next += 1
        self._hook.end_optimizer(self._next)

    def _vote(self, i: int) -> None:
        """Begin the vote of iteration i, and act on the one begun VOTE_DELAY iterations ago."""
        mine = torch.tensor([self._hook.poll(i)])
        self._votes.append((dist.all_reduce(mine, op=dist.ReduceOp.MIN, group=self._control, async_op=True), mine))
        if len(self._votes) <= VOTE_DELAY:
            return
        work, vote = self._votes.popleft()
        work.wait()
        if int(vote) > self._newest:
            self._commit(int(vote), i)

    def _commit(self, order_id: int, i: int) -> None:
        """Carry out the voted order from iteration i on: all ranks come to the same answer."""
        self._newest = order_id
        order = self._hook.fetch(order_id)
        held = torch.tensor([int(order is not None)])
        dist.all_reduce(held, op=dist.ReduceOp.MIN, group=self._control)
        status = self._judge(order) if order is not None and int(held) == 1 else _hook.REFUSED_GONE
        if status == _hook.APPLIED and order is not None:
            self._apply(order)
        self._hook.ack(order_id, i, status)
        kind = KINDS.get(order.kind, "") if order is not None else ""
        self._log.write(order=order_id, kind=kind, from_iteration=i, status=status, all_micro_batches=self._split)

    def _judge(self, order: _hook.Order) -> int:
        if order.epoch < self._epoch:
            return _hook.REFUSED_STALE
        if order.kind == _hook.STOP:
            return _hook.APPLIED
        if order.kind != _hook.MICRO_BATCHES:
            return _hook.REFUSED_KIND
        fits = len(order.values) == self._world and min(order.values) >= 1 and sum(order.values) == self._total
        return _hook.APPLIED if fits else _hook.REFUSED_VALUES

    def _apply(self, order: _hook.Order) -> None:
        self._epoch = order.epoch
        if order.kind == _hook.STOP:
            self._stopped = True
            return
        self._split = order.values
        self._hook.describe(1, self._world, 1, self._split[self._rank])

    def _end(self) -> None:
        while self._votes:
            self._votes.popleft()[0].wait()
        self._log.write(end="stopped" if self._stopped else "done", next_iteration=self._next)
        self._hook.finish()
