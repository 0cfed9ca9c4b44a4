"""A DeepSpeed engine under Falcon: the loop is the script's, or the one batch of a pipeline's train_batch.

An iteration begins with the first forward after an update, and its update is the step of the engine's optimizer. It
must not move micro-batches: they are counted by the script's loop, and ZeRO exchanges gradients while they run.
"""

from __future__ import annotations

from functools import wraps
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from ._hook import hook_loaded
from ._hosted import HostedJob, attach
from ._mesh import Layout, place
from ._storage import Save
from ._zero import Zero, spread

NEEDED = ("global_steps", "optimizer", "save_checkpoint", "zero_optimization_stage", "gradient_accumulation_steps")
EVEN = "DeepSpeed counts them on each rank by itself"
FOREVER = 1 << 62  # of iterations, where only the script's loop knows the last


class Shape(NamedTuple):
    """Where an engine's ranks are, and how its state is spread over them."""

    layout: Layout
    zero: Zero


def shape_of(engine: Any, mesh: str | None) -> Shape:
    """The layout of an engine. Raise ValueError where only the script knows it."""
    stage, world = int(engine.zero_optimization_stage()), dist.get_world_size()
    group = int(getattr(engine, "mics_shard_size", lambda: 0)() or 0) if stage == 3 else 0
    group = group if group > 0 else world
    text = mesh or _mesh_of(engine, stage, group, world)
    layout = place(text, dist.get_rank(), world)
    return Shape(layout, spread(stage, layout.world // group if stage == 3 else 1, layout))


def _mesh_of(engine: Any, stage: int, group: int, world: int) -> str:
    grid = getattr(engine, "grid", None)
    unknown = {
        "an mpu": grid is None and getattr(engine, "mpu", None) is not None,
        "experts": getattr(engine, "has_moe_layers", False),
        "sequence parallelism": getattr(engine, "sequence_parallel_size", 1) > 1,
        "AutoTP": getattr(engine, "autotp_size", lambda: 0)() > 1,
    }
    for what, found in unknown.items():
        if found:
            raise ValueError(f'this engine has {what}: give falcon_torch.deepspeed the mesh, as "tp=2,dp=4"')
    if grid is not None:
        sizes = {
            "tp": grid.get_slice_parallel_world_size(),
            "dp": grid.get_data_parallel_world_size(),
            "pp": grid.get_pipe_parallel_world_size(),
        }
        return ",".join(f"{name}={size}" for name, size in sizes.items() if size > 1 or name == "dp")
    if stage < 3:
        return f"dp={world}"
    return f"fsdp={group}" + (f",dp={world // group}" if group < world else "")


def save_of(engine: Any, save: Any) -> Save | None:
    """The function that writes a checkpoint: of the script, or the engine's own into a folder."""
    if save is None or callable(save):
        return save  # type: ignore[no-any-return]
    decoupled = getattr(getattr(engine, "checkpoint_engine", None), "is_decoupled", lambda: False)
    if decoupled():
        raise ValueError("this engine writes checkpoints while it trains on; give save= as a function that waits")

    def write(_: int) -> Any:
        return engine.save_checkpoint(str(save))

    return write


def make_job(engine: Any, shape: Shape, save: Save | None, begin: int) -> HostedJob:
    """The job of an engine."""
    return HostedJob(
        shape.layout,
        engine.gradient_accumulation_steps(),
        parameters=list(engine.module.parameters()),
        begin=begin,
        save=save,
        zero=shape.zero,
    )


class Loop:
    """Steps a job from an engine's functions, where the loop is the script's."""

    def __init__(self, engine: Any, shape: Shape, save: Save | None) -> None:
        self._engine, self._shape, self._save = engine, shape, save
        self._tried = False
        self._job: HostedJob | None = None

    def install(self) -> None:
        """Have the engine's forward, or the train_batch of a pipeline, begin iterations."""
        engine = self._engine
        if hasattr(engine, "train_batch"):
            batch = engine.train_batch

            @wraps(batch)
            def train_batch(*args: Any, **kwargs: Any) -> Any:
                self.begin()
                return batch(*args, **kwargs)

            engine.train_batch = train_batch
        else:
            engine.register_forward_pre_hook(lambda *_: self.begin())

    def begin(self) -> None:
        """Begin an iteration, where one trains and none runs; leave the script where Falcon says so."""
        if not (self._engine.training and torch.is_grad_enabled()):
            return
        if not self._tried:
            self._tried = True
            engine = self._engine
            self._job = attach(lambda: make_job(engine, self._shape, self._save, engine.global_steps), "DeepSpeed")
            if self._job is not None:
                self._job.mark_step(engine.optimizer)
                self._job.host(EVEN)
        if self._job is not None:
            leave_if_over(self._job, self._job.begin(FOREVER))


def leave_if_over(job: HostedJob, more: bool) -> None:
    """End the script in order, where an order has ended the job: its loop has no other end."""
    if not more:
        raise SystemExit(0 if job.stopped else 1)


def deepspeed(engine: Any, save: Any = None, mesh: str | None = None) -> None:
    """See falcon_torch.deepspeed."""
    missing = [name for name in NEEDED if not hasattr(engine, name)]
    if missing:
        raise ValueError(f"engine is a {type(engine).__name__} without {missing[0]}; give one of DeepSpeed")
    if engine.optimizer is None:
        raise ValueError("this engine has no optimizer: it does not train")
    if hook_loaded():
        Loop(engine, shape_of(engine, mesh), save_of(engine, save)).install()
