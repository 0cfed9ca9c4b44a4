"""The package's calls; each imports what it needs, and torch with it, when it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    import torch

    from ._job import Job
    from ._megatron import MegatronJob
    from ._pipeline import PipelineJob


def ddp(
    model: Any,
    optimizer: torch.optim.Optimizer,
    micro_batches: int,
    begin: int = 0,
    state: Sequence[Any] = (),
    groups: Callable[[], None] | None = None,
) -> Job:
    """Bring a DistributedDataParallel job under Falcon.

    model is the DistributedDataParallel module, micro_batches how many micro-batches each replica
    runs per iteration before Falcon moves any, begin the first iteration. Every rank must call it.
    state is what else an iteration changes, with state_dict and load_state_dict: a scheduler, a
    scaler, a data loader. groups makes the job's own process groups again after a recovery.
    Raise ValueError for another kind of model, for counts below 1, and for groups of its own without
    groups; RuntimeError where the environment would not let a survivor live.
    """
    from . import _ddp

    return _ddp.ddp(model, optimizer, micro_batches, begin, state, groups)


def fsdp(
    model: Any,
    optimizer: torch.optim.Optimizer,
    micro_batches: int,
    begin: int = 0,
    mesh: Any = None,
    sync_shards: bool = True,
) -> Job:
    """Bring a job that uses fully_shard (FSDP2) under Falcon.

    model is the root module that fully_shard was applied to, micro_batches how many micro-batches
    each rank runs per iteration before Falcon moves any. With HSDP (a mesh of replicate and shard)
    micro-batches move between the replicas; the ranks of a shard group always have equally many.
    mesh, a DeviceMesh with named dimensions or a text such as "tp=2,fsdp=4,dp=2" (innermost first),
    is needed where the job has other dimensions than these two. Between micro-batches gradients are
    kept sharded; with sync_shards off they are kept whole, which saves reduce-scatters and takes the
    memory of all gradients. Every rank must call it. Raise ValueError for another kind of model, for
    counts below 1, and where the mesh does not fit the job.
    """
    from . import _fsdp

    return _fsdp.fsdp(model, optimizer, micro_batches, begin, mesh, sync_shards)


def pipeline(schedule: Any, optimizer: torch.optim.Optimizer, mesh: Any, begin: int = 0) -> PipelineJob:
    """Bring a job that uses torch.distributed.pipelining under Falcon.

    schedule is made for the micro-batches that each replica runs per iteration before Falcon moves
    any; the job's step and schedule replace it. mesh, a DeviceMesh with named dimensions or a text
    such as "dp=2,pp=4" (innermost first), has all ranks. Stages are DistributedDataParallel or FSDP
    modules where there are replicas. Losses are means over a micro-batch (scale_grads, the default)
    or sums that need no weight (scale_grads off). Every rank must call it. Raise ValueError for
    another kind of schedule and where the mesh does not fit it.
    """
    from . import _pipeline

    return _pipeline.pipeline(schedule, optimizer, mesh, begin)


def megatron(
    forward_backward_func: Callable[..., Any],
    model: Any,
    optimizer: Any,
    micro_batches: int,
    mesh: Any,
    begin: int = 0,
) -> MegatronJob:
    """Bring a job that uses Megatron-core's schedules under Falcon.

    forward_backward_func is what get_forward_backward_func returned; the job's forward_backward
    takes its place and its arguments, and replaces num_microbatches. model is the module with
    Megatron's config, or the list of its chunks; optimizer Megatron's or one of torch. mesh is a
    text such as "tp=2,dp=4,pp=2" (innermost first). Data must come from the job's loader, or by the
    job's numbers: Megatron's own sampler deals even splits. Every rank must call it. Raise
    ValueError for a model without a config and where the mesh does not fit the job.
    """
    from . import _megatron

    return _megatron.megatron(forward_backward_func, model, optimizer, micro_batches, mesh, begin)
