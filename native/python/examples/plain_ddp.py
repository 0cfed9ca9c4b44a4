"""A PyTorch job without any adapter: Falcon sees its NCCL calls alone.

Play it with falcon lab run --train 'python3 native/python/examples/plain_ddp.py' --gpu-gflops 8

plain_ddp.py [BACKEND [BUCKET_MB]]: gradients are reduced in buckets while the backward pass goes on; one bucket
for all of them (100) is reduced after it.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

MICRO_BATCHES = 4
WIDTH = 256


def build_model(width: int) -> nn.Module:
    """Layers of different sizes, as gradients are reduced in buckets."""
    hidden = [m for _ in range(3) for m in (nn.Linear(width, width), nn.GELU())]
    return nn.Sequential(nn.Linear(width // 2, width), *hidden, nn.Linear(width, 2 * width), nn.Linear(2 * width, 64))


def main() -> None:
    """Train until ITERATIONS are done."""
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    backend, bucket_mb = [*sys.argv[1:], *("nccl", "0.3")[len(sys.argv) - 1 :]]
    dist.init_process_group(backend)
    model = build_model(WIDTH).cuda()
    model = nn.parallel.DistributedDataParallel(model, device_ids=[local], bucket_cap_mb=float(bucket_mb))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(int(os.environ.get("ITERATIONS", "400"))):
        for k in range(MICRO_BATCHES):
            x = torch.full((256, WIDTH // 2), float(k), device="cuda")
            model.require_backward_grad_sync = k == MICRO_BATCHES - 1
            loss = model(x).square().mean() / MICRO_BATCHES
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()  # as a script that logs it does: the host is never iterations ahead of the device
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
