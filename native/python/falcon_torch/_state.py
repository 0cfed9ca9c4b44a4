"""What a data-parallel rank trains: kept for a rewind, summed up, and sent to a rank that lost it."""

from __future__ import annotations

import copy
import ctypes
import io
import os
import random
import sys
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

MODULUS = 1 << 64
FACTOR = 0x9E3779B97F4A7C15  # odd: a product with it loses nothing


def _raw(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor, without a copy where it is contiguous."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _is_emulated() -> bool:
    """Whether GPUs are the lab's: they copy memory, and their kernels compute nothing."""
    return os.environ.get("FALCON_LAB_HOLLOW") == "1"


def _word_sum(tensor: torch.Tensor) -> torch.Tensor:
    """The sum of a tensor's words, where it lies."""
    if _is_emulated():
        tensor = tensor.cpu()
    raw = _raw(tensor)
    if raw.storage_offset() % 8 != 0:
        raw = raw.clone()
    words = raw.numel() // 8 * 8
    total = raw[:words].view(torch.int64).sum() if words else raw.new_zeros((), dtype=torch.int64)
    return total if words == raw.numel() else total + raw[words:].sum(dtype=torch.int64)


def checksum(tensors: Sequence[torch.Tensor]) -> int:
    """A checksum of tensors in their order; equal bits give equal sums on any device."""
    total = 0
    for part in [_word_sum(t) for t in tensors]:  # all are under way before the first is read
        total = (total * FACTOR + int(part)) % MODULUS
    return total


class _NumpyRandom:
    """NumPy's global generator. Its own get_state takes 40 µs: it is asked for only where numbers were drawn."""

    def __init__(self) -> None:
        self._raw = b""  # the generator's memory when it was last asked
        self._state: Any = None

    def get(self) -> Any:
        """The state, None where numpy is not imported."""
        numpy = sys.modules.get("numpy")
        if numpy is None:
            return None
        raw = self._memory(numpy)
        spare = self._state is not None and self._state[3]  # a normal number that is drawn without the generator
        if not raw or raw != self._raw or spare:
            self._raw, self._state = raw, numpy.random.get_state()
        return self._state

    @staticmethod
    def _memory(numpy: Any) -> bytes:
        """The memory of a Mersenne Twister: its key and position; empty for another generator."""
        generator: Any = getattr(numpy.random, "get_bit_generator", lambda: None)()
        if type(generator).__name__ != "MT19937":
            return b""
        return ctypes.string_at(generator.ctypes.state_address, 625 * 4)


class _Random:
    """The generators of this process."""

    def __init__(self) -> None:
        self._numpy = _NumpyRandom()
        self._has_device = torch.cuda.is_available()

    def get(self) -> dict[str, Any]:
        """The state of all of them."""
        state = {"torch": torch.get_rng_state(), "python": random.getstate(), "numpy": self._numpy.get()}
        if self._has_device:
            state["cuda"] = torch.cuda.get_rng_state()
        return state

    def set(self, state: dict[str, Any]) -> None:
        """Go on with these states."""
        torch.set_rng_state(state["torch"])
        random.setstate(state["python"])
        if "cuda" in state and self._has_device:
            torch.cuda.set_rng_state(state["cuda"])
        if state["numpy"] is not None and "numpy" in sys.modules:
            self._numpy = _NumpyRandom()
            sys.modules["numpy"].random.set_state(state["numpy"])


def _without_arrays(state: dict[str, Any]) -> dict[str, Any]:
    """The states with lists in place of NumPy's arrays, which another process does not load."""
    if state["numpy"] is None:
        return state
    name, keys, *rest = state["numpy"]
    return {**state, "numpy": (name, keys.tolist(), *rest)}


class State:
    """Parameters, buffers and optimizer state of one rank, its random numbers, and what else the user names."""

    def __init__(
        self, model: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer], extras: Sequence[Any] = ()
    ) -> None:
        self._model, self._optimizers, self._extras = model, tuple(optimizers), tuple(extras)
        self._parameters = list(model.parameters())
        self._buffer_owners = self._find_buffers()
        self._random = _Random()
        self._saved: dict[str, Any] | None = None
        self._device = self._parameters[0].device if self._parameters else torch.device("cpu")

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self._device

    @property
    def has_extras(self) -> bool:
        """Whether there is state that changes besides the optimizer's step."""
        return bool(self._extras)

    def _find_buffers(self) -> list[tuple[dict[str, Any], str]]:
        """Where the buffers are that are part of what was learned, such as running means."""
        kept = self._model.state_dict(keep_vars=True)
        found = []
        for name, _ in self._model.named_buffers():
            if name in kept:
                path, _, last = name.rpartition(".")
                found.append((self._model.get_submodule(path)._buffers, last))
        return found

    def _buffers(self) -> list[torch.Tensor]:
        return [owner[name] for owner, name in self._buffer_owners]

    def _groups(self) -> list[dict[str, Any]]:
        return [g for o in self._optimizers for g in o.param_groups]

    def _moments(self) -> list[dict[str, Any]]:
        """The optimizers' state of each of their parameters, in their order."""
        return [o.state.get(p, {}) for o in self._optimizers for g in o.param_groups for p in g["params"]]

    def save(self) -> None:
        """Keep what an iteration changes besides parameters and optimizer state."""
        self._saved = {
            "random": self._random.get(),
            "buffers": self._copy_buffers(self._saved["buffers"] if self._saved is not None else []),
            "extras": [copy.deepcopy(e.state_dict()) for e in self._extras],
        }

    def _copy_buffers(self, to: list[torch.Tensor]) -> list[torch.Tensor]:
        """Copy the buffers over the last copy, at once, as their number may be large."""
        buffers = [b.detach() for b in self._buffers()]
        if _is_emulated() or [t.shape for t in to] != [b.shape for b in buffers]:
            return [b.clone() for b in buffers]
        if to:
            torch._foreach_copy_(to, buffers)
        return to

    def rewind(self) -> None:
        """Go back to what was saved, and drop the gradients of an iteration that did not end."""
        self.drop_gradients()
        if self._saved is None:
            return
        self._random.set(self._saved["random"])
        for b, kept in zip(self._buffers(), self._saved["buffers"], strict=True):
            b.data.copy_(kept)
        for e, kept in zip(self._extras, self._saved["extras"], strict=True):
            e.load_state_dict(copy.deepcopy(kept))

    def drop_gradients(self) -> None:
        """Drop all gradients: some are sums of part of a batch."""
        for p in self._parameters:
            p.grad = None

    def checksum(self) -> int:
        """A checksum of what all replicas hold alike: parameters and optimizer state."""
        moments = [m[k] for m in self._moments() for k in sorted(m) if isinstance(m[k], torch.Tensor)]
        return checksum([*self._parameters, *moments])

    def send(self, to: int) -> int:
        """Send everything to a rank, as it was saved; how many bytes."""
        if self._saved is None:
            self.save()
        saved = self._saved
        assert saved is not None
        tensors = [*self._parameters, *saved["buffers"]]
        moments = []
        for m in self._moments():
            moments.append({k: self._describe(v, tensors) for k, v in m.items()})
        head = io.BytesIO()
        groups = [{k: v for k, v in g.items() if k != "params"} for g in self._groups()]
        states = {"random": _without_arrays(saved["random"]), "extras": saved["extras"]}
        torch.save({"groups": groups, "moments": moments, **states}, head)
        self._send_bytes(head.getvalue(), to)
        sent = head.tell()
        for t in tensors:
            if t.numel() > 0:
                dist.send(_raw(t), to)
                sent += t.numel() * t.element_size()
        return sent

    def _describe(self, value: Any, tensors: list[torch.Tensor]) -> Any:
        """A tensor on the device goes by itself, with its shape in the head; all else is in the head."""
        if not isinstance(value, torch.Tensor) or value.device != self._device:
            return value
        tensors.append(value)
        return {"falcon_shape": list(value.shape), "dtype": value.dtype}

    def receive(self, source: int) -> int:
        """Take everything over from a rank; how many bytes."""
        packed = self._receive_bytes(source)
        head = torch.load(io.BytesIO(packed), weights_only=True)
        received = len(packed)
        for t in [*self._parameters, *self._buffers()]:
            received += self._receive_into(t.data, source)
        owners = [(o, p) for o in self._optimizers for g in o.param_groups for p in g["params"]]
        for (optimizer, p), m in zip(owners, head["moments"], strict=True):
            filled = {}
            for k, v in m.items():
                if isinstance(v, dict) and "falcon_shape" in v:
                    v = torch.empty(v["falcon_shape"], dtype=v["dtype"], device=self._device)
                    received += self._receive_into(v, source)
                filled[k] = v
            optimizer.state[p] = filled
        for group, values in zip(self._groups(), head["groups"], strict=True):
            group.update(values)
        for e, kept in zip(self._extras, head["extras"], strict=True):
            e.load_state_dict(kept)
        self._random.set(head["random"])
        return received

    def _receive_into(self, tensor: torch.Tensor, source: int) -> int:
        if tensor.numel() == 0:
            return 0
        raw = _raw(tensor)
        dist.recv(raw, source)
        if not tensor.is_contiguous():
            tensor.copy_(raw.view(tensor.dtype).view(tensor.shape))
        return int(raw.numel())

    def _send_bytes(self, data: bytes, to: int) -> None:
        dist.send(torch.tensor([len(data)]).to(self._device), to)
        dist.send(torch.frombuffer(bytearray(data), dtype=torch.uint8).to(self._device), to)

    def _receive_bytes(self, source: int) -> bytes:
        length = torch.tensor([0]).to(self._device)
        dist.recv(length, source)
        data = torch.frombuffer(bytearray(int(length)), dtype=torch.uint8).to(self._device)
        dist.recv(data, source)
        return bytes(data.cpu().untyped_storage())
