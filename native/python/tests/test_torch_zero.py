"""What is declared of an optimizer that is spread over the replicas, and of what it can't do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer

import falcon_torch
from fake_hook import Mailbox, placement
from falcon_torch import _hook
from falcon_torch._mesh import place
from falcon_torch._zero import of_megatron, spread
from model import batch, loss, network
from ranks import play


def train(mailbox: Mailbox, groups: list[list[int]] | None) -> Any:
    """What a job of DDP declares, whose optimizer is spread over groups; None where it is whole."""
    model = nn.parallel.DistributedDataParallel(network())
    if groups is None:
        optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), 0.1)
    else:
        made = [dist.new_group(ranks) for ranks in groups]
        (mine,) = [g for g, ranks in zip(made, groups, strict=True) if dist.get_rank() in ranks]
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, process_group=mine, lr=0.1)
    job = falcon_torch.ddp(model, optimizer, 2, groups=lambda: None)
    while job.next_iteration(until=4):
        for number in job.micro_batches():
            inputs, targets = batch(number)
            job.backward(loss(model(inputs), targets))
        optimizer.step()
        optimizer.zero_grad()
    return mailbox.of("zero")[-1], mailbox.of("can")[-1][0], [ack[-1] for ack in mailbox.of("ack")]


@pytest.mark.parametrize(
    ("groups", "zero"),
    [
        (None, (0, 0)),
        ([[0, 1, 2, 3]], (1, 1)),
        ([[0, 1], [2, 3]], (1, 2)),
        ([[0, 2], [1, 3]], (1, 1)),  # in another order than Falcon's: no more than one copy is claimed
    ],
    ids=str,
)
def test_a_spread_optimizer_is_neither_parked_nor_moved(groups: Any, zero: tuple[int, int]) -> None:
    whole = groups is None
    for declared, can, acks in play(4, train, groups, posts=[placement(0, 1, [1, 0])]):
        assert declared == zero
        assert can & _hook.CAN_SPLIT
        assert bool(can & _hook.CAN_PARK) == bool(can & _hook.CAN_PLACE) == whole
        assert acks == [0 if whole else _hook.REFUSED_KIND]


def chunk(**ddp: Any) -> Any:
    return SimpleNamespace(ddp_config=SimpleNamespace(**ddp), config=SimpleNamespace())


@pytest.mark.parametrize(
    ("parts", "args", "zero"),
    [
        ([chunk(use_distributed_optimizer=False, num_distributed_optimizer_instances=1)], {}, (0, 0)),
        ([chunk(use_distributed_optimizer=True, num_distributed_optimizer_instances=1)], {}, (1, 1)),
        ([chunk(use_distributed_optimizer=True, num_distributed_optimizer_instances=2)] * 2, {}, (1, 2)),
        ([chunk(use_distributed_optimizer=True)], {"num_distributed_optimizer_instances": 4}, (1, 4)),
        ([chunk(use_distributed_optimizer=True)], {}, (1, 1)),
        ([chunk()], {"use_layer_wise_distributed_optimizer": True}, (1, 1)),
        ([SimpleNamespace(config=SimpleNamespace(use_distributed_optimizer=True)), None], {}, (1, 1)),
    ],
    ids=str,
)
def test_megatron_says_so_in_its_configs(parts: list[Any], args: dict[str, Any], zero: tuple[int, int]) -> None:
    assert of_megatron(parts, place("dp=8", 0, 8), SimpleNamespace(**args)) == zero


def test_no_more_copies_than_falcon_s_replicas_can_have() -> None:
    joined = place("tp=1,ep=8,dp=8", 0, 8)  # experts make one replica of them
    assert (joined.replicas, spread(1, 2, joined)) == (1, (1, 1))
    assert spread(1, 3, place("dp=8", 0, 8)) == (1, 1)
    assert spread(0, 4, place("dp=8", 0, 8)) == (0, 0)
