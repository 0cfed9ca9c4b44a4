"""Data-parallel training (DistributedDataParallel) under Falcon."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from . import _run
from ._buckets import Buckets, move, rewrap
from ._job import Job
from ._mesh import place
from ._recover import Recovery
from ._state import State
from ._storage import Load, Save
from ._votes import Votes


def ddp(
    model: Any,
    optimizer: torch.optim.Optimizer,
    micro_batches: int,
    begin: int = 0,
    state: Sequence[Any] = (),
    groups: Callable[[], None] | None = None,
    save: Save | None = None,
    load: Load | None = None,
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

    job = Job(
        layout,
        micro_batches,
        parameters=list(model.parameters()),
        begin=begin,
        accumulate=accumulate,
        save=save,
        load=load,
    )
    job.mark_updates(optimizer)
    if not job.under_falcon:
        return job
    if _run.current() is not None:
        job.recover_by_entering(State(model, [optimizer], state))
        return job
    if not alone and groups is None:
        raise ValueError("this job has process groups of its own: pass groups=, a function that makes them again")

    buckets = Buckets(model)

    def regroup(votes: Votes | None) -> None:
        if groups is not None:
            groups()
        if votes is None:
            move(model, buckets)
        else:
            rewrap(model, buckets.agree(votes), dist.group.WORLD)

    job.recover_by(Recovery(job.log, State(model.module, [optimizer], state), job.storage, regroup))
    return job
