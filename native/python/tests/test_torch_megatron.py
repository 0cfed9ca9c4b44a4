"""Megatron-core's own schedules on CPUs: whatever the split, the gradients are the global batch's."""

from __future__ import annotations

import importlib.util
import sys
from functools import partial
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
import torch.distributed as dist

import falcon_torch
import model
from fake_hook import Mailbox, Post, split
from ranks import play, same

TRITON = "megatron.core.transformer.moe.ops.paged_stash"  # of experts; no schedule here calls it

if importlib.util.find_spec("megatron") is None:
    pytest.skip("megatron-core is not installed", allow_module_level=True)
if importlib.util.find_spec("triton") is None:
    sys.modules[TRITON] = MagicMock()
schedules = importlib.import_module("megatron.core.pipeline_parallel.schedules")
parallel_state = importlib.import_module("megatron.core.parallel_state")
ModelParallelConfig = importlib.import_module("megatron.core").ModelParallelConfig

ITERATIONS = 8


class OnCpu:
    """torch for Megatron's schedules, which count tokens on a device "cuda" wherever the model is."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def zeros(*args: Any, device: Any = None, **options: Any) -> torch.Tensor:
        del device
        return torch.zeros(*args, **options)


schedules.torch = OnCpu()


class Model(torch.nn.Module):
    """The network with what Megatron's schedules ask a model for."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.network, self.config, self.model_type = model.network(), config, "encoder_or_decoder"

    def set_input_tensor(self, _: Any) -> None:
        """Take the input of an earlier stage: there is none."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.network(inputs)  # type: ignore[no-any-return]


def reduce_gradients(models: list[Any], num_tokens: Any = None, **_: Any) -> None:
    """What finalize_model_grads does to gradients: the mean over replicas, or the sum by all tokens."""
    divide_by = torch.tensor(float(dist.get_world_size()))
    if num_tokens is not None:
        divide_by = num_tokens.clone().float()
        dist.all_reduce(divide_by)
    for p in models[0].parameters():
        dist.all_reduce(p.grad)
        p.grad /= divide_by


def forward_step(batches: Any, of: Any) -> tuple[torch.Tensor, Any]:
    inputs, targets = model.batch(next(batches))
    return of(inputs), partial(loss_of, of.config.calculate_per_token_loss, targets)


def loss_of(per_token: bool, targets: torch.Tensor, output: torch.Tensor) -> Any:
    mean = model.loss(output, targets)
    tokens = torch.tensor(targets.shape[0], dtype=torch.int)
    return (mean * tokens, tokens, {"loss": mean.detach()}) if per_token else (mean, {"loss": mean.detach()})


def train(mailbox: Mailbox, micro_batches: int, per_token: bool, scale: float | None) -> dict[str, Any]:
    parallel_state.initialize_model_parallel()
    config = ModelParallelConfig(finalize_model_grads_func=reduce_gradients)
    if scale is not None:
        config.grad_scale_func = lambda loss: loss * scale
    config.deallocate_pipeline_outputs = False
    # What schedules ask of a TransformerConfig.
    vars(config).update(
        calculate_per_token_loss=per_token,
        hybrid_context_parallel=False,
        fine_grained_activation_offloading=False,
        cuda_graph_impl="none",
        cuda_graph_scope=[],
        overlap_moe_expert_parallel_comm=False,
        num_moe_experts=None,
        mtp_num_layers=None,
        context_parallel_size=1,
    )
    network = Model(config)
    optimizer = torch.optim.SGD(network.parameters(), lr=model.RATE)
    function = schedules.get_forward_backward_func()
    job = falcon_torch.megatron(function, network, optimizer, micro_batches, f"dp={dist.get_world_size()}")
    gradients, splits, losses = [], [], 0
    while job.next_iteration(ITERATIONS):
        splits.append(job.split)
        common = {"forward_step_func": forward_step, "model": network, "seq_length": 1, "micro_batch_size": 1}
        out = job.forward_backward(
            data_iterator=iter(job.numbers()), num_microbatches=micro_batches, forward_only=False, **common
        )
        losses += len(out)
        gradients.append([(p.grad / (scale or 1)).numpy().copy() for p in network.parameters()])
        for p in network.parameters():
            p.grad /= scale or 1
        optimizer.step()
        optimizer.zero_grad()
        check = job.forward_backward(data_iterator=iter(range(3)), num_microbatches=3, forward_only=True, **common)
        assert len(check) == 3
    return {"gradients": gradients, "splits": splits, "losses": losses, "mailbox": mailbox}


POSTS = [split(0, 1, [1, 7]), split(3, 2, [6, 2])]


@pytest.mark.parametrize(("per_token", "scale"), [(False, None), (False, 1024.0), (True, None)])
def test_gradients_with_uneven_splits(per_token: bool, scale: float | None, record_property: Any) -> None:
    posts: list[Post] = POSTS
    ranks = play(2, train, 4, per_token, scale, posts=posts)
    splits = ranks[0]["splits"]
    assert [s for k, s in enumerate(splits) if k and s != splits[k - 1]] == [p.order.values for p in posts]
    assert [r["losses"] for r in ranks] == [sum(s[k] for s in splits) for k in range(2)]
    want = model.reference(ITERATIONS, 8)
    worst = max(
        same(torch.from_numpy(got), expected)
        for rank in ranks
        for both in zip(rank["gradients"], want, strict=True)
        for got, expected in zip(*both, strict=True)
    )
    record_property("largest_relative_difference", worst)
    assert worst <= 1e-6


def misuse(_: Mailbox) -> str:
    with pytest.raises(ValueError, match=r"\w+") as e:
        falcon_torch.megatron(schedules.forward_backward_no_pipelining, model.network(), None, 4, "dp=1")
    return str(e.value)


def test_misuse_is_refused_with_a_sentence() -> None:
    assert play(1, misuse) == ["model is a Sequential without Megatron's config"]
