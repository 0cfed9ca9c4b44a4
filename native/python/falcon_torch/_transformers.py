"""A Trainer of Hugging Face's transformers under Falcon, by a callback of its own.

The trainer takes the batches of an update at once, so that they can be dealt: what it iterates over are then groups
of batches, as many as it expects, of which some have more than one and some none. Its losses are divided by what all
ranks have together, or by the batches of an even split: either way each batch weighs the same, whichever rank ran it.
"""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

import torch
import torch.distributed as dist

from . import _deepspeed
from ._accelerate import DDP, engine_of, inner, shape_of
from ._deepspeed import Shape
from ._hook import hook_loaded
from ._hosted import HostedJob, attach

NEEDED = ("add_callback", "accelerator", "get_batch_samples", "training_step", "_save_checkpoint", "args", "state")
OVERRIDDEN = ("get_batch_samples", "training_step", "_get_num_items_in_batch")


class Group(dict[str, Any]):
    """Batches that one training_step runs; to whoever counts tokens it looks like the first one."""

    def __init__(self, batches: list[Any]) -> None:
        super().__init__(batches[0] if batches else {})
        self.batches = batches


def groups_of(batches: list[Any], count: int) -> list[Group]:
    """Put batches into so many groups; the last one, with which gradients are exchanged, has one at least."""
    each, more = divmod(len(batches), count)
    sizes = [each + (k >= count - more) for k in range(count)]
    ends = [sum(sizes[: k + 1]) for k in range(count)]
    return [Group(batches[end - size : end]) for end, size in zip(ends, sizes, strict=True)]


def kept_even(trainer: Any, theirs: type) -> str:
    """Why batches must stay where they are; empty where they need not. theirs is the class of the package."""
    args, accelerator = trainer.args, trainer.accelerator
    kind = str(getattr(accelerator.distributed_type, "value", accelerator.distributed_type))
    own = [name for name in OVERRIDDEN if getattr(type(trainer), name, None) is not getattr(theirs, name, None)]
    reasons = {
        f"{kind} exchanges more than gradients in each of them": kind not in DDP,
        f"the script has a {', '.join(own)} of its own": bool(own),
        "a rank has several GPUs": args.n_gpu > 1,
        "losses are divided by the tokens of one rank (average_tokens_across_devices is off)": (
            not args.average_tokens_across_devices
        ),
        "compute_loss_func weighs losses by itself": trainer.compute_loss_func is not None,
        "gradients are exchanged with each of them (sync_each_batch)": bool(
            accelerator.gradient_state.plugin_kwargs.get("sync_each_batch", False)
        ),
        "ranks may run out of batches within a step (a dataset without a length, or even_batches is off)": (
            not hasattr(trainer.train_dataset, "__len__") or not accelerator.even_batches
        ),
        "a data loader of one rank deals them (dispatch_batches)": bool(
            getattr(accelerator.dataloader_config, "dispatch_batches", False)
        ),
    }
    return next((why for why, found in reasons.items() if found), "")


