"""Megatron-core's schedules under Falcon."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch
import torch.distributed as dist

from . import _run
from ._job import Job
from ._mesh import place, text_of
from ._recover import through
from ._state import State
from ._storage import Load, Save
from ._zero import of_megatron

SCALES = ("grad_scale_func", "moe_grad_scale_func", "mtp_grad_scale_func")


class MegatronJob(Job):
    """One rank of a Megatron-core job. Made by falcon_torch.megatron."""

    def __init__(self, function: Callable[..., Any], config: Any, **options: Any) -> None:
        super().__init__(**options)
        self._function, self._config = function, config

    @through
    def forward_backward(self, **arguments: Any) -> Any:
        """Call Megatron's forward_backward_func with this iteration's micro-batches.

        Megatron divides a micro-batch's loss by their number on this rank, and gradients by the
        replicas: the factor makes each weigh the same. With calculate_per_token_loss it divides by
        all ranks' tokens, which needs none. With forward_only nothing is changed.
        """
        if arguments.get("forward_only"):
            return self._function(**arguments)
        arguments["num_microbatches"] = mine = self.split[self._layout.replica]
        factor = mine * self.gradient_scale
        if factor == 1 or getattr(self._config, "calculate_per_token_loss", False):
            return self._function(**arguments)
        kept = {name: getattr(self._config, name, None) for name in SCALES}
        try:
            self._weigh(kept, factor)
            return self._function(**arguments)
        finally:
            for name in kept.keys() & vars(self._config).keys():
                setattr(self._config, name, kept[name])

    def _weigh(self, kept: dict[str, Any], factor: float) -> None:
        """Put a factor on all that scales losses; those of experts and of further tokens fall back on the first."""

        def weighted(own: Callable[..., Any] | None) -> Callable[..., Any]:
            return lambda *loss: (loss[0] if own is None else own(*loss)) * factor

        for name, own in kept.items():
            if own is not None or name == SCALES[0]:
                setattr(self._config, name, weighted(own))

    def mark_megatron_updates(self, optimizer: Any) -> None:
        """Mark the optimizer's step_with_ready_grads as the update: all ranks' gradients have come."""
        step = optimizer.step_with_ready_grads

        @wraps(step)
        def marked(*args: Any, **kwargs: Any) -> Any:
            self._before_update()
            done = step(*args, **kwargs)
            self._after_update()
            return done

        optimizer.step_with_ready_grads = marked


def megatron(
    forward_backward_func: Callable[..., Any],
    model: Any,
    optimizer: Any,
    micro_batches: int,
    mesh: Any,
    begin: int = 0,
    save: Save | None = None,
    load: Load | None = None,
    state: Sequence[Any] = (),
) -> MegatronJob:
    """See falcon_torch.megatron."""
    chunks = model if isinstance(model, list) else [model]
    config = getattr(chunks[0], "config", None)
    if config is None or not hasattr(config, "grad_scale_func"):
        raise ValueError(f"model is a {type(chunks[0]).__name__} without Megatron's config")
    layout = place(text_of(mesh), dist.get_rank(), dist.get_world_size())
    virtual = len(chunks) > 1
    job = MegatronJob(
        forward_backward_func,
        config,
        layout=layout,
        micro_batches=micro_batches,
        parameters=[p for chunk in chunks for p in chunk.parameters()],
        begin=begin,
        least=layout.stages if virtual else 1,
        multiple=layout.stages if virtual else 1,
        save=save,
        load=load,
        zero=of_megatron([*chunks, optimizer], layout),
    )
    if hasattr(optimizer, "step_with_ready_grads"):
        job.mark_megatron_updates(optimizer)
    else:
        job.mark_updates(optimizer)
    if _run.current() is not None:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise ValueError(
                f"optimizer is a {type(optimizer).__name__}; inside falcon_torch.run it must be one of torch.optim, as "
                "Megatron's keep parameters of their own that are not brought back"
            )
        job.recover_by_entering(State(chunks, [optimizer], state))
    return job
