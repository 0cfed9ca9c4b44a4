"""A small model, its data by sample number, and the gradients that a job must have."""

from __future__ import annotations

import torch
from torch import nn

WIDTH = 6
SAMPLES = 3  # of a micro-batch
RATE = 0.1


def network(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    """The same weights on every rank."""
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2)).to(dtype)


def batch(number: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """The inputs and targets of one micro-batch."""
    random = torch.Generator().manual_seed(1000 + number)
    inputs = torch.randn(SAMPLES, WIDTH, generator=random, dtype=torch.float64)
    targets = torch.randn(SAMPLES, 2, generator=random, dtype=torch.float64)
    return inputs.to(dtype), targets.to(dtype)


def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Mean over the samples of a micro-batch."""
    return (output - target).pow(2).mean()


def tolerance(dtype: torch.dtype) -> float:
    """How far rounding alone may take a gradient from the reference's, relative to its largest element.

    Three to four times the most seen. It depends on the processor, whose kernels sum in an order of their own;
    a micro-batch with a wrong weight is off by 1e-2 and more.
    """
    return 32 * torch.finfo(dtype).eps  # 3.8e-6 in single precision, 7.1e-15 in double


def reference(iterations: int, per_iteration: int, dtype: torch.dtype = torch.float32) -> list[list[torch.Tensor]]:
    """The gradients of each iteration of one process that runs the whole global batch.

    The weights and the data are dtype's, the arithmetic is double: single precision here
    would add errors of rounding, of which each processor has its own, to those judged.
    """
    model = network(dtype).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    out = []
    for i in range(iterations):
        for number in range(i * per_iteration, (i + 1) * per_iteration):
            inputs, targets = (t.double() for t in batch(number, dtype))
            (loss(model(inputs), targets) / per_iteration).backward()
        out.append([p.grad.clone() for p in model.parameters()])
        optimizer.step()
        optimizer.zero_grad()
    return out
