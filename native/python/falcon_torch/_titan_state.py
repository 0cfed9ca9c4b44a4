"""What a rank of torchtitan trains, beside the model: kept in memory while a Trainer is made again.

The loader's own state is taken now and then, as that takes time; what was read since is read again. A process that
replaces a dead one has none of its rank's, and reads all that its rank has read.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import torch

TAKEN_EVERY = 64  # steps between two states of the loader


def not_kept(trainer: Any) -> str:
    """Why the trainer's loop can't be entered again with what is in memory; empty where it can."""
    config, checkpointer = trainer.config, trainer.checkpointer
    if not config.training.disable_cuda_graphs and trainer.device.type == "cuda":
        return "CUDA graphs hold groups that are gone; set --training.disable_cuda_graphs"
    mode = getattr(checkpointer, "async_mode", None)
    if checkpointer.enable and getattr(mode, "value", mode) not in (None, "disabled"):
        return "asynchronous checkpoints leave a writer behind"
    if not all(isinstance(o, torch.optim.Optimizer) for o in trainer.optimizers.optimizers):
        return "an optimizer is not one of torch.optim"
    if not _can_be_sent(trainer.dataloader.state_dict()):
        return "the loader's state holds more than tensors, numbers, texts, lists and dicts"
    return ""


def _can_be_sent(state: Any) -> bool:
    out = io.BytesIO()
    try:
        torch.save(state, out)
        torch.load(io.BytesIO(out.getvalue()), weights_only=True)
    except Exception:  # whatever it is, it can't be sent
        return False
    return True


class Progress:
    """How far a trainer has come."""

    def __init__(self, trainer: Any) -> None:
        self._trainer, self._skip = trainer, 0
        dims = trainer.parallel_dims
        self._rank = dims.get_mesh("batch").get_local_rank() if dims.dp_enabled else 0  # of those that have own data
        self._reads = trainer.gradient_accumulation_steps * getattr(trainer, "num_pipeline_parallel_microbatches", 1)
        self._taken = trainer.step, trainer.dataloader.state_dict()

    def state_dict(self) -> dict[str, Any]:
        """All counts, and the loader's position."""
        trainer = self._trainer
        behind = self._skip > 0  # it has yet to read what was read before
        if not behind and trainer.step >= self._taken[0] + TAKEN_EVERY:
            self._taken = trainer.step, trainer.dataloader.state_dict()
        schedules = trainer.lr_schedulers.state_dict()
        counts = {"step": trainer.step, "tokens": trainer.ntokens_seen}
        return {**counts, "schedules": schedules, "rank": self._rank, "loader": self._taken}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with these."""
        trainer = self._trainer
        trainer.step, trainer.ntokens_seen = state["step"], state["tokens"]
        trainer.lr_schedulers.load_state_dict(state["schedules"])
        if state["rank"] != self._rank:
            self._skip = trainer.step * self._reads
            return
        self._taken = state["loader"]
        trainer.dataloader.load_state_dict(self._taken[1])
        self._skip = (trainer.step - self._taken[0]) * self._reads

    def skip(self, batches: Iterator[Any]) -> None:
        """Read again what was read already."""
        for _ in range(self._skip):
            next(batches)
        self._skip = 0

    def complete(self, began: dict[str, Any]) -> None:
        """Do what follows an update, where the trainer was left before it did; began is how the step began."""
        schedules = self._trainer.lr_schedulers
        if schedules.state_dict() == began["schedules"]:
            schedules.step()
