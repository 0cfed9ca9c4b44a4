"""What a rank of Megatron-LM trains, beside the model: kept in memory while pretrain() is entered again.

Megatron writes the same into its checkpoints: masters and moments of its optimizers, the scheduler's count, the samples
consumed, loss scales and the generators of its tracker. It must not decide when pretrain() is left.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ._state import State

WHOLE = ("FP32Optimizer", "Float16OptimizerWithFloat16Params")  # kinds of optimizers that hold all of their state
SPREAD = "DistributedOptimizer"
COUNTS = ("consumed_train_samples", "skipped_train_samples", "consumed_valid_samples")
MOE_LOG = "megatron.core.transformer.moe.moe_logging"


def parts_of(optimizer: Any) -> list[Any]:
    """Megatron's optimizers, one for each kind of parameters."""
    return list(getattr(optimizer, "chained_optimizers", [optimizer]))


def not_kept(args: Any, config: Any, optimizer: Any, copies: int) -> str:
    """Why pretrain() can't be entered again with what is in memory; empty where it can.

    copies is how many ranks hold the same part of a distributed optimizer, where there is one.
    """
    kinds = [type(part).__name__ for part in parts_of(optimizer)]
    others = [kind for kind in kinds if kind not in (*WHOLE, SPREAD)]
    reasons = {
        f"{', '.join(others)} keeps state that is not known here": bool(others),
        "a part of the distributed optimizer is lost with its rank, as it has one instance": SPREAD in kinds
        and copies < 2,
        "--overlap-param-gather gathers parameters in the next iteration": SPREAD in kinds
        and args.overlap_param_gather,
        "experts are spread over ranks of a distributed optimizer": SPREAD in kinds
        and _of(args, "expert_model_parallel_size", 1) > 1,
        "precision-aware optimizers keep masters elsewhere": _of(args, "use_precision_aware_optimizer"),
        "--dataloader-type external begins its data again": args.dataloader_type == "external",
        "--async-save leaves a writer behind": args.async_save,
        "--iterations-to-skip counts iterations that do not run": bool(_of(args, "iterations_to_skip")),
        "--decrease-batch-size-if-needed counts samples by the ranks": _of(args, "decrease_batch_size_if_needed"),
        "--perform-rl-step makes its own batches": _of(args, "perform_rl_step"),
        "--hybrid-context-parallel reads ahead": _of(args, "hybrid_context_parallel"),
        "CUDA graphs hold groups that are gone": (_of(config, "cuda_graph_impl", "none") or "none") != "none"
        or _of(args, "optimizer_cuda_graph"),
        "fp8 and fp4 keep scales in the layers": bool(_of(config, "fp8") or _of(config, "fp4")),
        "Megatron-FSDP and FSDP2 spread parameters by themselves": _of(args, "use_megatron_fsdp")
        or _of(args, "use_torch_fsdp2"),
        "--tp-comm-overlap has buffers of its own": _of(args, "tp_comm_overlap"),
        "--use-nccl-ub registers memory with groups that are gone": _of(args, "nccl_ub"),
        "--gtp-weight-remat-size spreads weights over further ranks": _of(args, "gtp_weight_remat_size", 1) > 1,
        "generators of Transformer Engine or of inference are not tensors": _of(args, "te_rng_tracker")
        or _of(args, "inference_rng_tracker"),
    }
    return next((why for why, found in reasons.items() if found), "")


def _of(options: Any, name: str, default: Any = None) -> Any:
    return getattr(options, name, default)


def unwrapped(chunk: Any) -> Any:
    """The module inside Megatron's wrappers, which name its buffers otherwise."""
    while isinstance(getattr(chunk, "module", None), torch.nn.Module):
        chunk = chunk.module
    return chunk


def state_of(model: Sequence[Any], optimizer: Any, progress: Progress) -> State:
    """The state of model chunks and an optimizer of Megatron's."""
    chunks, torchs = [unwrapped(chunk) for chunk in model], [part.optimizer for part in parts_of(optimizer)]
    known = {id(p) for chunk in chunks for p in chunk.parameters()}
    masters = [p for o in torchs for g in o.param_groups for p in g["params"] if id(p) not in known]
    return State(chunks, torchs, [progress], masters)


class Progress:
    """How far training has come, by Megatron's own counts."""

    def __init__(self, training: Any, optimizer: Any, scheduler: Any) -> None:
        self._training, self._args, self._scheduler = training, training.get_args(), scheduler
        self._scalers = [s for part in parts_of(optimizer) if (s := getattr(part, "grad_scaler", None)) is not None]
        self._flops, self._flops_more = _of(self._args, "num_floating_point_operations_so_far", 0), 0

    def ended(self, flops: float) -> None:
        """An iteration has ended, by which so many operations were done."""
        self._flops, self._flops_more = flops, flops - self._flops

    def state_dict(self) -> dict[str, Any]:
        """All counts and generators."""
        return {
            "samples": {name: getattr(self._args, name, 0) for name in COUNTS},
            "steps": self._scheduler.num_steps,
            "flops": self._flops,
            "scalers": [s.state_dict() for s in self._scalers],
            "tracker": dict(self._tracker.get_states()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with these."""
        for name, count in state["samples"].items():
            setattr(self._args, name, count)
        self._scheduler.num_steps = state["steps"]
        self._flops = self._args.num_floating_point_operations_so_far = state["flops"]
        for scaler, kept in zip(self._scalers, state["scalers"], strict=True):
            scaler.load_state_dict(kept)
        self._tracker.set_states(state["tracker"])
        self._training.update_num_microbatches(self._args.consumed_train_samples, consistency_check=False)

    @property
    def _tracker(self) -> Any:
        return sys.modules["megatron.core.tensor_parallel.random"].get_cuda_rng_tracker()

    def complete(self, began: dict[str, Any]) -> None:
        """Count an iteration whose update is done, where Megatron was left before it did; began is how it began.

        A checkpoint or an evaluation that was due after it is left out.
        """
        args = self._args
        samples = self._training.get_num_microbatches() * args.micro_batch_size * args.data_parallel_size
        if self._scheduler.num_steps == began["steps"]:
            self._scheduler.step(increment=samples)
        if args.consumed_train_samples == began["samples"]["consumed_train_samples"]:
            args.consumed_train_samples += samples
        if self._flops == began["flops"]:
            self._flops += self._flops_more


def forget(training: Any) -> None:
    """Reset what Megatron keeps for a process, as its own restart inside a process does."""
    training.destroy_global_state()
    stamps = getattr(training, "_STARTUP_TIMESTAMPS", {})
    if stamps.get("main_entry") is None:  # else the script has set both, in a process that replaces one as well
        stamps["program_start"] = None  # by which pretrain() would do more collectives than there
    log: Any = sys.modules.get(MOE_LOG)
    if log is not None:
        log._MOE_METRICS_TRACKER = None


@contextmanager
def without_load(args: Any) -> Iterator[None]:
    """Have Megatron read no checkpoint while it makes the model: its state is in the ranks' memory."""
    kept = {name: getattr(args, name) for name in ("load", "pretrained_checkpoint") if hasattr(args, name)}
    for name in kept:
        setattr(args, name, None)
    try:
        yield
    finally:
        for name, value in kept.items():
            setattr(args, name, value)
