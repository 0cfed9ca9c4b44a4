"""Runs a training script as it is, and writes when the device of rank 0 ended each of its iterations.

marked.py FILE SCRIPT ARGUMENTS...: FILE gets the time of each in unix ns.
"""

import os
import queue
import runpy
import sys
import threading
import time

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

events: queue.SimpleQueue[torch.cuda.Event] = queue.SimpleQueue()


def record(*_: object) -> None:
    event = torch.cuda.Event()
    event.record()
    events.put(event)


def write(path: str) -> None:
    with open(path, "w", buffering=1) as file:
        while True:
            events.get().synchronize()
            file.write(f"{time.time_ns()}\n")


if os.environ["RANK"] == "0":
    register_optimizer_step_post_hook(record)
    threading.Thread(target=write, args=(sys.argv[1],), daemon=True).start()
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
