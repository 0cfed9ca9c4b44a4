"""Megatron-LM's own pretrain() under falcon_torch.run, whose ranks are killed from outside.

Each rank writes the samples of each iteration into a file of its own in the folder of the first argument; the
other arguments are Megatron's.
"""

import importlib
import importlib.util
import json
import os
import sys
import time
import typing
import warnings
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import torch
import torch.distributed as dist
import typing_extensions
from torch import nn

import falcon_torch

typing.override = (
    typing_extensions.override
)  # of Python 3.12; Megatron-LM needs no more of it
if importlib.util.find_spec("triton") is None:
    sys.modules["megatron.core.transformer.moe.ops.paged_stash"] = (
        MagicMock()
    )  # of experts; this model has none

WIDTH, TOKENS, SAMPLES, LAYERS = 64, 4, 2, 4
ARGUMENTS = f"""
--num-layers {LAYERS} --hidden-size {WIDTH} --num-attention-heads 2 --seq-length {TOKENS}
--max-position-embeddings {TOKENS} --micro-batch-size {SAMPLES} --transformer-impl local --no-persist-layer-norm
--no-gradient-accumulation-fusion --distributed-backend nccl --vocab-size 32 --tokenizer-type NullTokenizer
--no-bias-gelu-fusion --no-bias-dropout-fusion --no-masked-softmax-fusion --no-rope-fusion --eval-iters 0
--eval-interval 1000000 --optimizer sgd --sgd-momentum 0 --weight-decay 0 --lr 0.1 --lr-decay-style constant
--clip-grad 0 --num-workers 1 --log-interval 1 --no-check-for-nan-in-loss-and-grad --dataloader-type single
--train-iters {os.environ["ITERATIONS"]}
"""
FOLDER = Path(sys.argv[1])


class Samples(torch.utils.data.Dataset):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"index": index, "x": torch.ones(TOKENS, WIDTH)}


def stage_class() -> Any:
    base = importlib.import_module("megatron.core.transformer.module").MegatronModule

    class Stage(base):
        """A stage's share of the layers."""

        def __init__(self, config: Any, first: bool, last: bool, count: int) -> None:
            super().__init__(config)
            self.layers = nn.Sequential(
                *(
                    nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
                    for _ in range(count)
                )
            )
            self.pre_process, self.post_process, self.came = first, last, None
            self.share_embeddings_and_output_weights = False

        def set_input_tensor(self, came: Any) -> None:
            self.came = came[0] if isinstance(came, list) else came

        def forward(self, x: Any) -> Any:
            return self.layers(
                x.transpose(0, 1).cuda() if self.pre_process else self.came
            )

    return Stage


class Script:
    def __init__(self) -> None:
        self.training = importlib.import_module("megatron.training.training")
        self.arguments = importlib.import_module("megatron.training.arguments")
        importlib.import_module("megatron.core.datasets.utils").compile_helpers = (
            lambda: None
        )  # of datasets of text
        self.training.set_jit_fusion_options = lambda **_: None  # it compiles for a GPU
        sys.argv = ["train.py", *ARGUMENTS.split(), *sys.argv[2:]]
        self.seen: list[int] = []

    def provide(
        self,
        pre_process: bool,
        post_process: bool,
        config: Any = None,
        pg_collection: Any = None,
    ) -> Any:
        config = config or self.arguments.core_transformer_config_from_args(
            self.training.get_args()
        )
        whole = importlib.import_module(
            "megatron.core.distributed"
        ).finalize_model_grads

        def finalize(model: list[Any], *args: Any, **kwargs: Any) -> None:
            whole(model, *args, **kwargs)
            self.write()

        config.finalize_model_grads_func = finalize
        stages = self.training.mpu.get_pipeline_model_parallel_world_size()
        made = stage_class()(config, pre_process, post_process, LAYERS // stages)
        made.pg_collection = pg_collection
        return made

    def write(self) -> None:
        """Note which samples the gradients of this iteration are of."""
        args = self.training.get_args()
        iteration = int(args.consumed_train_samples) // int(args.global_batch_size)
        line = {
            "at": time.time_ns(),
            "iteration": iteration,
            "rank": dist.get_rank(),
            "samples": self.seen,
        }
        with (FOLDER / f"{os.getpid()}.jsonl").open("a") as out:
            out.write(json.dumps(line) + "\n")
        self.seen = []

    def forward_step(self, batches: Any, model: Any) -> Any:
        wrapped = model
        while hasattr(wrapped, "module"):
            wrapped = wrapped.module
        x = None
        if wrapped.pre_process or wrapped.post_process:
            batch = next(batches)
            x = batch["x"]
            if wrapped.pre_process:
                self.seen += [int(k) for k in batch["index"]]
        return model(x), partial(self.loss, SAMPLES * TOKENS)

    def loss(self, tokens: int, output: Any) -> Any:
        loss = output.square().mean(-1).sum()
        count = torch.tensor(tokens, dtype=torch.int, device="cuda")
        return loss, count, {"loss": torch.stack([loss.detach(), count.float()])}

    def data(self, counts: Any, vp_stage: int = 0) -> Any:
        del vp_stage
        return Samples(counts[0]), None, None

    def run(self) -> None:
        self.seen = []  # of an iteration that was left
        args = self.arguments.parse_and_validate_args()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            config = importlib.import_module(
                "megatron.training.argument_utils"
            ).pretrain_cfg_container_from_args(args)
        self.data.__func__.is_distributed = True
        kind = importlib.import_module(
            "megatron.core.enums"
        ).ModelType.encoder_or_decoder
        self.training.pretrain(config, self.data, kind, self.forward_step, self.provide)


os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
script = Script()
falcon_torch.megatron_lm()
falcon_torch.run(script.run)
