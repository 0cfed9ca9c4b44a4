"""A training loop over accelerate, as a user has it, with one line for Falcon. of_accelerate.py FOLDER."""

import sys
from pathlib import Path

import falcon_torch
import torch
from accelerate import Accelerator

from small import AGAIN, PER_BATCH, PER_STEP, STEPS, Net, Samples, tell


def main() -> None:
    folder = sys.argv[1]
    accelerator = Accelerator(gradient_accumulation_steps=PER_STEP)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters())
    loader = torch.utils.data.DataLoader(Samples(), batch_size=PER_BATCH, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    step = 0
    if AGAIN:
        step = max(int(p.name) for p in Path(folder).iterdir() if p.name.isdigit())
        accelerator.load_state(f"{folder}/{step}")
        loader = accelerator.skip_first_batches(loader, step * PER_STEP)
    falcon_torch.accelerate(accelerator, save=folder, begin=step)
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**batch)["loss"]
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            step += 1
            accelerator.gather(loss.detach()).mean().item()
            tell(folder, step)
        if step == STEPS:
            break
    accelerator.end_training()


if __name__ == "__main__":
    main()
