"""Data-parallel training (DistributedDataParallel) under Falcon."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from ._job import Job
from ._mesh import place
from ._recover import Recovery
from ._state import State


def ddp(
    model: Any,
    optimizer: torch.optim.Optimizer,
    micro_batches: int,
    begin: int = 0,
    state: Sequence[Any] = (),
    groups: Callable[[], None] | None = None,
) -> Job:
    """See falcon_torch.ddp."""
    if not isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise ValueError(f"model is a {type(model).__name__}; ddp takes the DistributedDataParallel module")
    alone = len(dist.distributed_c10d._world.pg_map) == 1
    layout = place(f"dp={dist.get_world_size()}", dist.get_rank(), dist.get_world_size())
    switches = vars(model)  # model.no_sync() does the same by attributes of a module, at five times the time

    @contextmanager
    def accumulate() -> Iterator[None]:
        was, switches["require_backward_grad_sync"] = switches["require_backward_grad_sync"], False
        try:
            yield
        finally:
            switches["require_backward_grad_sync"] = was

    job = Job(layout, micro_batches, parameters=list(model.parameters()), begin=begin, accumulate=accumulate)
    job.mark_updates(optimizer)
    if not job.under_falcon:
        return job
    if not alone and groups is None:
        raise ValueError("this job has process groups of its own: pass groups=, a function that makes them again")

    def regroup() -> None:
        if groups is not None:
            groups()
        _rewrap(model)

    job.recover_by(Recovery(job.log, State(model.module, [optimizer], state), regroup))
    return job


def _rewrap(model: Any) -> None:
    """Put the wrapper on the new default group, as if it had been unpickled there."""
    hooks, model._comm_hooks = model._comm_hooks, []
    model.reducer = model.logger = None  # the old reducer's hooks go with it
    model.process_group = dist.group.WORLD
    model.require_backward_grad_sync = True
    model.__setstate__(model.__getstate__())
    for hook, hook_state in hooks:
        model.register_comm_hook(hook_state, hook)
