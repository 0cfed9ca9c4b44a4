"""An Accelerator of Hugging Face under Falcon: the loop is the script's.

An iteration begins with the first forward after an update, and its update is the step of the optimizer that was
prepared. It must not move micro-batches: the script's loop counts them.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

import torch
import torch.distributed as dist

from . import _deepspeed
from ._deepspeed import FOREVER, Shape, leave_if_over
from ._hook import hook_loaded
from ._hosted import HostedJob, attach
from ._mesh import place, text_of
from ._storage import Save
from ._zero import WHOLE

EVEN = "the script's own loop counts them"
DDP = ("MULTI_GPU", "MULTI_CPU")
SHARDED = ("FULL_SHARD", "SHARD_GRAD_OP")


def engine_of(accelerator: Any) -> Any:
    """DeepSpeed's engine; None without it."""
    return getattr(getattr(accelerator, "deepspeed_engine_wrapped", None), "engine", None)


def shape_of(accelerator: Any, mesh: str | None) -> Shape:
    """The layout of an accelerator's job. Raise ValueError where only the script knows it."""
    kind = str(getattr(accelerator.distributed_type, "value", accelerator.distributed_type))
    engine = engine_of(accelerator)
    if engine is not None:
        return _deepspeed.shape_of(engine, mesh)
    text = mesh or _mesh_of(accelerator, kind, dist.get_world_size())
    return Shape(place(text, dist.get_rank(), dist.get_world_size()), WHOLE)


def _mesh_of(accelerator: Any, kind: str, world: int) -> str:
    dims = getattr(accelerator, "torch_device_mesh", None)
    if dims is not None:
        return text_of(dims)
    if kind in DDP:
        return f"dp={world}"
    if kind == "FSDP":
        plugin = accelerator.state.fsdp_plugin
        strategy = getattr(getattr(plugin, "sharding_strategy", None), "name", "FULL_SHARD")
        if getattr(plugin, "fsdp_version", 1) == 2 or strategy in SHARDED:
            return f"fsdp={world}"
        kind += f" with {strategy}"
    raise ValueError(f'where the ranks of {kind} are is not known: give the mesh, as "fsdp=4,dp=2"')


def save_of(accelerator: Any, save: Any) -> Save | None:
    """The function that writes a checkpoint: of the script, or the accelerator's own save_state."""
    names = accelerator.project_configuration.automatic_checkpoint_naming
    if callable(save) or (save is None and not names):
        return save  # type: ignore[no-any-return]
    if names and save is not None:
        raise ValueError("the accelerator names its checkpoints by itself: give save= as a function of an iteration")
    if accelerator.use_stateful_dataloader:
        raise ValueError("a stateful data loader is a batch ahead of the step: give save= as a function")

    def write(iteration: int) -> None:
        accelerator.save_state(None if names else f"{save}/{iteration}")

    return write


def inner(optimizer: Any) -> Any:
    """The optimizer of torch within one that an accelerator has prepared."""
    return getattr(optimizer, "optimizer", optimizer)


class Loop:
    """Steps a job from the forward of the accelerator's model."""

    def __init__(self, accelerator: Any, shape: Shape, save: Save | None, begin: int) -> None:
        self._accelerator, self._shape, self._save, self._first = accelerator, shape, save, begin
        self._tried = False
        self._job: HostedJob | None = None

    def install(self) -> None:
        """Have forwards of the models begin iterations, or accumulate before it counts a micro-batch as begun."""
        accelerator = self._accelerator
        accumulate = accelerator.accumulate

        @wraps(accumulate)
        def accumulates(*models: Any) -> Any:
            self.begin(accelerator._models[0])
            return accumulate(*models)

        accelerator.accumulate = accumulates
        for model in accelerator._models:
            model.register_forward_pre_hook(self.begin)

    def begin(self, model: Any, *_: Any) -> None:
        """Begin an iteration, where one trains and none runs; leave the script where Falcon says so."""
        if not (model.training and torch.is_grad_enabled()):
            return
        if not self._tried:
            self._tried = True
            self._job = attach(self._make, "accelerate")
            if self._job is not None:
                self._mark(self._job)
                self._job.host(EVEN)
        if self._job is None or self._job.begin(FOREVER):
            return
        self._accelerator.end_training()
        leave_if_over(self._job, False)

    def _make(self) -> HostedJob:
        accelerator, engine = self._accelerator, engine_of(self._accelerator)
        if engine is not None:
            return _deepspeed.make_job(engine, self._shape, self._save, self._first)
        parameters = [p for model in accelerator._models for p in model.parameters()]
        return HostedJob(
            self._shape.layout,
            accelerator.gradient_accumulation_steps,
            parameters=[p.to_local() if hasattr(p, "to_local") else p for p in parameters],
            begin=self._first,
            save=self._save,
        )

    def _mark(self, job: HostedJob) -> None:
        engine = engine_of(self._accelerator)
        if engine is not None:
            job.mark_step(engine.optimizer)
        else:
            job.mark_updates(inner(self._accelerator._optimizers[0]))


def accelerate(accelerator: Any, save: Any = None, begin: int = 0, mesh: str | None = None) -> None:
    """See falcon_torch.accelerate."""
    if not hasattr(accelerator, "distributed_type") or not hasattr(accelerator, "_models"):
        raise ValueError(f"accelerator is a {type(accelerator).__name__}; give an Accelerator")
    if not hook_loaded() or not dist.is_initialized():
        return
    models, optimizers = len(accelerator._models), len(accelerator._optimizers)
    if models == 0 or optimizers != 1:
        raise ValueError(
            f"this accelerator has prepared {models} models and {optimizers} optimizers; call falcon_torch.accelerate "
            "after prepare(), for a job with one optimizer"
        )
    Loop(accelerator, shape_of(accelerator, mesh), save_of(accelerator, save), begin).install()