class Loop:
    """Steps a job from the callbacks of a trainer."""

    def __init__(self, trainer: Any, theirs: type, mesh: str | None) -> None:
        self._trainer, self._class, self._mesh = trainer, theirs, mesh
        self._samples, self._step = trainer.get_batch_samples, trainer.training_step
        self._job: HostedJob | None = None
        self._moves = False  # whether batches are dealt
        self._stored = -1

    def start(self) -> None:
        """Training begins; a checkpoint was loaded, if one is to be."""
        trainer = self._trainer
        if not dist.is_initialized():
            return
        shape = shape_of(trainer.accelerator, self._mesh)
        self._job = attach(lambda: self._make(shape), "the Trainer")
        if self._job is None:
            return
        engine = engine_of(trainer.accelerator)
        if engine is not None:
            self._job.mark_step(engine.optimizer)
        else:
            self._job.mark_updates(inner(trainer.optimizer))
        why = kept_even(trainer, self._class)
        self._job.host(why)
        self._moves = not why and shape.layout.replicas > 1
        if self._moves:
            trainer.get_batch_samples, trainer.training_step = self.samples, self.step

    def _make(self, shape: Shape) -> HostedJob:
        trainer, engine = self._trainer, engine_of(self._trainer.accelerator)
        save = None if trainer.args.save_only_model else self._store
        if engine is not None:
            return _deepspeed.make_job(engine, shape, save, trainer.state.global_step)
        return HostedJob(
            shape.layout,
            trainer.args.gradient_accumulation_steps,
            parameters=[p.to_local() if hasattr(p, "to_local") else p for p in trainer.model.parameters()],
            begin=trainer.state.global_step,
            save=save,
        )

    def begin(self) -> None:
        """A step begins."""
        if self._job is not None:
            self._job.begin(self._trainer.state.max_steps)

    def step_done(self, control: Any) -> None:
        """A step has ended."""
        if self._job is None:
            return
        self._job.close(self._trainer.state.global_step)
        more = self._job.advance(0 if control.should_training_stop else self._trainer.state.max_steps)
        if not more:
            control.should_training_stop = True
            control.should_save = control.should_save and self._stored != self._trainer.state.global_step

    def saved(self) -> None:
        """The trainer has written a checkpoint by itself."""
        at = self._trainer.state.global_step
        if self._job is not None and not self._trainer.args.save_only_model and at != self._stored:
            self._stored = at
            self._job.checkpointed(at)

    def done(self) -> None:
        """Training has ended."""
        if self._job is not None:
            self._job.finish()
        self._trainer.get_batch_samples, self._trainer.training_step = self._samples, self._step

    def _store(self, step: int) -> None:
        """Write a checkpoint that Falcon ordered, as the trainer writes its own."""
        self._trainer._save_checkpoint(self._trainer.model, trial=None)
        self._stored = step

    def samples(self, iterator: Any, count: int, device: Any) -> Any:
        """The batches of a step: get_batch_samples. At the end of an epoch, where there are fewer, they stay."""
        job = self._job
        assert job is not None
        job.begin(self._trainer.state.max_steps)
        if not self._moves or job._courier is None or count != self._trainer.args.gradient_accumulation_steps:
            return self._samples(iterator, count, device)
        mine = job.split[job._layout.replica]
        if len(set(job.split)) == 1 and job._courier.carries is not None:
            return self._samples(iterator, count, device)  # all is as the trainer has it
        batches, items = self._samples(job.deal(plain(iterator)), mine, device)
        return groups_of(batches, count), items

    def step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Forward and backward of what is one batch to the trainer: training_step."""
        if not isinstance(inputs, Group):
            return self._step(model, inputs, *args, **kwargs)
        trainer, loss = self._trainer, torch.zeros((), device=self._trainer._tr_loss.device)
        for k, batch in enumerate(inputs.batches):
            last = k == len(inputs.batches) - 1
            with contextlib.nullcontext() if last else trainer.accelerator.no_sync(model=model):
                loss = loss + self._step(model, batch, *args, **kwargs)
            if k > 0:
                trainer.current_flos += float(trainer.floating_point_ops(batch))
        return loss


def plain(iterator: Any) -> Any:
    """Batches as dicts, where a tokenizer has made an object of its own of them."""
    return (dict(batch) if hasattr(batch, "data") and hasattr(batch, "items") else batch for batch in iterator)


def _callback(loop: Loop, base: Any) -> Any:
    class FalconCallback(base):  # type: ignore[misc]
        """Steps Falcon's job."""

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            loop.start()

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            loop.begin()

        def on_step_end(self, _: Any, __: Any, control: Any, **___: Any) -> Any:
            loop.step_done(control)
            return control

        def on_save(self, *_: Any, **__: Any) -> None:
            loop.saved()

        def on_train_end(self, *_: Any, **__: Any) -> None:
            loop.done()

    return FalconCallback()


def transformers(trainer: Any, mesh: str | None = None) -> None:
    """See falcon_torch.transformers."""
    missing = [name for name in NEEDED if not hasattr(trainer, name)]
    if missing:
        raise ValueError(f"trainer is a {type(trainer).__name__} without {missing[0]}; give a Trainer of transformers")
    if not hook_loaded():
        return
    package: Any = importlib.import_module("transformers")
    trainer.add_callback(_callback(Loop(trainer, package.Trainer, mesh), package.TrainerCallback))
