"""How a job's optimizer is spread over its replicas (ZeRO), as it is declared to Falcon.

Falcon takes replicas to hold all of the state where nothing is declared, so what is spread must say so. Shards of a
mesh (fsdp) are in the layout already. It must never claim more copies than there are: unknown means one.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import gcd
from typing import Any, NamedTuple

import torch.distributed as dist

from ._mesh import Layout

TORCH = "torch.distributed.optim.zero_redundancy_optimizer"


class Zero(NamedTuple):
    """The stage, and how many groups of replicas have the whole of it: 0 and 0 where every replica has."""

    stage: int = 0
    instances: int = 0


WHOLE = Zero()


def spread(stage: int, instances: int, layout: Layout) -> Zero:
    """ZeRO with so many instances; fewer where Falcon's replicas, which experts make larger, do not divide by them."""
    return Zero(stage, gcd(max(instances, 1), layout.replicas)) if stage > 0 else WHOLE


def parts_of(zero: Zero, layout: Layout) -> int:
    """How many replicas an instance is spread over, in the order of their numbers."""
    return layout.replicas // zero.instances if zero.stage > 0 else 1


def of_torch(optimizer: Any, layout: Layout) -> Zero:
    """A ZeroRedundancyOptimizer, or an optimizer that is whole."""
    kind = getattr(sys.modules.get(TORCH), "ZeroRedundancyOptimizer", None)
    if kind is None or not isinstance(optimizer, kind):
        return WHOLE
    ranks = dist.get_process_group_ranks(getattr(optimizer, "process_group", None) or dist.group.WORLD)
    in_order = ranks == list(range(ranks[0], ranks[0] + len(ranks))) and ranks[0] % len(ranks) == 0
    return spread(1, layout.world // len(ranks) if in_order else 1, layout)


def of_megatron(parts: Sequence[Any], layout: Layout, args: Any = None) -> Zero:
    """Megatron's distributed optimizer, or one that is whole, by the configs of model chunks and optimizer."""
    configs = [c for part in parts for c in (getattr(part, "ddp_config", None), getattr(part, "config", None))] + [args]
    names = ("use_distributed_optimizer", "use_layer_wise_distributed_optimizer")
    if not any(getattr(config, name, False) for config in configs for name in names):
        return WHOLE
    name = "num_distributed_optimizer_instances"
    found: set[int] = {getattr(config, name) for config in configs if hasattr(config, name)}
    return spread(1, found.pop() if len(found) == 1 else 1, layout)
