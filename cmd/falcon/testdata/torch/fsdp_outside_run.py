"""A job of fully_shard outside falcon_torch.run: it can't be recovered in place. Each process tells its iterations."""

import os

import falcon_torch
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

local, iterations = int(os.environ["LOCAL_RANK"]), int(os.environ["ITERATIONS"])
fails_at = int(os.environ.get("FAILS_AT", "-1"))
os.dup2(os.open(f"{os.environ['SAVED']}/{os.getpid()}.log", os.O_CREAT | os.O_WRONLY, 0o600), 2)
torch.cuda.set_device(local)
dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("replicate", "shard"))
model = nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(256, 256), nn.GELU())]).cuda()
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters())
job = falcon_torch.fsdp(model, optimizer, micro_batches=4)
while job.next_iteration(until=iterations):
    print("iteration", job.iteration, "of process", os.getpid(), flush=True)
    for k in job.micro_batches():
        job.backward(model(torch.full((256, 256), float(k % 7), device="cuda")).square().mean())
    if job.iteration == fails_at:
        raise ValueError(f"process {os.getpid()} can't read its data")
    optimizer.step()
    optimizer.zero_grad()
    torch.save({"iteration": job.iteration}, f"{os.environ['SAVED']}/{os.getpid()}.pt")
