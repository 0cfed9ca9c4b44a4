"""A DeepSpeed engine with ZeRO 1, as a user has it, with one line for Falcon. of_deepspeed.py FOLDER."""

import os
import sys

import deepspeed
import falcon_torch
import torch

from small import AGAIN, PER_BATCH, PER_STEP, Net, Samples, tell

CONFIG = {
    "train_micro_batch_size_per_gpu": PER_BATCH,
    "gradient_accumulation_steps": PER_STEP,
    "zero_optimization": {"stage": 1},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
}


def main() -> None:
    folder = sys.argv[1]
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    deepspeed.init_distributed()
    model = Net()
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    if AGAIN:
        engine.load_checkpoint(folder)
    falcon_torch.deepspeed(engine, save=folder)
    sampler = torch.utils.data.distributed.DistributedSampler(Samples(), shuffle=False)
    loader = torch.utils.data.DataLoader(Samples(), batch_size=PER_BATCH, sampler=sampler)
    skip = engine.global_steps * PER_STEP
    for k, batch in enumerate(loader):
        if k < skip:
            continue
        batch = {name: values.to(engine.device) for name, values in batch.items()}
        loss = engine(**batch)["loss"]
        engine.backward(loss)
        engine.step()
        if (k + 1) % PER_STEP == 0:
            loss.item()
            tell(folder, engine.global_steps)
    engine.destroy()


if __name__ == "__main__":
    main()
