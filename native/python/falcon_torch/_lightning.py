"""A Trainer of Lightning under Falcon, by a callback of its own.

It must not move micro-batches: Lightning counts the batches of an epoch on each rank.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import torch.distributed as dist

from . import _deepspeed
from ._deepspeed import FOREVER, Shape
from ._hook import hook_loaded
from ._hosted import HostedJob, attach
from ._mesh import place, text_of
from ._storage import Save
from ._zero import WHOLE

EVEN = "Lightning counts the batches of an epoch on each rank by itself"
NEEDED = ("callbacks", "strategy", "accumulate_grad_batches", "global_step", "fit_loop", "save_checkpoint")
ALIASES = {"data_parallel": "fsdp", "tensor_parallel": "tp"}  # of its ModelParallelStrategy


def engine_of(trainer: Any) -> Any:
    """DeepSpeed's engine; None without it."""
    return trainer.strategy.deepspeed_engine if hasattr(type(trainer.strategy), "deepspeed_engine") else None


def shape_of(trainer: Any, mesh: str | None) -> Shape:
    """The layout of a trainer's job. Raise ValueError where only the script knows it."""
    engine = engine_of(trainer)
    if engine is not None:
        return _deepspeed.shape_of(engine, mesh)
    text = mesh or _mesh_of(trainer.strategy, dist.get_world_size())
    return Shape(place(text, dist.get_rank(), dist.get_world_size()), WHOLE)


def _mesh_of(strategy: Any, world: int) -> str:
    kind = type(strategy).__name__
    if kind == "DDPStrategy":
        return f"dp={world}"
    if kind == "FSDPStrategy" and getattr(strategy.sharding_strategy, "name", "") in ("FULL_SHARD", "SHARD_GRAD_OP"):
        return f"fsdp={world}"
    dims = getattr(strategy, "device_mesh", None)
    if kind == "ModelParallelStrategy" and dims is not None:
        return text_of(dims, [ALIASES.get(name, name) for name in dims.mesh_dim_names])
    raise ValueError(f'where the ranks of {kind} are is not known: give falcon_torch.lightning the mesh, as "dp=8"')


class Loop:
    """Steps a job from the callbacks of a trainer."""

    def __init__(self, mesh: str | None) -> None:
        self._mesh = mesh
        self._job: HostedJob | None = None
        self._marks = True  # whether the trainer says when an update begins; DeepSpeed's engine is asked else
        self._ended, self._stored = 0, 0  # numbers of the newest step that ended, and that a checkpoint was written at

    def start(self, trainer: Any) -> None:
        """Training begins; a checkpoint was loaded, if one is to be."""
        if len(trainer.optimizers) != 1:
            raise ValueError(f"this job has {len(trainer.optimizers)} optimizers; falcon_torch.lightning takes one")
        if not dist.is_initialized():
            return
        shape, engine = shape_of(trainer, self._mesh), engine_of(trainer)
        self._ended = self._stored = trainer.global_step
        save = self._save_of(trainer)
        parameters = [p.to_local() if hasattr(p, "to_local") else p for p in trainer.model.parameters()]
        self._job = attach(
            lambda: HostedJob(
                shape.layout,
                trainer.accumulate_grad_batches,
                parameters=parameters,
                begin=self._ended,
                save=save,
                zero=shape.zero,
            ),
            "Lightning",
        )
        if self._job is None:
            return
        if engine is not None:
            self._marks = False
            self._job.mark_step(engine.optimizer)
        else:
            self._job.mark_end(trainer.optimizers[0])
        self._job.host(EVEN)

    def batch(self, trainer: Any) -> None:
        """A batch begins."""
        if self._job is None:
            return
        self._report(trainer)
        self._job.begin(FOREVER)

    def update(self) -> None:
        """The update begins. It ends as the optimizer's step does, in which Lightning runs forward and backward."""
        if self._job is not None and self._marks:
            self._job.updating()

    def batch_done(self, trainer: Any) -> None:
        """A batch has ended, and with it perhaps a step."""
        if self._job is None or trainer.global_step == self._ended:
            return
        self._report(trainer)
        self._ended = trainer.global_step
        self._job.close(self._ended)
        if not self._job.advance(FOREVER):
            _leave(trainer)

    def done(self) -> None:
        """Training has ended."""
        if self._job is not None:
            self._job.finish()

    def _report(self, trainer: Any) -> None:
        """Report a checkpoint that the trainer has written by itself."""
        for callback in trainer.checkpoint_callbacks:
            at = getattr(callback, "_last_global_step_saved", 0)
            if self._job is not None and at > self._stored and not callback.save_weights_only and waits(trainer):
                self._stored = at
                self._job.checkpointed(at)

    def _save_of(self, trainer: Any) -> Save | None:
        """Writes a checkpoint that ckpt_path="last" finds, where the trainer keeps any."""
        folder = getattr(trainer.checkpoint_callback, "dirpath", None)
        if folder is None or not waits(trainer):
            return None

        def write(step: int) -> None:
            if self._stored != step:
                trainer.save_checkpoint(f"{folder}/last-falcon-step={step}.ckpt")
            self._stored = step

        return write


def _leave(trainer: Any) -> None:
    """End training in order.

    Lightning ends an epoch that is cut short as a whole one, and a checkpoint that says so would be taken for the
    newest: a restart would not train what is left of the epoch.
    """
    trainer.should_stop = True
    trainer.fit_loop.min_epochs = None  # which would have it train on
    trainer.fit_loop.epoch_loop.min_steps = None
    for callback in trainer.checkpoint_callbacks:
        callback._last_global_step_saved, callback.save_last = trainer.global_step, False


def waits(trainer: Any) -> bool:
    """Whether a checkpoint is on disk when the function that writes it returns."""
    return "Async" not in type(trainer.strategy.checkpoint_io).__name__


def check_rank(trainer: Any) -> None:
    """Raise ValueError where the trainer counts ranks by itself, and differently from who has started them.

    Two processes would take one rank, and all would wait for the one that nobody has.
    """
    name, rank = type(getattr(trainer.strategy, "cluster_environment", None)).__name__, os.environ.get("RANK", "")
    if name == "LightningEnvironment" and rank.isdigit() and int(rank) != trainer.global_rank:
        raise ValueError(
            f"Lightning takes this process for rank {trainer.global_rank}, and it was started as rank {rank}: give the "
            "Trainer plugins=[TorchElasticEnvironment()]"
        )


def _callback(loop: Loop, package: str) -> Any:
    """A callback of Lightning's, from the package that the trainer is of."""
    base: Any = importlib.import_module(package).Callback

    class FalconCallback(base):  # type: ignore[misc]
        """Steps Falcon's job."""

        def on_train_start(self, trainer: Any, _: Any) -> None:
            loop.start(trainer)

        def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
            loop.batch(trainer)

        def on_before_optimizer_step(self, *_: Any) -> None:
            loop.update()

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            loop.batch_done(trainer)

        def on_train_end(self, *_: Any) -> None:
            loop.done()

    return FalconCallback()


def lightning(trainer: Any, mesh: str | None = None) -> None:
    """See falcon_torch.lightning."""
    missing = [name for name in NEEDED if not hasattr(trainer, name)]
    if missing:
        raise ValueError(f"trainer is a {type(trainer).__name__} without {missing[0]}; give a Trainer of Lightning")
    if hook_loaded():
        check_rank(trainer)
        package = type(trainer).__module__.partition(".trainer")[0]  # lightning.pytorch, or pytorch_lightning
        trainer.callbacks.append(_callback(Loop(mesh), package + ".callbacks"))
