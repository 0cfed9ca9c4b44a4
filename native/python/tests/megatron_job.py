"""A script of Megatron-LM's: a model, its data, and pretrain(), on CPUs."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import typing
import warnings
from functools import partial
from typing import Any
from unittest.mock import MagicMock

import torch
import typing_extensions
from torch import nn

import falcon_torch
from fake_hook import Mailbox
from on_cpu import pretend

TRITON = "megatron.core.transformer.moe.ops.paged_stash"  # of experts; no model here has any
typing.override = typing_extensions.override  # type: ignore[attr-defined]  # of Python 3.12; Megatron-LM needs no more
if importlib.util.find_spec("triton") is None:
    sys.modules[TRITON] = MagicMock()

HIDDEN, SEQ, SIZE, RATE = 8, 4, 2, 0.1  # SIZE: samples of a micro-batch
ARGUMENTS = f"""
--num-layers 2 --hidden-size {HIDDEN} --num-attention-heads 2 --seq-length {SEQ} --max-position-embeddings {SEQ}
--micro-batch-size {SIZE} --transformer-impl local --no-persist-layer-norm --no-gradient-accumulation-fusion
--distributed-backend gloo --use-cpu-initialization --vocab-size 32 --tokenizer-type NullTokenizer
--no-bias-gelu-fusion --no-bias-dropout-fusion --no-masked-softmax-fusion --no-rope-fusion --eval-iters 0
--eval-interval 1000 --optimizer sgd --sgd-momentum 0 --weight-decay 0 --lr {RATE} --lr-decay-style constant
--clip-grad 0 --num-workers 1 --log-interval 1 --no-check-for-nan-in-loss-and-grad --dataloader-type single
"""


class Samples(torch.utils.data.Dataset):  # type: ignore[misc]
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"index": index, "x": sample(index)[0], "y": sample(index)[1]}


def sample(index: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(1000 + index)
    return torch.randn(SEQ, HIDDEN, generator=random), torch.randn(SEQ, HIDDEN, generator=random)


def layers() -> list[nn.Module]:
    """The whole model: the same on every rank."""
    torch.manual_seed(7)
    return [nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.Tanh()) for _ in range(4)]


def loss_of(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The sum over tokens of their mean losses."""
    return (output.transpose(0, 1) - y).square().mean(-1).sum()


def reference(iterations: int, per_iteration: int) -> list[list[torch.Tensor]]:
    """The gradients of one process that runs the whole global batch."""
    model = nn.Sequential(*layers())
    out = []
    for i in range(iterations):
        model.zero_grad()
        for index in range(i * per_iteration, (i + 1) * per_iteration):
            x, y = sample(index)
            (loss_of(model(x.unsqueeze(1)), y.unsqueeze(0)) / per_iteration / SEQ).backward()
        out.append([p.grad.clone() for p in model.parameters()])
        torch.optim.SGD(model.parameters(), lr=RATE).step()
    return out


def tokens_of(y: torch.Tensor) -> torch.Tensor:
    return torch.tensor(y.shape[0] * y.shape[1], dtype=torch.int)


def model_class() -> Any:
    """Part of the layers, as Megatron's pipelines have them. It can be made only where megatron is there."""
    base: Any = importlib.import_module("megatron.core.transformer.module").MegatronModule

    class Model(base):  # type: ignore[misc]
        def __init__(self, config: Any, first: bool, last: bool, part: slice) -> None:
            super().__init__(config)
            self.layers = nn.Sequential(*layers()[part])
            self.pre_process, self.post_process, self.came = first, last, None
            self.share_embeddings_and_output_weights = False

        def set_input_tensor(self, came: Any) -> None:
            self.came = came[0] if isinstance(came, list) else came

        def forward(self, x: Any) -> Any:
            return self.layers(x.transpose(0, 1) if self.pre_process else self.came)

    return Model


