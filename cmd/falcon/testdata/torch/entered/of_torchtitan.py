"""torchtitan's own Trainer under falcon_torch.run, whose ranks are killed from outside.

Each rank writes the numbers of the batches of each step into a file of its own in the folder of the first argument.
"""

import importlib
import importlib.abc
import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import torch
import torch.distributed as dist

import falcon_torch

TOKENS, SAMPLES, BATCHES, WORDS = (
    16,
    2,
    8,
    64,
)  # BATCHES: of SAMPLES samples, in a step of the job
FOLDER = Path(sys.argv[1])
REPLICAS, SHARDS = int(sys.argv[2]), int(sys.argv[3])


class Unused(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for packages that torchtitan imports and this job does not use: kernels, data sets, reports."""

    NAMES = (
        "triton",
        "datasets",
        "wandb",
        "PIL",
        "tensorboard",
        "huggingface_hub",
        "rich",
    )

    def __init__(self) -> None:
        self.absent = [
            name for name in self.NAMES if importlib.util.find_spec(name) is None
        ]
        if "tensorboard" in self.absent:
            sys.modules["torch.utils.tensorboard"] = MagicMock()

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        return (
            ModuleSpec(name, self, is_package=True)
            if name.partition(".")[0] in self.absent
            else None
        )

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        made: Any = MagicMock(name=spec.name)
        made.__name__, made.__spec__, made.__path__ = spec.name, spec, []
        return made

    def exec_module(self, _: ModuleType) -> None:
        """Nothing is in it."""


# What PyTorch itself does with triton it finds out when these are imported: that must be the truth.
for first in (
    "torch.utils.flop_counter",
    "torch._inductor.compile_fx",
    "torch._inductor.select_algorithm",
):
    importlib.import_module(first)
finder = Unused()
sys.meta_path.append(finder)
trainer_of: Any = importlib.import_module("torchtitan.trainer")
config_of: Any = importlib.import_module("torchtitan.config")
llama: Any = importlib.import_module("torchtitan.models.llama3")
optimizer_of: Any = importlib.import_module("torchtitan.components.optimizer")
loss_of: Any = importlib.import_module("torchtitan.components.loss")
loader_of: Any = importlib.import_module("torchtitan.components.dataloader")
tokenizer_of: Any = importlib.import_module("torchtitan.components.tokenizer")
checkpoint_of: Any = importlib.import_module("torchtitan.components.checkpoint")
attention_of: Any = importlib.import_module("torchtitan.models.common.attention")
sys.meta_path.remove(finder)
for name in [m for m in sys.modules if m.partition(".")[0] in finder.absent]:
    del sys.modules[name]


class Tokenizer(tokenizer_of.BaseTokenizer):
    @dataclass(kw_only=True, slots=True)
    class Config(tokenizer_of.BaseTokenizer.Config):
        pass

    def __init__(self, **_: Any) -> None:
        super().__init__()

    def encode(self, *_: Any, **__: Any) -> list[int]:
        return []

    def decode(self, *_: Any, **__: Any) -> str:
        return ""

    def get_vocab_size(self) -> int:
        return WORDS


class Batches(loader_of.BaseDataLoader):
    """Batches that are known by number, dealt in turn to the data-parallel ranks."""

    @dataclass(kw_only=True, slots=True)
    class Config(loader_of.BaseDataLoader.Config):
        pass

    def __init__(self, *, dp_world_size: int, dp_rank: int, **_: Any) -> None:
        self.width, self.rank, self.at = dp_world_size, dp_rank, 0

    def __iter__(self) -> Iterator[Any]:
        while True:
            self.at += 1
            number = (self.at - 1) * self.width + self.rank
            tokens = torch.full((SAMPLES, TOKENS + 1), number % WORDS)
            yield (
                {"input": tokens[:, :-1], "number": torch.tensor(number)},
                tokens[:, 1:].clone(),
            )

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


def config(folder: str) -> Any:
    spec = llama.model_registry("debugmodel")
    del spec.model.layers[2:]
    for layer in spec.model.layers:  # attention that needs no compiler
        layer.attention.inner_attention = (
            attention_of.ScaledDotProductAttention.Config()
        )
    return trainer_of.Trainer.Config(
        model_spec=spec,
        dump_folder=folder,
        tokenizer=Tokenizer.Config(),
        dataloader=Batches.Config(),
        loss=loss_of.CrossEntropyLoss.Config(),
        optimizer=optimizer_of.default_adamw(lr=1e-2),
        training=config_of.TrainingConfig(
            local_batch_size=SAMPLES,
            global_batch_size=SAMPLES * BATCHES,
            seq_len=TOKENS,
            steps=int(os.environ["ITERATIONS"]),
            disable_cuda_graphs=True,
            mixed_precision_param="float32",
        ),
        parallelism=config_of.ParallelismConfig(
            data_parallel_replicate_degree=REPLICAS, data_parallel_shard_degree=SHARDS
        ),
        checkpoint=checkpoint_of.CheckpointManager.Config(enable=False, interval=1000),
    )


def train() -> None:
    with tempfile.TemporaryDirectory() as folder:
        trainer = config(folder).build()
        falcon_torch.torchtitan(trainer)
        seen: list[int] = []
        batch_of, update = trainer.post_dataloading_process, trainer.optimizers.step

        def look(batch: dict[str, Any], labels: Any) -> Any:
            seen.append(int(batch.pop("number")))
            return batch_of(batch, labels)

        def step() -> None:
            line = {
                "at": time.time_ns(),
                "iteration": trainer.step - 1,
                "rank": dist.get_rank(),
                "samples": seen[:],
            }
            with (FOLDER / f"{os.getpid()}.jsonl").open("a") as out:
                out.write(json.dumps(line) + "\n")
            seen.clear()
            update()

        trainer.post_dataloading_process, trainer.optimizers.step = look, step
        trainer.train()
        trainer.close()


torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
falcon_torch.run(train)
