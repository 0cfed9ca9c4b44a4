"""PyTorch's own store: prints its port and serves until its input ends."""
import sys

import torch
import torch.distributed as dist

store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
print(torch.__version__, store.port, flush=True)
sys.stdin.read()
