"""A LightningModule, as a user has it, with one line for Falcon. of_lightning.py FOLDER."""

import os
import sys
from collections.abc import Iterator
from typing import Any

import falcon_torch
import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.environments import TorchElasticEnvironment

from small import AGAIN, PER_BATCH, PER_STEP, STEPS, Net, Samples, tell


class Module(pl.LightningModule):
    """Trains the network, and logs steps."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Net()
        self.told = 0

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        return self.net(**batch)["loss"]

    def on_train_start(self) -> None:
        self.told = self.trainer.global_step

    def on_train_batch_end(self, outputs: Any, *_: Any) -> None:
        if self.trainer.global_step > self.told:
            outputs["loss"].item()
            self.told = self.trainer.global_step
            tell(sys.argv[1], self.told)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


class Resumable(torch.utils.data.DataLoader[Any]):
    """A loader that goes on in the midst of an epoch, without which Lightning begins the epoch again."""

    at = first = 0

    def __iter__(self) -> Iterator[Any]:
        for k, batch in enumerate(super().__iter__()):
            if k >= self.first:
                self.at = k + 1
                yield batch

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.first = state["at"]


def main() -> None:
    local = int(os.environ["LOCAL_WORLD_SIZE"])
    trainer = pl.Trainer(
        accelerator="gpu",
        devices=local,
        num_nodes=int(os.environ["WORLD_SIZE"]) // local,
        strategy="ddp",
        max_steps=STEPS,
        accumulate_grad_batches=PER_STEP,
        callbacks=[ModelCheckpoint(dirpath=sys.argv[1], save_last=True)],
        plugins=[TorchElasticEnvironment()],  # RANK and WORLD_SIZE hold, also outside torchrun
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    falcon_torch.lightning(trainer)
    loader = Resumable(Samples(), batch_size=PER_BATCH)
    trainer.fit(Module(), loader, ckpt_path="last" if AGAIN else None)


if __name__ == "__main__":
    main()
