"""A PyTorch job without any adapter: Falcon sees its NCCL calls alone.

Play it with falcon lab run --train 'python3 native/python/examples/plain_ddp.py' --gpu-gflops 60
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

MICRO_BATCHES = 8


def build_model(width: int) -> nn.Module:
    """Layers of different sizes, as gradients are reduced in buckets."""
    hidden = [m for _ in range(3) for m in (nn.Linear(width, width), nn.GELU())]
    return nn.Sequential(nn.Linear(width // 2, width), *hidden, nn.Linear(width, 2 * width), nn.Linear(2 * width, 64))


def main() -> None:
    """Train until ITERATIONS are done."""
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group(sys.argv[1] if len(sys.argv) > 1 else "nccl")
    model = nn.parallel.DistributedDataParallel(build_model(512).cuda(), device_ids=[local], bucket_cap_mb=1.2)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(int(os.environ.get("ITERATIONS", "400"))):
        for k in range(MICRO_BATCHES):
            x = torch.full((256, 256), float(k), device="cuda")
            model.require_backward_grad_sync = k == MICRO_BATCHES - 1
            (model(x).square().mean() / MICRO_BATCHES).backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
