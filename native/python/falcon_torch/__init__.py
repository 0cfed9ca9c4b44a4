"""Falcon's adapter for PyTorch.

It reports to Falcon where a training process is (iterations, optimizer steps, layout), and carries
out what Falcon orders: an uneven split of micro-batches with exact gradient weights (S2), a stop.
When a peer dies, this process stays: it leaves the iteration, waits until the dead rank was started
again, and goes on with the iteration that it was at.

Without Falcon's hook in the process it does nothing: every call returns what training goes on with.
It must not change what is learned: with any split the gradient is the mean over the global batch.
Importing it does not import torch.
"""

import os

TYPE_CHECKING = False  # as typing has it, which takes longer to import than all of this
if TYPE_CHECKING:
    from ._api import (
        accelerate,
        ddp,
        deepspeed,
        fsdp,
        lightning,
        megatron,
        megatron_lm,
        pipeline,
        run,
        torchtitan,
        transformers,
    )
    from ._hook import Hook, hook_loaded
    from ._job import Job

__all__ = [
    "Hook",
    "Job",
    "accelerate",
    "ddp",
    "deepspeed",
    "fsdp",
    "hook_loaded",
    "lightning",
    "megatron",
    "megatron_lm",
    "pipeline",
    "run",
    "torchtitan",
    "transformers",
]
__version__ = "0.1.0"

if "libfalcon_hook" in os.environ.get("LD_PRELOAD", ""):
    from ._environment import prepare
    from ._interrupt import watch
    from ._raised import install

    prepare()
    install()
    watch()

_ELSEWHERE = {"Hook": "_hook", "hook_loaded": "_hook", "Job": "_job"}
_LATER = {name: _ELSEWHERE.get(name, "_api") for name in __all__}  # imported when first asked for


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f".{_LATER[name]}", __name__), name)
