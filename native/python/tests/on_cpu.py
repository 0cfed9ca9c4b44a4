"""Lets code that asks for GPUs run on CPUs: what it puts on a device "cuda" stays in the host's memory."""

from __future__ import annotations

import contextlib
import re
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

CPU = torch.device("cpu")


def _is_cuda(device: Any) -> bool:
    return str(device).startswith("cuda")


class OnCpu(TorchFunctionMode):
    """Factories and moves of tensors take the CPU for a GPU."""

    def __torch_function__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if _is_cuda(kwargs.get("device")):
            kwargs["device"] = CPU
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        return function(*(CPU if isinstance(a, (str, torch.device)) and _is_cuda(a) else a for a in args), **kwargs)


class Nothing:
    """A stream or an event: there is nothing to wait for."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.device = CPU

    def record_event(self, *_: Any) -> Nothing:
        """An event that has come."""
        return Nothing()

    def __getattr__(self, _: str) -> Any:
        return lambda *_, **__: 0.0


def pretend() -> None:
    """From now on this process has one GPU, which is its CPU."""
    cuda: Any = torch.cuda
    for name in ("synchronize", "empty_cache", "set_device", "reset_peak_memory_stats", "check_error", "set_stream"):
        setattr(cuda, name, lambda *_, **__: None)
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        setattr(cuda, name, lambda *_, **__: 0)
    cuda.is_available, cuda.device_count = (lambda: True), (lambda: 1)
    cuda.current_device = lambda: CPU
    cuda.get_rng_state = lambda *_: torch.get_rng_state()
    cuda.set_rng_state = lambda state, *_: torch.set_rng_state(state)
    cuda.manual_seed = torch.manual_seed
    cuda.Stream = cuda.Event = Nothing
    cuda.current_stream = cuda.default_stream = Nothing
    cuda.stream = lambda _: contextlib.nullcontext()
    cuda.get_device_properties = lambda *_: SimpleNamespace(
        name="cpu", total_memory=1 << 30, multi_processor_count=1, major=8, minor=0
    )
    cuda.get_device_capability = lambda *_: (8, 0)
    cuda.mem_get_info = lambda *_: (1 << 30, 1 << 30)
    cuda.memory_stats = lambda *_: {}
    torch.accelerator.is_available = lambda: False  # memory is not pinned
    kind: Any = torch.Tensor.type  # Megatron's distributed optimizer asks for the name of it
    torch.Tensor.type = lambda self, *a: (  # type: ignore[method-assign,assignment]
        kind(self, *a) if a else re.sub(r"^torch\.(?!cuda)", "torch.cuda.", kind(self))
    )
    torch.Tensor.cuda = lambda self, *_, **__: self  # type: ignore[method-assign]
    torch.Tensor.pin_memory = lambda self, *_: self  # type: ignore[method-assign]
    torch.nn.Module.cuda = lambda self, *_: self  # type: ignore[method-assign]
    OnCpu().__enter__()
