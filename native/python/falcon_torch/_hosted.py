"""Jobs whose loop is a framework's own: Falcon's job is stepped from its functions.

Where micro-batches can't be moved without a change of what is learned, the job says so once, with the reason, and
orders to move them are refused on all ranks alike.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, TypeVar

import torch.distributed as dist

from . import _hook, _run
from ._courier import Courier, Dealt
from ._job import Job
from ._limit import Limit
from ._recover import keep

T = TypeVar("T", bound="HostedJob")
LOOK_S = 1.0  # between two looks at how long a collective has waited
NOT_CARRIED = "its batches hold more than tensors, numbers, texts, lists and dicts"


def say(text: str) -> None:
    """Print a line about the whole job, once."""
    if text and dist.get_rank() == 0:
        print(f"falcon_torch: {text}", file=sys.stderr, flush=True)


def attach(make: Callable[[], T], name: str) -> T | None:
    """The job that make makes; None where it can't come about because some rank has no hook, or none at all.

    A framework's run must not end because of that. Where the loop is entered again an error is one of the rejoin.
    """
    runner = _run.current()
    if runner is not None and runner.task is not None:
        return make()
    try:
        job = make()
    except RuntimeError as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        print(f"falcon_torch: {name} trains without Falcon: not every rank has come: {reason}", file=sys.stderr)
        return None
    if not job.under_falcon:
        return None
    atexit.register(job.left)
    threading.Thread(target=_guard, args=(Limit(_hook.Hook(), job.log),), name="falcon-limit", daemon=True).start()
    return job


def _guard(limit: Limit) -> None:
    """Keep the time limit of collectives, as importing this package has taken it from PyTorch's watchdog."""
    while True:
        limit.look()
        time.sleep(LOOK_S)


class HostedJob(Job):
    """One rank of a job whose loop is a framework's."""

    _courier: Courier | None = None
    _even = ""  # why micro-batches stay where they are
    _first: int | None = None  # the iteration that it began with
    _over = False  # whether training has ended
    _asked = False  # whether all ranks have said that their batches can be carried

    def host(self, even: str) -> None:
        """Make ready to carry batches; even says why micro-batches can't move, where they can't."""
        if self._votes is None or self._layout.replicas == 1:
            return
        if self._none_refuses(even):
            self._none_refuses(self._meet_replicas())

    def _none_refuses(self, why: str) -> bool:
        """Whether no rank has a reason; where one has, micro-batches stay where they are on all."""
        assert self._votes is not None
        if self._votes.passes(not why):
            return True
        self._keep_even(why or "another rank can't move them")
        return False

    def _meet_replicas(self) -> str:
        """Meet the ranks that batches are carried to; why that failed."""
        try:
            self._courier = Courier(self._layout, self._hook.suspended if self._recovery is not None else None)
        except RuntimeError as error:
            return f"replicas can't reach each other: {(str(error).splitlines() or [''])[0]}"
        return ""

    def leave(self) -> int:
        """Leave the framework's loop; the iteration that this rank's state begins with."""
        if self._courier is not None and self._hook.suspended():
            keep(self._courier)
        self._courier = None
        return super().leave()

    def _keep_even(self, why: str) -> None:
        self._even, self._courier = why, None
        each = self._total // self._layout.replicas
        self._hook.state(self._state_bytes, each, each, self._zero)
        self.log.write(micro_batches="stay", why=why)
        if self._declared:
            self._declare()
        say(f"micro-batches stay where they are: {why}")

    @property
    def stopped(self) -> bool:
        """Whether an order has ended the job."""
        return bool(self._end_word)

    def begin(self, until: int) -> bool:
        """Begin an iteration, if none was begun; False when training is over, by count or by order."""
        return self._open or self.advance(until)

    def advance(self, until: int) -> bool:
        """Begin the next iteration; False when training is over, by count or by order."""
        if self._courier is not None:
            self._courier.finish()
            self._ask()
        self._over = not self.next_iteration(until)
        return not self._over

    def finish(self) -> None:
        """Training has ended by something that Falcon does not know; of an iteration that was begun nothing ran."""
        if not self._over:
            self._open = False
            self.advance(0)

    def left(self) -> None:
        """The interpreter ends: a loop of the script's has no other end that could be seen."""
        if not self._over and getattr(sys, "last_value", None) is None:
            self._over = True
            self.log.write(end="done", next_iteration=self._next)

    def mark_end(self, optimizer: Any) -> None:
        """Mark the end of an optimizer's step alone: forward and backward run inside it, and updating() is called."""
        optimizer.register_step_post_hook(self._after_update)

    def updating(self) -> None:
        """The gradients of all ranks have come, and the update begins."""
        self._before_update()

    def mark_step(self, optimizer: Any) -> None:
        """Mark the step of an optimizer that is not one of torch.optim as the update of an iteration."""
        step = optimizer.step

        @wraps(step)
        def marked(*args: Any, **kwargs: Any) -> Any:
            self._before_update()
            done = step(*args, **kwargs)
            self._after_update()
            return done

        optimizer.step = marked

    def close(self, following: int) -> None:
        """End the iteration that runs, where no optimizer did; following is the framework's number of the next one."""
        if self._open:
            self._close_iteration()
        self._next = following

    def _ask(self) -> None:
        """Once every rank that sees batches has seen one: find out whether all of them can be carried."""
        if self._first is None:
            self._first = self._next
        if self._asked or self._next == self._first or self._votes is None or self._courier is None:
            return
        self._asked = True
        self._none_refuses(NOT_CARRIED if self._courier.carries is False else "")

    def deal(self, source: Any, tag: int = 0) -> Any:
        """Take the iteration's batches out of the framework's iterator, or iterators, of an even split."""
        if self._courier is None or source is None:
            return source
        if isinstance(source, list):
            return [self.deal(one, tag + k) for k, one in enumerate(source)]
        return Dealt(_checked(source), self._courier, self._layout, self.split, tag)

    @property
    def _can_split(self) -> bool:
        return not self._even and super()._can_split

    def _is_split(self, counts: list[int]) -> bool:
        return not self._even and super()._is_split(counts)


def _checked(source: Any) -> Iterator[Any]:
    return source if hasattr(source, "__next__") else iter(source)
