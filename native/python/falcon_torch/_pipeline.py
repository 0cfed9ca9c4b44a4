"""torch.distributed.pipelining under Falcon."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.pipelining import Schedule1F1B
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, PipelineScheduleSingle

from ._data import Loader
from ._job import Job
from ._mesh import place, text_of
from ._state import State
from ._storage import Load, Save

# Of a schedule's constructor, and where a schedule keeps them.
KEPT = ("args_chunk_spec", "kwargs_chunk_spec", "output_merge_spec", "backward_requires_autograd", "defer_pp_recv")


class _Weighted(torch.autograd.Function):  # type: ignore[misc]
    """The loss as it is, with a factor for its gradient."""

    @staticmethod
    def forward(ctx: Any, loss: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient * ctx.factor, None


class PipelineJob(Job):
    """One rank of a job with pipeline stages. Made by falcon_torch.pipeline."""

    _whole = True

    def __init__(self, schedule: Any, text: str, begin: int, save: Save | None, load: Load | None) -> None:
        single = isinstance(schedule, PipelineScheduleSingle)
        stages = [schedule._stage] if single else schedule._stages
        layout = place(text, dist.get_rank(), dist.get_world_size())
        size = stages[0].group_size
        if layout.stages != size:
            raise ValueError(f"mesh {text!r} has {layout.stages} pipeline stages; the schedule's group has {size}")
        self._schedule, self._means = schedule, schedule.scale_grads
        least = 1 if single and not isinstance(schedule, Schedule1F1B) else size
        super().__init__(
            layout,
            schedule._n_microbatches,
            parameters=[p for s in stages for p in s.submod.parameters()],
            begin=begin,
            least=least,
            multiple=1 if single else size,
            save=save,
            load=load,
        )
        self._made_for = 0  # micro-batches of the schedule that runs
        self._running = schedule

    @property
    def schedule(self) -> Any:
        """The schedule for this iteration's micro-batches."""
        mine = self.split[self._layout.replica]
        if mine != self._made_for:
            self._running, self._made_for = self._rebuild(mine), mine
        return self._running

    def batch(self, loader: Loader) -> Any:
        """The loader's batch of the iteration: all micro-batches of this replica along dimension 0."""
        (batch,) = loader.of(self.iteration)
        return batch

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """Run the schedule's step for this iteration."""
        return self.schedule.step(*args, **kwargs)

    def _rebuild(self, micro_batches: int) -> Any:
        """Make the schedule again. With mean losses each has its weight in the global batch, else 1."""
        old, loss_fn = self._schedule, self._schedule._loss_fn
        takes = inspect.signature(type(old).__init__).parameters
        kept = {name: getattr(old, "_" + name, None) for name in KEPT if name in takes}
        kept = {name: value for name, value in kept.items() if value is not None}

        def weighted(*args: Any, **kwargs: Any) -> Any:
            return _Weighted.apply(loss_fn(*args, **kwargs), self.gradient_scale)

        return type(old)(
            old._stage if isinstance(old, PipelineScheduleSingle) else old._stages,
            micro_batches,
            loss_fn=weighted if self._means and loss_fn is not None else loss_fn,
            scale_grads=False,
            **kept,
        )


def pipeline(
    schedule: Any,
    optimizer: torch.optim.Optimizer,
    mesh: Any,
    begin: int = 0,
    save: Save | None = None,
    load: Load | None = None,
    state: Sequence[Any] = (),
) -> PipelineJob:
    """See falcon_torch.pipeline."""
    if not isinstance(schedule, (PipelineScheduleSingle, PipelineScheduleMulti)):
        raise ValueError(
            f"schedule is a {type(schedule).__name__}; pipeline takes a schedule of torch.distributed.pipelining"
        )
    if type(schedule).__name__.startswith("_"):
        raise ValueError("a schedule that was loaded from a file can't be made again for other micro-batches")
    job = PipelineJob(schedule, text_of(mesh), begin, save, load)
    job.mark_updates(optimizer)
    stages = [schedule._stage] if isinstance(schedule, PipelineScheduleSingle) else schedule._stages
    job.recover_by_entering(State([s.submod for s in stages], [optimizer], state))
    return job
