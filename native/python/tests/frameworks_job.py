"""Scripts of transformers, accelerate, Lightning and DeepSpeed on CPUs, as a user has them, but for one line."""

from __future__ import annotations

import importlib
import importlib.util
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import falcon_torch
from fake_hook import Mailbox

STEPS, SIZE, PER_STEP, WIDTH, RATE, IGNORED = 6, 2, 4, 8, 0.1, -100  # PER_STEP: batches of a rank in a step


MODULES = {
    "transformers": "transformers.trainer",
    "accelerate": "accelerate",
    "lightning": "lightning.pytorch",
    "deepspeed": "deepspeed",
}
os.environ["DS_ACCELERATOR"] = "cpu"
NAMES = [name for name in MODULES if importlib.util.find_spec(name) is not None]
for name in NAMES:
    importlib.import_module(MODULES[name])  # once, for all ranks that are forked


class Samples(torch.utils.data.Dataset):  # type: ignore[misc]
    """Samples that are known by number."""

    def __init__(self, count: int, masks: int = 1) -> None:
        self.count, self.masks = count, masks

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        random = torch.Generator().manual_seed(1000 + index)
        x, labels = torch.randn(WIDTH, generator=random), torch.randn(2, generator=random)
        labels[: index % self.masks] = IGNORED
        return {"x": x, "labels": labels, "number": index}


def samples(masks: int = 1) -> Samples:
    return Samples(STEPS * PER_STEP * SIZE * dist.get_world_size(), masks)


class Resumable(torch.utils.data.DataLoader):  # type: ignore[misc]
    """A loader that goes on in the midst of an epoch, without which Lightning begins the epoch again."""

    at = first = 0

    def __iter__(self) -> Any:
        for k, batch in enumerate(super().__iter__()):
            if k >= self.first:
                self.at = k + 1
                yield batch

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.first = state["at"]


