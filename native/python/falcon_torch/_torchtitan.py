"""A Trainer of torchtitan under Falcon.

Falcon's job is stepped by should_continue_training, which the trainer asks before each step, and by train_step.
Losses are divided by the tokens of all ranks, so that no split needs weights; what moves is the number of gradient
accumulation steps. Gradients are then exchanged between replicas with the last one alone, as the ranks would else wait
for each other once for each. Inside falcon_torch.run the job is made where the trainer would load a checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch.distributed as dist

from . import _run
from ._hook import hook_loaded
from ._hosted import HostedJob, attach, say
from ._mesh import place
from ._recover import through
from ._state import State
from ._titan_state import Progress, not_kept

NEEDED = (
    "should_continue_training",
    "train_step",
    "forward_backward_step",
    "gradient_accumulation_steps",
    "parallel_dims",
    "optimizers",
    "model_parts",
    "step",
)


class TorchtitanJob(HostedJob):
    """One rank of a job of torchtitan."""

    progress: Progress | None = None  # where the trainer's loop can be entered again

    def recover_trainer(self, trainer: Any, progress: Progress) -> None:
        """Inside falcon_torch.run: survive the death of peers, and take another rank over."""
        self.progress = progress
        self.recover_by_entering(State(trainer.model_parts, trainer.optimizers.optimizers, [progress]))

    def _complete(self) -> bool:
        """Do what follows an update in train_step."""
        assert self.progress is not None
        self.progress.complete(self.recovered.state.saved_extras[0])
        return True

    @property
    def uneven(self) -> bool:
        """Whether some replica takes more accumulation steps than another."""
        return len(set(self._split)) > 1

    @property
    def mine(self) -> int:
        """Accumulation steps of this rank in this iteration."""
        return self._split[self._layout.replica]


def mesh_of(dims: Any) -> str:
    """The mesh of torchtitan's ParallelDims, as a text."""
    sizes = {"tp": dims.tp, "cp": dims.cp, "etp": 1, "ep": dims.ep, "fsdp": dims.dp_shard, "dp": dims.dp_replicate}
    sizes["pp"] = dims.pp
    names = [name for name, size in sizes.items() if size > 1 or (name == "etp" and dims.ep > 1)]
    return ",".join(f"{name}={sizes[name]}" for name in names) or "dp=1"


def kept_even(trainer: Any) -> str:
    """Why accumulation steps must stay where they are; empty where they need not."""
    if trainer.parallel_dims.pp > 1:
        return "a pipeline exchanges gradients at the end of each accumulation step"
    if not trainer.config.training.disable_cuda_graphs and trainer.device.type == "cuda":
        return "CUDA graphs capture the exchange of gradients; set --training.disable_cuda_graphs"
    if not all(hasattr(part, "set_requires_all_reduce") for part in trainer.model_parts):
        return "the model is not sharded by fully_shard"
    return ""


