"""Data-parallel training (DistributedDataParallel) under Falcon."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from ._job import Job
from ._mesh import place


def ddp(model: Any, optimizer: torch.optim.Optimizer, micro_batches: int, begin: int = 0) -> Job:
    """See falcon_torch.ddp."""
    if not isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise ValueError(f"model is a {type(model).__name__}; ddp takes the DistributedDataParallel module")
    layout = place(f"dp={dist.get_world_size()}", dist.get_rank(), dist.get_world_size())
    job = Job(layout, micro_batches, parameters=list(model.parameters()), begin=begin, accumulate=model.no_sync)
    job.mark_updates(optimizer)
    return job
