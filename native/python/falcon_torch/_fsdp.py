"""FSDP2 (fully_shard) under Falcon: shards, and replicas of them (HSDP)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from ._job import Job
from ._mesh import place, text_of
from ._state import State
from ._storage import Load, Save

try:
    from torch.distributed.fsdp import FSDPModule
except ImportError:  # up to PyTorch 2.5
    from torch.distributed._composable.fsdp import FSDPModule


def fsdp(
    model: Any,
    optimizer: torch.optim.Optimizer,
    micro_batches: int,
    begin: int = 0,
    mesh: Any = None,
    sync_shards: bool = True,
    save: Save | None = None,
    load: Load | None = None,
    state: Sequence[Any] = (),
) -> Job:
    """See falcon_torch.fsdp."""
    if not isinstance(model, FSDPModule):
        raise ValueError(f"model is a {type(model).__name__}; fsdp takes a module that fully_shard was applied to")
    text = _mesh_of(model) if mesh is None else text_of(mesh)
    layout = place(text, dist.get_rank(), dist.get_world_size())

    @contextmanager
    def accumulate() -> Iterator[None]:
        """Keep gradients within the replica: of a shard, or with sync_shards off of the rank."""
        defer = model.set_requires_all_reduce if sync_shards else model.set_requires_gradient_sync
        defer(False)
        model.set_is_last_backward(False)
        try:
            yield
        finally:
            defer(True)
            model.set_is_last_backward(True)

    parameters = [p.to_local() if hasattr(p, "to_local") else p for p in model.parameters()]
    job = Job(layout, micro_batches, parameters=parameters, begin=begin, accumulate=accumulate, save=save, load=load)
    job.mark_updates(optimizer)
    job.recover_by_entering(State(model, [optimizer], state))
    return job


def _mesh_of(model: Any) -> str:
    """The mesh that the model's parameters are spread over, as a text."""
    meshes = {(p.device_mesh, p.placements) for p in model.parameters() if hasattr(p, "device_mesh")}
    meshes = {(mesh, tuple("dp" if x.is_replicate() else "fsdp" for x in at)) for mesh, at in meshes}
    if len(meshes) != 1:
        raise ValueError("the model's parameters are not all on one DeviceMesh; give the mesh of the whole job as mesh")
    mesh, names = meshes.pop()
    if names not in (("fsdp",), ("dp",), ("dp", "fsdp")) or mesh.size() != dist.get_world_size():
        raise ValueError(
            f"the model is spread over {mesh.size()} of the job's {dist.get_world_size()} ranks by {', '.join(names)}; "
            "give the mesh of the whole job as mesh"
        )
    return text_of(mesh, names)
