"""What must be set before the first process group, so that a survivor lives to be recovered."""

from __future__ import annotations

import os
import sys

# PyTorch's own reactions to a dead peer, which end the process. It reads them when a group is made.
KEEP_ALIVE = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_RETHROW_CUDA_ERRORS": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    "TORCH_NCCL_BLOCKING_WAIT": "0",
}
# After an error the legacy backend's watchdog sleeps four times as long as a flight record may take, which is 15 s,
# and whoever lets go of the group waits for the watchdog.
PROMPT = {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "0"}
# What torchrun gives every worker where its own environment says nothing.
OF_TORCHRUN = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}
_late: list[str] = []


def prepare() -> None:
    """Keep PyTorch from ending this process when a peer dies. Only called where the hook is."""
    dist = sys.modules.get("torch.distributed")
    begun = dist is not None and dist.is_initialized()
    for name, value in KEEP_ALIVE.items():
        if name in os.environ and not _of_torchrun(name):
            continue
        if begun:
            _late.append(name)
        os.environ[name] = value
    for name, value in PROMPT.items():
        os.environ.setdefault(name, value)
    if os.environ.get("FALCON_JOIN") == "1":
        from . import _join

        _join.pretend_backends()
        return
    from . import _launched

    if _launched.needed():
        _launched.watch()


def _of_torchrun(name: str) -> bool:
    """Whether a setting is none of the user's."""
    return "TORCHELASTIC_RUN_ID" in os.environ and os.environ[name] == OF_TORCHRUN.get(name)


def check() -> None:
    """Refuse settings under which a survivor would not live. Raise RuntimeError."""
    for name, value in KEEP_ALIVE.items():
        if os.environ.get(name) != value:
            raise RuntimeError(
                f"with {name}={os.environ.get(name)} PyTorch ends this process when a peer dies; unset it"
            )
    if _late:
        raise RuntimeError("import falcon_torch before init_process_group: what a peer's death does is decided there")
