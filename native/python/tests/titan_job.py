"""A job of torchtitan's own Trainer on CPUs: a small Llama on samples that are known by number."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch._utils
import torch.distributed as dist
from torch.distributed.tensor import distribute_tensor

import falcon_torch
from fake_hook import Mailbox
from unused import unused

torch._utils._get_available_device_type = lambda: "cpu"  # torchtitan asks once, when it is imported

STEPS, SEQ, SIZE, BATCHES, VOCAB = 6, 16, 2, 8, 64  # BATCHES: of SIZE samples, in a step of the job
with unused("triton", "datasets", "wandb", "PIL", "tensorboard", "huggingface_hub", "rich"):
    trainer_of: Any = importlib.import_module("torchtitan.trainer")
    config_of: Any = importlib.import_module("torchtitan.config")
    llama: Any = importlib.import_module("torchtitan.models.llama3")
    optimizer_of: Any = importlib.import_module("torchtitan.components.optimizer")
    loss_of: Any = importlib.import_module("torchtitan.components.loss")
    loader_of: Any = importlib.import_module("torchtitan.components.dataloader")
    tokenizer_of: Any = importlib.import_module("torchtitan.components.tokenizer")
    checkpoint_of: Any = importlib.import_module("torchtitan.components.checkpoint")
    attention_of: Any = importlib.import_module("torchtitan.models.common.attention")
    metrics_of: Any = importlib.import_module("torchtitan.components.metrics")


class Memory:
    """What a monitor of a GPU's memory says."""

    device_name, device_capacity = "cpu", 1

    def get_peak_stats(self) -> Any:
        return metrics_of.DeviceMemStats(0, 0, 0, 0, 0, 0)

    def reset_peak_stats(self) -> None:
        """Nothing is counted."""


metrics_of.build_device_memory_monitor = Memory
trainer_of.dist_utils.set_pg_timeouts = lambda **_: None  # it numbers devices


def sample(number: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Batch number of all ranks' batches; it has the number as its first token's label, and some tokens are masked."""
    random = torch.Generator().manual_seed(1000 + number)
    tokens = torch.randint(0, VOCAB, (SIZE, SEQ + 1), generator=random)
    labels = tokens[:, 1:].clone()
    labels[:, : number % 5] = loss_of.IGNORE_INDEX
    return {"input": tokens[:, :-1], "number": torch.tensor(number)}, labels


class Tokenizer(tokenizer_of.BaseTokenizer):  # type: ignore[misc]
    @dataclass(kw_only=True, slots=True)
    class Config(tokenizer_of.BaseTokenizer.Config):  # type: ignore[misc]
        pass

    def __init__(self, **_: Any) -> None:
        super().__init__()

    def encode(self, *_: Any, **__: Any) -> list[int]:
        return []

    def decode(self, *_: Any, **__: Any) -> str:
        return ""

    def get_vocab_size(self) -> int:
        return VOCAB


class Batches(loader_of.BaseDataLoader):  # type: ignore[misc]
    """Batches dealt in turn to the data-parallel ranks."""

    @dataclass(kw_only=True, slots=True)
    class Config(loader_of.BaseDataLoader.Config):  # type: ignore[misc]
        pass

    def __init__(self, *, dp_world_size: int, dp_rank: int, **_: Any) -> None:
        self.width, self.rank, self.at = dp_world_size, dp_rank, 0

    def __iter__(self) -> Iterator[Any]:
        while True:
            self.at += 1
            yield sample((self.at - 1) * self.width + self.rank)

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


def config(folder: str, replicate: int, shard: int, keeps: bool) -> Any:
    """A job whose parameters stay as they are, so that each step's gradients can be compared."""
    spec = llama.model_registry("debugmodel")
    del spec.model.layers[2:]
    for layer in spec.model.layers:  # attention that needs no compiler
        layer.attention.inner_attention = attention_of.ScaledDotProductAttention.Config()
    return trainer_of.Trainer.Config(
        model_spec=spec,
        dump_folder=folder,
        tokenizer=Tokenizer.Config(),
        dataloader=Batches.Config(),
        loss=loss_of.CrossEntropyLoss.Config(),
        optimizer=optimizer_of.default_adamw(lr=0.0),
        training=config_of.TrainingConfig(
            local_batch_size=SIZE,
            global_batch_size=SIZE * BATCHES,
            seq_len=SEQ,
            steps=STEPS,
            max_norm=1e9,
            disable_cuda_graphs=True,
            mixed_precision_param="float32",
        ),
        parallelism=config_of.ParallelismConfig(
            data_parallel_replicate_degree=replicate, data_parallel_shard_degree=shard
        ),
        checkpoint=checkpoint_of.CheckpointManager.Config(enable=keeps, interval=1000),
    )


def set_weights(model: torch.nn.Module) -> None:
    """The same weights however they are sharded; torchtitan draws others for other shards."""
    for k, p in enumerate(model.parameters()):
        whole = torch.randn(p.shape, generator=torch.Generator().manual_seed(k)) / p.shape[-1] ** 0.5
        p.data.copy_(distribute_tensor(whole, p.device_mesh, p.placements, src_data_rank=None))  # type: ignore[attr-defined]


def play_job(mailbox: Mailbox, replicate: int, shard: int, folder: str = "", adapt: bool = True) -> dict[str, Any]:
    """A rank of the job."""
    with tempfile.TemporaryDirectory() as own:
        trainer = config(folder or own, replicate, shard, bool(folder)).build()
        if adapt:
            falcon_torch.torchtitan(trainer)
        seen: list[list[int]] = []
        gradients: list[list[Any]] = []
        theirs = trainer.post_dataloading_process

        def look(batch: dict[str, Any], labels: Any) -> Any:
            seen[-1].append(int(batch.pop("number")))
            return theirs(batch, labels)

        trainer.post_dataloading_process = look

        update, (model,) = trainer.optimizers.step, trainer.model_parts
        set_weights(model)
        for module in model.modules():
            if hasattr(module, "set_force_sum_reduction_for_comms"):  # gloo has no other that does not divide
                module.set_force_sum_reduction_for_comms(True)

        def step() -> None:
            gradients.append([p.grad.full_tensor().numpy().copy() for p in model.parameters()])
            seen.append([])
            update()

        seen.append([])
        trainer.optimizers.step = step
        trainer.train()
        trainer.close()
        dist.barrier()
    return {"gradients": gradients, "seen": [s for s in seen if s], "mailbox": mailbox, "step": trainer.step}