class Net(nn.Module):
    """The same weights on every rank. It has the samples that it has seen."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.layers = nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, 2))
        self.seen: list[list[int]] = [[]]

    def forward(self, x: Any, labels: Any, number: Any) -> Any:
        if self.training:
            self.seen[-1] += number.tolist()
        return {"loss": (self.layers(x) - labels).square().mean()}


class TokenNet(Net):
    """A network whose loss is divided by the tokens of all ranks: some samples have fewer than others."""

    def forward(self, x: Any, labels: Any, number: Any, num_items_in_batch: Any = None, **_: Any) -> Any:
        if self.training:
            self.seen[-1] += number.tolist()
        counts = labels.ne(IGNORED)
        losses = (self.layers(x) - labels.where(counts, 0)).square() * counts
        return {"loss": losses.sum() / (counts.sum() if num_items_in_batch is None else num_items_in_batch)}


def keep(model: Net, gradients: list[Any]) -> None:
    """Keep what a step had."""
    gradients.append([p.grad.clone().numpy() for p in model.parameters() if p.grad is not None])
    model.seen.append([])


def watch(model: Net, optimizer: Any, gradients: list[Any]) -> None:
    """Keep what each step had."""
    optimizer.register_step_pre_hook(lambda *_: keep(model, gradients))


def of_transformers(folder: str, again: bool, model: Net, gradients: list[Any], masks: int = 1) -> int:
    hf = importlib.import_module("transformers.trainer")
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    watch(model, optimizer, gradients)
    args = hf.TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=SIZE,
        gradient_accumulation_steps=PER_STEP,
        num_train_epochs=1,
        max_grad_norm=0,
        lr_scheduler_type="constant",
        use_cpu=True,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
        train_sampling_strategy="sequential",
    )
    trainer = hf.Trainer(model, args, train_dataset=samples(masks), optimizers=(optimizer, None))
    falcon_torch.transformers(trainer)
    trainer.train(resume_from_checkpoint=again)
    return int(trainer.state.global_step)


def of_accelerate(folder: str, again: bool, model: Net, gradients: list[Any]) -> int:
    made = importlib.import_module("accelerate").Accelerator(cpu=True, gradient_accumulation_steps=PER_STEP)
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    watch(model, optimizer, gradients)
    loader = torch.utils.data.DataLoader(samples(), batch_size=SIZE)
    wrapped, prepared, loader = made.prepare(model, optimizer, loader)
    step = max((int(p.name) for p in Path(folder).iterdir()), default=0) if again else 0
    if again:
        made.load_state(f"{folder}/{step}")
    falcon_torch.accelerate(made, save=folder, begin=step)
    for batch in made.skip_first_batches(loader, step * PER_STEP):
        with made.accumulate(wrapped):
            made.backward(wrapped(**batch)["loss"])
            prepared.step()
            prepared.zero_grad()
        step += int(made.sync_gradients)
    return step


def of_lightning(folder: str, again: bool, model: Net, gradients: list[Any]) -> int:
    pl = importlib.import_module("lightning.pytorch")
    callbacks = importlib.import_module("lightning.pytorch.callbacks")

    class Module(pl.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = model

        def training_step(self, batch: Any, _: int) -> Any:
            return self.net(**batch)["loss"]

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), RATE)

        def on_before_optimizer_step(self, _: Any) -> None:
            keep(model, gradients)

    trainer = pl.Trainer(
        accelerator="cpu",
        devices=dist.get_world_size(),
        strategy=importlib.import_module("lightning.pytorch.strategies").DDPStrategy(process_group_backend="gloo"),
        max_epochs=1,
        min_steps=STEPS,
        accumulate_grad_batches=PER_STEP,
        callbacks=[callbacks.ModelCheckpoint(dirpath=folder, save_last=True)],
        plugins=[importlib.import_module("lightning.pytorch.plugins.environments").LightningEnvironment()],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    sampler = torch.utils.data.distributed.DistributedSampler(samples(), shuffle=False)
    loader = Resumable(samples(), batch_size=SIZE, sampler=sampler)
    falcon_torch.lightning(trainer)
    trainer.fit(Module(), loader, ckpt_path="last" if again else None, weights_only=False)
    return int(trainer.global_step)


def of_deepspeed(folder: str, again: bool, model: Net, gradients: list[Any], stage: int = 1) -> int:
    deepspeed = importlib.import_module("deepspeed")
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None  # it compiles
    config = {
        "train_micro_batch_size_per_gpu": SIZE,
        "gradient_accumulation_steps": PER_STEP,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
    }
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    watch(model, optimizer, gradients)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config, dist_init_required=False)
    if again:
        engine.load_checkpoint(folder)
    falcon_torch.deepspeed(engine, save=folder)
    sampler = torch.utils.data.distributed.DistributedSampler(samples(), shuffle=False)
    loader = torch.utils.data.DataLoader(samples(), batch_size=SIZE, sampler=sampler)
    skip = engine.global_steps * PER_STEP
    for k, batch in enumerate(loader):
        if k >= skip:
            engine.backward(engine(**batch)["loss"])
            engine.step()
    return int(engine.global_steps)


SCRIPTS = {
    "transformers": of_transformers,
    "accelerate": of_accelerate,
    "lightning": of_lightning,
    "deepspeed": of_deepspeed,
}


def play_job(mailbox: Mailbox, name: str, folder: str, again: bool, options: dict[str, Any]) -> dict[str, Any]:
    """A rank of a script."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29500", NODE_RANK="0")
    model, gradients = TokenNet() if options.get("masks") else Net(), list[Any]()
    end: Any = "returned"
    step = -1
    try:
        step = SCRIPTS[name](folder, again, model, gradients, **options)
    except SystemExit as left:
        end = f"exit {left.code}"
    weights = [p.detach().numpy().copy() for p in model.parameters()]
    seen = [s for s in model.seen if s]
    return {"mailbox": mailbox, "gradients": gradients, "seen": seen, "end": end, "step": step, "weights": weights}
