"""What a data-parallel rank trains: kept for a rewind, summed up, and sent to a rank that lost it."""

from __future__ import annotations

import copy
import ctypes
import hashlib
import io
import os
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from ._buckets import Buckets

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


@dataclass
class Kept:
    """What a rank trains, beside any model: the head says what the tensors are."""

    head: dict[str, Any]
    tensors: list[torch.Tensor]
    total: int  # checksum of what replicas hold alike

    def on_host(self) -> Kept:
        """The same in the memory of the host."""
        return Kept(self.head, [t.cpu() for t in self.tensors], self.total)

    def copied(self) -> Kept:
        """A copy in the memory of the host, which stays as it is whatever becomes of the model."""
        return Kept(copy.deepcopy(self.head), [t.to("cpu", copy=True) for t in self.tensors], self.total)


class _FromKept:
    """Tensors one after another, as they were kept."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._left = iter(tensors)

    def fill(self, into: torch.Tensor) -> None:
        into.copy_(next(self._left))

    def make(self, _: torch.Tensor, device: torch.device) -> torch.Tensor:
        """The tensor itself where it lies where it should: two copies may not fit."""
        return next(self._left).to(device)


class _FromPeer:
    """Tensors one after another, as a rank sends them."""

    def __init__(self, source: int) -> None:
        self._source, self.received = source, 0

    def fill(self, into: torch.Tensor) -> None:
        if into.numel() == 0:
            return
        raw = _raw(into)
        dist.recv(raw, self._source)
        if not into.is_contiguous():
            into.copy_(raw.view(into.dtype).view(into.shape))
        self.received += raw.numel()

    def make(self, like: torch.Tensor, device: torch.device) -> torch.Tensor:
        """A tensor of its own."""
        made = torch.empty(like.shape, dtype=like.dtype, device=device)
        self.fill(made)
        return made


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """A rank's part of a tensor that is spread over ranks (DTensor), else the tensor."""
    return getattr(tensor, "_local_tensor", tensor)


def _spread_as(local: torch.Tensor, parameter: Any) -> torch.Tensor:
    """The tensor of which local is this rank's part, spread as the parameter is."""
    if not hasattr(parameter, "_local_tensor"):
        return local
    kind: Any = type(parameter.data)
    return kind.from_local(
        local,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )


