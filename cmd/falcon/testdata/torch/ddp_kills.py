"""A small DDP job whose ledger proves that every micro-batch was run exactly once."""

import os

import falcon_torch
import torch
import torch.distributed as dist
from torch import nn


class Ledger:
    """Sums over all micro-batches so far: real numbers, also where kernels compute nothing."""

    def __init__(self) -> None:
        self.sums = torch.zeros(2, dtype=torch.int64)

    def add(self, numbers: list[int]) -> None:
        mine = torch.tensor([sum(numbers), sum(k * k for k in numbers)]).to("cuda")
        dist.all_reduce(mine)
        self.sums += mine.cpu()

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"sums": self.sums}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        self.sums = state["sums"].clone()


iterations, per_replica = int(os.environ["ITERATIONS"]), 4
local = int(os.environ["LOCAL_RANK"])
if "RANK_LOGS" in os.environ:  # what PyTorch says of its watchdogs, a file for each process
    os.dup2(os.open(f"{os.environ['RANK_LOGS']}/{os.getpid()}", os.O_CREAT | os.O_WRONLY, 0o600), 2)
torch.cuda.set_device(local)
torch.manual_seed(1)
dist.init_process_group(os.environ.get("BACKEND", "nccl"))
ledger = Ledger()
model = nn.Sequential(
    *[m for _ in range(4) for m in (nn.Linear(256, 256), nn.GELU())]
).cuda()
bucket_mb = float(os.environ.get("BUCKET_MB", "25"))
model = nn.parallel.DistributedDataParallel(model, device_ids=[local], bucket_cap_mb=bucket_mb)
optimizer = torch.optim.AdamW(model.parameters())
job = falcon_torch.ddp(model, optimizer, micro_batches=per_replica, state=[ledger])
while job.next_iteration(until=iterations):
    with job.attempt():
        numbers = []
        for k in job.micro_batches():
            numbers.append(k)
            x = torch.full((256, 256), float(k % 7), device="cuda")
            job.backward(model(x).square().mean())
        ledger.add(numbers)
        optimizer.step()
        optimizer.zero_grad()
last = iterations * per_replica * dist.get_world_size()
want = [sum(range(last)), sum(k * k for k in range(last))]
print("ledger", dist.get_rank(), ledger.sums.tolist(), want, flush=True)
if ledger.sums.tolist() != want:
    raise SystemExit(
        f"micro-batches were lost or run twice: {ledger.sums.tolist()} instead of {want}"
    )
dist.destroy_process_group()
