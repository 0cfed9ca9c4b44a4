"""A process that takes a dead rank's place: until it parks, its script runs as if in a job of its own.

Its peers wait in falcon_job_park meanwhile, so that no group can be made with them yet; the groups
that the script makes before falcon_torch's call communicate with nobody.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_pre_hook

PRETENDED = ("NCCL", "NCCL2", "NCCL-LEGACY", "NCCL-LAZY", "GLOO")
BUILT_IN = {"NCCL": "ProcessGroupNCCL", "GLOO": "ProcessGroupGloo"}  # not registered before PyTorch 2.14: made by class
ALONE = (
    "falcon_torch: this process was started to take a dead one's place, and its script goes on without having rejoined "
    "the others: it ends before it changes or saves anything. Only jobs that falcon_torch recovers are joined: "
    "falcon_torch.ddp, or a job inside falcon_torch.run"
)
rendezvous: Any = importlib.import_module("torch.distributed.rendezvous")  # the package's attribute is the function
_real: dict[str, Any] = {}
_handler: list[Any] = []
_gloo_type: list[Any] = []
_asked: list[timedelta] = []
_classes: dict[str, Any] = {}
_guards: list[Callable[[], object]] = []  # what takes each away again


def joins() -> bool:
    """Whether this process was started to join a job that is parked, and has not joined yet."""
    return bool(_real) or bool(_handler)


def end_where_alone() -> None:
    """End a process that would train alone: it was started to join others, and its script has not rejoined them."""
    if joins():
        raise SystemExit(ALONE)


def _refuse(*_: Any, **__: Any) -> None:
    end_where_alone()


def _guard() -> None:
    """Let no optimizer step and nothing be saved before the process has joined, whoever's loop it is."""
    _guards.append(register_optimizer_step_pre_hook(_refuse).remove)
    _guards.append(partial(setattr, torch, "save", torch.save))
    torch.save = _refuse


def asked_timeout() -> timedelta | None:
    """The timeout that the script gave the first group that was pretended."""
    return _asked[0] if _asked else None


def pretend_backends() -> None:
    """Let groups be made without peers."""
    _guard()
    register = getattr(dist.Backend, "_ensure_backend_registered", None)  # newer ones register at the first use
    plugins = dist.Backend._plugins
    for name in PRETENDED:
        if register is not None:
            register(name.lower())
        if name in plugins:
            _real[name] = plugins[name]
            plugins[name] = _real[name]._replace(creator_fn=_create_alone, extended_api=True)
        elif name in BUILT_IN and hasattr(dist.distributed_c10d, BUILT_IN[name]):
            _replace_class(BUILT_IN[name])
    _handler.append(rendezvous._rendezvous_handlers["env"])
    rendezvous._rendezvous_handlers["env"] = _alone
    if "GLOO" not in _real:
        return
    # DistributedDataParallel asks what it takes for gloo for a member that only gloo's own class has.
    types = dist.Backend.backend_type_map
    _gloo_type.append(types["gloo"])
    types["gloo"] = dist.ProcessGroup.BackendType.CUSTOM


def _fake() -> Any:
    return importlib.import_module("torch._C._distributed_c10d").FakeProcessGroup


def _create_alone(options: Any, _: Any) -> Any:
    _asked.append(options.timeout)
    return getattr(_fake(), "_create_internal", _fake())(options.group_rank, options.group_size)


class _Kind(type):
    """Type of the stand-ins for classes of groups: what they make passes for one of theirs."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _fake())


def _replace_class(name: str) -> None:
    """Let a class of groups, as c10d knows it, make groups without peers."""
    real: Any = getattr(dist.distributed_c10d, name)
    _classes[name] = real
    for method in ("_set_sequence_number_for_group", "_shutdown"):  # what c10d does with one of these, and a fake lacks
        setattr(_fake(), method, lambda _: None)

    def make(_: type, store: Any, rank: int, size: int, options: Any = None, timeout: Any = None) -> Any:
        asked = timeout if options is None else options._timeout
        return _create_alone(SimpleNamespace(timeout=asked, group_rank=rank, group_size=size), store)

    members = {"__new__": make, "Options": getattr(real, "Options", None)}
    setattr(dist.distributed_c10d, name, _Kind(name, (), members))


def _alone(_: str, **__: Any) -> Iterator[tuple[dist.Store, int, int]]:
    yield dist.HashStore(), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def restore_backends() -> None:
    """From now on groups have peers."""
    while _guards:
        _guards.pop()()
    for name, plugin in _real.items():
        dist.Backend._plugins[name] = plugin
    _real.clear()
    for name, real in _classes.items():
        setattr(dist.distributed_c10d, name, real)
    _classes.clear()
    while _gloo_type:
        dist.Backend.backend_type_map["gloo"] = _gloo_type.pop()
    while _handler:
        rendezvous._rendezvous_handlers["env"] = _handler.pop()
