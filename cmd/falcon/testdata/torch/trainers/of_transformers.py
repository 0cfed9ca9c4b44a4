"""A Trainer of transformers, as a user has it, with one line for Falcon. of_transformers.py FOLDER."""

import sys
from typing import Any

import falcon_torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from small import AGAIN, PER_BATCH, PER_STEP, STEPS, Net, Samples, tell


class Log(TrainerCallback):
    """Logs steps."""

    def on_step_end(self, _: Any, state: Any, __: Any, **___: Any) -> None:
        tell(sys.argv[1], state.global_step)


def main() -> None:
    args = TrainingArguments(
        output_dir=sys.argv[1],
        per_device_train_batch_size=PER_BATCH,
        gradient_accumulation_steps=PER_STEP,
        max_steps=STEPS,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    trainer = Trainer(Net(), args, train_dataset=Samples(), callbacks=[Log()])
    falcon_torch.transformers(trainer)
    trainer.train(resume_from_checkpoint=AGAIN)


if __name__ == "__main__":
    main()