class Loop:
    """Steps a job from the trainer's functions."""

    def __init__(self, trainer: Any) -> None:
        self._trainer, self._tried = trainer, False
        self._theirs = {name: getattr(trainer, name) for name in (*NEEDED[:3], "batch_generator")}
        self._load = trainer.checkpointer.load
        self._job: TorchtitanJob | None = None
        self._done = 0  # accumulation steps of this iteration
        self._answer: tuple[int, bool] | None = None  # the last one, and the step that it was given before

    def install(self) -> None:
        """Put the job's functions in the place of the trainer's."""
        for name, mine in zip(NEEDED[:3], (self.goes_on, self.step, self.accumulate), strict=True):
            setattr(self._trainer, name, mine)
        if _run.current() is not None:
            self._trainer.checkpointer.load, self._trainer.batch_generator = self.load, self.batches
            _run.when_left(self.forget, once=True)

    def forget(self) -> None:
        """The trainer was left, and another one is made."""
        self._job = None
        with suppress(Exception):  # whatever it is: nothing of it is needed any more
            self._trainer.close()

    @through
    def load(self, *args: Any, **kwargs: Any) -> bool:
        """The state to begin with: checkpointer.load, or where the loop is entered again what ranks have in memory."""
        runner = _run.current()
        enters = runner is not None and runner.task is not None
        done = False if enters else bool(self._load(*args, **kwargs))
        self._tried = True
        self._job = self._attach()
        return done

    @through
    def batches(self, loader: Any) -> Iterator[Any]:
        """The loader's batches from where training goes on: batch_generator."""
        found = self._theirs["batch_generator"](loader)
        if self._job is not None and self._job.progress is not None:
            self._job.progress.skip(found)
        yield from found

    @through
    def goes_on(self) -> bool:
        """Whether there is a next iteration: should_continue_training."""
        step = self._trainer.step
        if self._answer is None or self._answer[0] != step:
            self._answer = step, self._advance()
        return self._answer[1]

    @through
    def _advance(self) -> bool:
        """Begin the next iteration, if there is one."""
        if not self._tried:
            self._tried = True
            self._job = self._attach()
        more = bool(self._theirs["should_continue_training"]())
        if self._job is None:
            return more
        self._job.close(self._trainer.step)
        return self._job.advance(self._trainer.config.training.steps if more else 0)

    def _attach(self) -> TorchtitanJob | None:
        """Make the job, before the first step and after a checkpoint was loaded; None where some rank has no hook."""
        job = attach(self._make, "torchtitan")
        if job is not None:
            job.mark_updates(*self._trainer.optimizers.optimizers)
            self._recover(job)
            job.host(kept_even(self._trainer))
        return job

    def _recover(self, job: TorchtitanJob) -> None:
        """Inside falcon_torch.run: give the trainer what this process or a replica has kept."""
        if _run.current() is None:
            return
        why = not_kept(self._trainer)
        if why:
            say(f"a death restarts the job, and ranks keep their places: {why}")
        else:
            job.recover_trainer(self._trainer, Progress(self._trainer))

    @through
    def step(self, batches: Any) -> Any:
        """One iteration: train_step."""
        if self._job is None:
            return self._theirs["train_step"](batches)
        trainer, even = self._trainer, self._trainer.gradient_accumulation_steps
        trainer.gradient_accumulation_steps, self._done = self._job.mine, 0
        try:
            return self._theirs["train_step"](self._job.deal(batches))
        finally:
            trainer.gradient_accumulation_steps = even

    @through
    def accumulate(self, **arguments: Any) -> Any:
        """One accumulation step: forward_backward_step."""
        self._done += 1
        if self._job is not None and self._job.uneven:
            last = self._done == self._job.mine
            for part in self._trainer.model_parts:
                part.set_requires_all_reduce(last)
                part.set_is_last_backward(last)
        return self._theirs["forward_backward_step"](**arguments)

    def _make(self) -> TorchtitanJob:
        trainer = self._trainer
        text = mesh_of(trainer.parallel_dims)
        parameters = [p for part in trainer.model_parts for p in part.parameters()]
        return TorchtitanJob(
            layout=place(text, dist.get_rank(), dist.get_world_size()),
            micro_batches=trainer.gradient_accumulation_steps,
            parameters=[p.to_local() if hasattr(p, "to_local") else p for p in parameters],
            begin=trainer.step,
            save=self._store if trainer.checkpointer.enable else None,
        )

    def _store(self, step: int) -> bool:
        """Write a checkpoint that Falcon ordered, by the trainer's own checkpointer."""
        checkpointer = self._trainer.checkpointer
        interval = checkpointer.interval
        done = step > 0 and step % interval == 0  # the trainer has just written it
        if not done:
            checkpointer.interval = 1
            try:
                done = bool(checkpointer.save(step))
            finally:
                checkpointer.interval = interval
        checkpointer.maybe_wait_for_staging()
        checkpointer.maybe_wait_for_saving()
        return done


def torchtitan(trainer: Any) -> None:
    """See falcon_torch.torchtitan."""
    missing = [name for name in NEEDED if not hasattr(trainer, name)]
    if missing:
        raise ValueError(f"trainer is a {type(trainer).__name__} without {missing[0]}; give a Trainer of torchtitan")
    if hook_loaded():
        Loop(trainer).install()
