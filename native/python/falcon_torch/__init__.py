"""Falcon's adapter for PyTorch.

It reports to Falcon where a training process is (iterations, optimizer steps, layout), and carries
out what Falcon orders: an uneven split of micro-batches with exact gradient weights (S2), a stop.

Without Falcon's hook in the process it does nothing: every call returns what training goes on with.
It must not change what is learned: with any split the gradient is the mean over the global batch.
Importing it does not import torch.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as typing has it, which takes longer to import than all of this
if TYPE_CHECKING:
    from typing import Any

    import torch

    from ._hook import Hook, hook_loaded
    from ._job import Job

__all__ = ["Hook", "Job", "ddp", "hook_loaded"]
__version__ = "0.1.0"

_LATER = {"Hook": "_hook", "hook_loaded": "_hook", "Job": "_job"}  # imported when first asked for


def ddp(model: Any, optimizer: torch.optim.Optimizer, micro_batches: int, begin: int = 0) -> Job:
    """Bring a DistributedDataParallel job under Falcon.

    model is the DistributedDataParallel module, micro_batches how many micro-batches each replica
    runs per iteration before Falcon moves any, begin the first iteration. Every rank must call it.
    Raise ValueError for another kind of model and for counts below 1.
    """
    from . import _ddp

    return _ddp.ddp(model, optimizer, micro_batches, begin)


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f".{_LATER[name]}", __name__), name)
