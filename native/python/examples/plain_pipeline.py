"""A PyTorch job with pipeline stages, without any adapter: Falcon sees its NCCL calls alone.

Play it with falcon lab run --train 'python3 native/python/examples/plain_pipeline.py', and a scenario of pp 2

plain_pipeline.py [FOLDER]: two stages of torch.distributed.pipelining, each replicated by DistributedDataParallel.
With a folder it writes a distributed checkpoint there, and reads it, before it trains.
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

MICRO_BATCHES = 4
STAGES = 2
WIDTH = 256
SAMPLES = 64  # of a micro-batch


def build_stage(k: int) -> nn.Module:
    """The layers of stage k."""
    first = [nn.Linear(WIDTH // 2, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.GELU()]
    last = [nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, 64)]
    return nn.Sequential(*(first if k == 0 else last))


def check_storage(module: nn.Module, folder: str, stage: int) -> None:
    """Write all stages' parameters, and read them into a module that has forgotten them."""
    want = {f"{stage}.{name}": t.detach().cpu().clone() for name, t in module.state_dict().items()}
    dcp.save({f"{stage}.{name}": t for name, t in module.state_dict().items()}, checkpoint_id=folder)
    with torch.no_grad():
        for p in module.parameters():
            p.zero_()
    dcp.load({f"{stage}.{name}": t for name, t in module.state_dict().items()}, checkpoint_id=folder)
    for name, t in module.state_dict().items():
        if not torch.equal(t.cpu(), want[f"{stage}.{name}"]):
            raise RuntimeError(f"{name} of stage {stage} is not what was saved")


def main() -> None:
    """Train until ITERATIONS are done."""
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    names: list[object] = [None] * world
    dist.all_gather_object(names, {"rank": rank, "name": f"rank {rank}" * (rank + 1)})
    if [n["rank"] for n in names if isinstance(n, dict)] != list(range(world)):
        raise RuntimeError(f"objects of the ranks: {names}")
    mesh = init_device_mesh("cuda", (STAGES, world // STAGES), mesh_dim_names=("pp", "dp"))
    at = mesh.get_local_rank("pp")
    torch.manual_seed(at)
    module = build_stage(at).cuda()
    if len(sys.argv) > 1:
        check_storage(module, sys.argv[1], at)
    replicated = nn.parallel.DistributedDataParallel(module, device_ids=[local], process_group=mesh.get_group("dp"))
    stage = PipelineStage(replicated, at, STAGES, torch.device("cuda", local), group=mesh.get_group("pp"))
    schedule = Schedule1F1B(stage, MICRO_BATCHES, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.AdamW(replicated.parameters())
    inputs = torch.ones(MICRO_BATCHES * SAMPLES, WIDTH // 2, device="cuda")
    targets = torch.ones(MICRO_BATCHES * SAMPLES, 64, device="cuda")
    for _ in range(int(os.environ.get("ITERATIONS", "400"))):
        if at == 0:
            schedule.step(inputs)
        else:
            schedule.step(target=targets)
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.current_stream().synchronize()  # as a script that logs its loss does
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
