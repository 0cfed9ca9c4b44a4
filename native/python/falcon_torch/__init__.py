"""Falcon's adapter for PyTorch.

It reports to Falcon where a training process is (iterations, optimizer steps, layout), and carries
out what Falcon orders: an uneven split of micro-batches with exact gradient weights (S2), a stop.

Without Falcon's hook in the process it does nothing: every call returns what training goes on with.
It must not change what is learned: with any split the gradient is the mean over the global batch.
"""

from ._hook import Hook, hook_loaded
from ._job import Job, ddp

__all__ = ["Hook", "Job", "ddp", "hook_loaded"]
__version__ = "0.1.0"
