"""A process that takes a dead rank's place: until it parks, its script runs as if in a job of its own.

Its peers wait in falcon_job_park meanwhile, so that no group can be made with them yet; the groups
that the script makes before falcon_torch's call communicate with nobody.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist

PRETENDED = ("NCCL", "NCCL2", "NCCL-LEGACY", "NCCL-LAZY", "GLOO")
rendezvous: Any = importlib.import_module("torch.distributed.rendezvous")  # the package's attribute is the function
_real: dict[str, Any] = {}
_handler: list[Any] = []


def joins() -> bool:
    """Whether this process was started to join a job that is parked, and has not joined yet."""
    return bool(_real) or bool(_handler)


def pretend_backends() -> None:
    """Let groups be made without peers."""
    register = getattr(dist.Backend, "_ensure_backend_registered", None)  # newer ones register at the first use
    plugins = dist.Backend._plugins
    for name in PRETENDED:
        if register is not None:
            register(name.lower())
        if name in plugins:
            _real[name] = plugins[name]
            plugins[name] = _real[name]._replace(creator_fn=_create_alone, extended_api=True)
    _handler.append(rendezvous._rendezvous_handlers["env"])
    rendezvous._rendezvous_handlers["env"] = _alone


def _create_alone(options: Any, _: Any) -> Any:
    fake: Any = importlib.import_module("torch._C._distributed_c10d").FakeProcessGroup
    return getattr(fake, "_create_internal", fake)(options.group_rank, options.group_size)


def _alone(_: str, **__: Any) -> Iterator[tuple[dist.Store, int, int]]:
    yield dist.HashStore(), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def restore_backends() -> None:
    """From now on groups have peers."""
    for name, plugin in _real.items():
        dist.Backend._plugins[name] = plugin
    _real.clear()
    while _handler:
        rendezvous._rendezvous_handlers["env"] = _handler.pop()
