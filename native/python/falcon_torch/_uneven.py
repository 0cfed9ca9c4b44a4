"""Whether replicas of a job of Megatron-LM may run different numbers of micro-batches with the same result.

They may not where ranks of different replicas meet inside a micro-batch, as they would wait for each other for ever;
where the number of micro-batches changes by itself; and where a graph was captured for one number.
"""

from __future__ import annotations

from typing import Any


def kept_even(args: Any, config: Any, arguments: dict[str, Any]) -> str:
    """Why micro-batches must stay where they are; empty where they need not."""
    for reasons in (_changing, _meeting, _captured):
        for why, found in reasons(args, config).items():
            if found:
                return why
    if any(arguments.get(name) is not None for name in ("pg_collection", "p2p_communicator")):
        return "the job has process groups of its own (pg_collection)"
    return ""


def _changing(args: Any, _: Any) -> dict[str, Any]:
    """What changes the number of micro-batches or the batch by itself."""
    return {
        "--rampup-batch-size changes their number": _of(args, "rampup_batch_size"),
        "--step-batch-size-schedule changes their number": _of(args, "step_batch_size_schedule"),
        "--decrease-batch-size-if-needed changes their number": _of(args, "decrease_batch_size_if_needed"),
        "--iterations-to-skip reads the batches of iterations that do not run": _of(args, "iterations_to_skip"),
        "--perform-rl-step makes its own batches": _of(args, "perform_rl_step"),
        "--hybrid-context-parallel shares out samples by itself": _of(args, "hybrid_context_parallel"),
        "--gtp-weight-remat-size spreads batches over further ranks": _of(args, "gtp_weight_remat_size", 1) > 1,
        "packed sequences are planned over all ranks": _of(args, "sequence_packing_scheduler"),
    }


def _meeting(_: Any, config: Any) -> dict[str, Any]:
    """What ranks of different replicas do together inside a micro-batch."""
    recipe = _of(config, "fp8_recipe", "delayed") if _of(config, "fp8") else ""
    delayed = recipe in ("delayed", "custom") and not _of(config, "tp_only_amax_red")
    return {
        "global_aux_loss adds up over all replicas in each of them": "global_aux_loss"
        in (_of(config, "moe_router_load_balancing_type") or ""),
        "delayed scaling of fp8 compares all replicas in each of them": delayed,
    }


def _captured(args: Any, config: Any) -> dict[str, Any]:
    """What was captured or sized for one number of them."""
    graphs = _of(config, "cuda_graph_impl", "none") or "none"
    return {
        f"--cuda-graph-impl {graphs} captures a fixed number of them": graphs != "none",
        "--enable-cuda-graph captures a fixed number of them": _of(args, "enable_cuda_graph"),
        "--moe-expert-rank-capacity-factor runs them again by itself": _of(args, "moe_expert_rank_capacity_factor"),
    }


def _of(options: Any, name: str, default: Any = None) -> Any:
    return getattr(options, name, default)
