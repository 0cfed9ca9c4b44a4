"""Falcon's adapter for PyTorch.

It reports to Falcon where a training process is (iterations, optimizer steps, layout), and carries
out what Falcon orders: an uneven split of micro-batches with exact gradient weights (S2), a stop.
When a peer dies, this process stays: it leaves the iteration, waits until the dead rank was started
again, and goes on with the iteration that it was at.

Without Falcon's hook in the process it does nothing: every call returns what training goes on with.
It must not change what is learned: with any split the gradient is the mean over the global batch.
Importing it does not import torch.
"""

from __future__ import annotations

from ._environment import prepare

TYPE_CHECKING = False  # as typing has it, which takes longer to import than all of this
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    import torch

    from ._hook import Hook, hook_loaded
    from ._job import Job

__all__ = ["Hook", "Job", "ddp", "fsdp", "hook_loaded"]
__version__ = "0.1.0"

prepare()

_LATER = {"Hook": "_hook", "hook_loaded": "_hook", "Job": "_job"}  # imported when first asked for


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


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f".{_LATER[name]}", __name__), name)