class Script:
    """What a user's script has, and what it sees."""

    def __init__(self, more: str) -> None:
        self.training = importlib.import_module("megatron.training.training")
        self.arguments = importlib.import_module("megatron.training.arguments")
        importlib.import_module("megatron.core.datasets.utils").compile_helpers = lambda: None  # of datasets of text
        self.training.set_jit_fusion_options = lambda **_: None  # it compiles for a GPU
        helps = importlib.import_module("megatron.training.argument_utils").ArgumentGroupFactory
        helps._get_field_docstrings = lambda *_: {}  # texts of --help, for 2 s
        sys.argv = ["train.py", *ARGUMENTS.split(), *more.split()]
        self.seen: list[list[int]] = []  # by iteration, the samples of this rank
        self.gradients: list[list[Any]] = []

    def provide(
        self, pre_process: bool, post_process: bool, config: Any = None, pg_collection: Any = None, vp_stage: int = 0
    ) -> Any:
        args = self.training.get_args()
        config = config or self.arguments.core_transformer_config_from_args(args)
        whole = importlib.import_module("megatron.core.distributed").finalize_model_grads

        def finalize(model: list[Any], *args: Any, **kwargs: Any) -> None:
            whole(model, *args, **kwargs)
            self.gradients.append([p.main_grad.numpy().copy() for chunk in model for p in chunk.parameters()])
            self.seen.append([])

        config.finalize_model_grads_func = finalize
        made = self.make(pre_process, post_process, config, vp_stage)
        made.pg_collection = pg_collection
        return made

    def make(self, pre_process: bool, post_process: bool, config: Any, vp_stage: int) -> Any:
        """The part of the model that a rank has."""
        return model_class()(config, pre_process, post_process, self.part(vp_stage))

    def part(self, chunk: int) -> slice:
        """The layers of a chunk of this rank."""
        mpu = self.training.mpu
        stages, chunks = (
            mpu.get_pipeline_model_parallel_world_size(),
            mpu.get_virtual_pipeline_model_parallel_world_size(),
        )
        size = 4 // stages // (chunks or 1)
        first = (chunk * stages + mpu.get_pipeline_model_parallel_rank()) * size
        return slice(first, first + size)

    def parts(self) -> list[int]:
        """The numbers of this rank's parameters among all of the model."""
        chunks = self.training.mpu.get_virtual_pipeline_model_parallel_world_size() or 1
        found = [self.part(k) for k in range(chunks)]
        return [n for part in found for n in range(2 * part.start, 2 * part.stop)]

    def forward_step(self, batches: Any, model: Any) -> Any:
        wrapped: Any = model
        while hasattr(wrapped, "module"):
            wrapped = wrapped.module
        batch = next(batches) if wrapped.pre_process or wrapped.post_process else {"x": None, "y": None, "index": []}
        if not self.seen:
            self.seen.append([])
        if torch.is_grad_enabled():
            self.seen[-1] += [int(k) for k in batch["index"]]
        return self.run_model(batch, model)

    def run_model(self, batch: Any, model: Any) -> tuple[Any, Any]:
        """The model's output, and a function of it that gives the loss."""
        return model(batch["x"]), partial(self.loss, batch["y"])

    def loss(self, y: Any, output: Any) -> Any:
        loss, tokens = loss_of(output, y), tokens_of(y)
        return loss, tokens, {"loss": torch.stack([loss.detach(), tokens.float()])}

    def data(self, counts: Any, vp_stage: int = 0) -> Any:
        del vp_stage
        return Samples(counts[0]), None, None

    def run(self) -> None:
        args = self.arguments.parse_and_validate_args()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            config = importlib.import_module("megatron.training.argument_utils").pretrain_cfg_container_from_args(args)
        self.data.__func__.is_distributed = True  # type: ignore[attr-defined]
        kind = importlib.import_module("megatron.core.enums").ModelType.encoder_or_decoder
        self.training.pretrain(config, self.data, kind, self.forward_step, self.provide)


def play_job(mailbox: Mailbox, more: str, one_line: bool = True) -> dict[str, Any]:
    """A rank of the job; without the one line Falcon does not know of it."""
    pretend()
    os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    script = Script(more)
    if one_line:
        falcon_torch.megatron_lm()
    try:
        script.run()
        end = "returned"
    except SystemExit as left:
        end = f"exit {left.code}"
    seen = [s for s in script.seen if s]
    return {"gradients": script.gradients, "seen": seen, "parts": script.parts(), "mailbox": mailbox, "end": end}