class State:
    """Parameters, buffers and optimizer state of one rank, its random numbers, and what else the user names.

    Of tensors that are spread over ranks it has this rank's part. masters are parameters that an optimizer keeps
    beside those of the model.
    """

    def __init__(
        self,
        modules: torch.nn.Module | Sequence[torch.nn.Module],
        optimizers: Sequence[torch.optim.Optimizer],
        extras: Sequence[Any] = (),
        masters: Sequence[torch.Tensor] = (),
    ) -> None:
        self._modules = [modules] if isinstance(modules, torch.nn.Module) else list(modules)
        self._optimizers, self._extras = tuple(optimizers), tuple(extras)
        self._parameters: list[torch.Tensor] = [p for m in self._modules for p in m.parameters()]
        self._parameters += masters  # the optimizer's own copies
        self._buffer_owners = [found for m in self._modules for found in self._find_buffers(m)]
        wrapper = torch.nn.parallel.DistributedDataParallel
        self._buckets = [Buckets(part) for m in self._modules for part in m.modules() if isinstance(part, wrapper)]
        self._random = _Random()
        self._saved: dict[str, Any] | None = None
        self._device = self._parameters[0].device if self._parameters else torch.device("cpu")

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self._device

    @property
    def saved_extras(self) -> list[Any]:
        """The extras' states as they were saved: those of the iteration that runs."""
        return self._saved["extras"] if self._saved is not None else []

    @property
    def has_extras(self) -> bool:
        """Whether there is state that changes besides the optimizer's step."""
        return bool(self._extras)

    @staticmethod
    def _find_buffers(module: torch.nn.Module) -> list[tuple[dict[str, Any], str]]:
        """Where the buffers are that are part of what was learned, such as running means."""
        kept = module.state_dict(keep_vars=True)
        found = []
        for name, _ in module.named_buffers():
            if name in kept:
                path, _, last = name.rpartition(".")
                found.append((module.get_submodule(path)._buffers, last))
        return found

    def _buffers(self) -> list[torch.Tensor]:
        return [_local(owner[name]) for owner, name in self._buffer_owners]

    def _shards(self) -> list[torch.Tensor]:
        return [_local(p) for p in self._parameters]

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
        moments = [_local(m[k]) for m in self._moments() for k in sorted(m) if isinstance(m[k], torch.Tensor)]
        return checksum([*self._shards(), *moments])

    def pack(self) -> bytes:
        """What was saved, as bytes: all that replicas do not hold alike."""
        assert self._saved is not None
        saved, out = self._saved, io.BytesIO()
        buffers = [b.cpu() for b in saved["buffers"]]
        torch.save({"random": _without_arrays(saved["random"]), "extras": saved["extras"], "buffers": buffers}, out)
        return out.getvalue()

    def unpack(self, packed: bytes) -> None:
        """Take over what another process has packed."""
        came = torch.load(io.BytesIO(packed), map_location="cpu", weights_only=True)
        for b, value in zip(self._buffers(), came["buffers"], strict=True):
            b.data.copy_(value)
        for e, state in zip(self._extras, came["extras"], strict=True):
            e.load_state_dict(state)
        self._random.set(came["random"])

    def keep(self) -> Kept:
        """What this rank trains, as it was saved; the tensors are those of the model."""
        if self._saved is None:
            self.save()
        saved = self._saved
        assert saved is not None
        tensors = [t.detach() for t in [*self._shards(), *saved["buffers"]]]
        moments = [{k: self._describe(v, tensors) for k, v in m.items()} for m in self._moments()]
        groups = [{k: v for k, v in g.items() if k != "params"} for g in self._groups()]
        states = {"random": _without_arrays(saved["random"]), "extras": saved["extras"]}
        states["buckets"] = [b.known() for b in self._buckets]
        return Kept({"groups": groups, "moments": moments, **states}, tensors, self.checksum())

    def install(self, kept: Kept) -> None:
        """Go on with what was kept."""
        self._fill(kept.head, _FromKept(kept.tensors))

    def settle(self, alike: Callable[[int], bool]) -> None:
        """Sum gradients in the order of the state that was taken over; every rank takes part.

        alike says whether replicas have the same value: where one of them knows no order, none builds its buckets.
        """
        orders = [b.known() for b in self._buckets]
        if alike(int.from_bytes(hashlib.sha256(repr(orders).encode()).digest()[:7], "big")):
            for b in self._buckets:
                b.build()

    def send(self, to: int) -> int:
        """Send everything to a rank, as it was saved; how many bytes."""
        kept, head = self.keep(), io.BytesIO()
        torch.save(kept.head, head)
        self._send_bytes(head.getvalue(), to)
        sent = head.tell()
        for t in kept.tensors:
            if t.numel() > 0:
                dist.send(_raw(t), to)
                sent += t.numel() * t.element_size()
        return sent

    def _describe(self, value: Any, tensors: list[torch.Tensor]) -> Any:
        """A tensor on the device goes by itself, with its shape in the head; all else is in the head."""
        if not isinstance(value, torch.Tensor):
            return value
        local = _local(value).detach()
        spread = hasattr(value, "_local_tensor")
        if local.device != self._device and not spread:
            return value
        tensors.append(local)
        return {"falcon_shape": list(local.shape), "dtype": local.dtype, "spread": spread}

    def receive(self, source: int) -> int:
        """Take everything over from a rank; how many bytes."""
        packed = self._receive_bytes(source)
        peer = _FromPeer(source)
        self._fill(torch.load(io.BytesIO(packed), weights_only=True), peer)
        return len(packed) + peer.received

    def _fill(self, head: dict[str, Any], came: _FromKept | _FromPeer) -> None:
        """Take over what the head and the tensors behind it say."""
        for t in [*self._shards(), *self._buffers()]:
            came.fill(t.data)
        owners = [(o, p) for o in self._optimizers for g in o.param_groups for p in g["params"]]
        for (optimizer, p), m in zip(owners, head["moments"], strict=True):
            filled = {}
            for k, v in m.items():
                if isinstance(v, dict) and "falcon_shape" in v:
                    like = torch.empty(v["falcon_shape"], dtype=v["dtype"], device="meta")
                    made = came.make(like, self._device)
                    v = _spread_as(made, p) if v["spread"] else made
                filled[k] = v
            if filled or p in optimizer.state:
                optimizer.state[p] = filled
        for group, values in zip(self._groups(), head["groups"], strict=True):
            group.update(values)
        for e, kept in zip(self._extras, head["extras"], strict=True):
            e.load_state_dict(copy.deepcopy(kept))
        self._random.set(head["random"])
        for b, order in zip(self._buckets, head["buckets"], strict=True):
            b.learn(order)

    def _send_bytes(self, data: bytes, to: int) -> None:
        dist.send(torch.tensor([len(data)]).to(self._device), to)
        dist.send(torch.frombuffer(bytearray(data), dtype=torch.uint8).to(self._device), to)

    def _receive_bytes(self, source: int) -> bytes:
        length = torch.tensor([0]).to(self._device)
        dist.recv(length, source)
        data = torch.frombuffer(bytearray(int(length)), dtype=torch.uint8).to(self._device)
        dist.recv(data, source)
        return bytes(data.cpu().numpy().data)
