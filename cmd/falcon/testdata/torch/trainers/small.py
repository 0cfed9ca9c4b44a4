"""What the scripts beside it train: a small network on numbered samples, and what they tell of their steps."""

import os
import time
from typing import Any

import torch
from torch import nn

WIDTH, PER_BATCH, PER_STEP = 128, 256, 4  # PER_STEP: batches of a rank in a step
STEPS = int(os.environ["ITERATIONS"])
AGAIN = os.environ.get("FALCON_RESUME") == "1"  # whether a checkpoint is to be gone on from


class Samples(torch.utils.data.Dataset[dict[str, Any]]):
    """As many as all ranks take in all steps."""

    def __len__(self) -> int:
        return STEPS * PER_STEP * PER_BATCH * int(os.environ["WORLD_SIZE"])

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.full((WIDTH,), float(index % 7)), "labels": index % 7}

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        return [self[k] for k in indices]


class Net(nn.Module):
    """Layers of different sizes, which give their loss as the models of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        hidden = [m for _ in range(3) for m in (nn.Linear(256, 256), nn.GELU())]
        self.layers = nn.Sequential(nn.Linear(WIDTH, 256), *hidden, nn.Linear(256, 64))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": nn.functional.cross_entropy(self.layers(x), labels)}


def tell(folder: str, step: int) -> None:
    """Add the end of a step to the folder's steps.txt, on the first rank alone: as a script logs its loss."""
    if os.environ["RANK"] == "0":
        with open(f"{folder}/steps.txt", "a") as file:
            file.write(f"{time.time_ns()} {step}\n")
