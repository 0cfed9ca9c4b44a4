"""A pipeline of two stages with replicas, whose ranks die in the backward pass, by their own hand.

DEATHS is ITERATION:RANK,...: there the rank ends in its last micro-batch's backward pass, when the other stage has
all that it needs for its update. The ledger proves that every micro-batch counts exactly once.
"""

import os
import signal
import time

import falcon_torch
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleInterleaved1F1B,
)

STAGES, MICRO_BATCHES, SAMPLES, WIDTH = 2, 4, 16, 128
INTERLEAVED = os.environ.get("SCHEDULE") == "interleaved"
ITERATIONS = int(os.environ["ITERATIONS"])
WAIT_S = float(os.environ.get("DEATH_WAIT_S", "0.2"))
DEATHS = {
    int(i): int(r)
    for i, r in (d.split(":") for d in os.environ.get("DEATHS", "").split(",") if d)
}
JOINED = "FALCON_JOIN" in os.environ


class Ledger:
    """Sums over all micro-batches of this stage so far."""

    def __init__(self) -> None:
        self.sums = torch.zeros(2, dtype=torch.int64)

    def add(self, numbers: list[int], group: dist.ProcessGroup) -> None:
        mine = torch.tensor([sum(numbers), sum(k * k for k in numbers)]).to("cuda")
        dist.all_reduce(mine, group=group)
        self.sums += mine.cpu()

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"sums": self.sums}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        self.sums = state["sums"].clone()


class Death:
    """The end of this process in a backward pass; one that takes a dead one's place lives through its iteration."""

    def __init__(self, job: falcon_torch.Job, parameter: nn.Parameter) -> None:
        self._job, self._count, self._at = job, 0, -1
        self.first = job.iteration if JOINED else -1
        parameter.register_hook(self._count_backwards)

    def _count_backwards(self, gradient: torch.Tensor) -> torch.Tensor:
        i = self._job.iteration
        self._count = self._count + 1 if i == self._at else 1
        self._at = i
        if (
            self._count == MICRO_BATCHES
            and DEATHS.get(i) == dist.get_rank()
            and i != self.first
        ):
            torch.cuda.current_stream().synchronize()
            time.sleep(WAIT_S)  # in which a stage that does not wait would update
            os.kill(os.getpid(), signal.SIGKILL)
        return gradient


def shapes(stage: int, stages: int, device: torch.device) -> dict[str, torch.Tensor]:
    """What interleaved stages are told to pass on.

    PyTorch 2.14 asks a stage for its shapes by a forward pass outside of no_sync: DDP then takes the gradients of
    two micro-batches for those of one, and fails where no forward pass comes between them.
    """
    if not INTERLEAVED:
        return {}
    passed = torch.ones(SAMPLES, WIDTH, device=device, requires_grad=True)
    told = {"input_args": passed, "output_args": passed}
    told |= {"input_grads": passed} if stage > 0 else {}
    return told | ({"output_grads": passed} if stage < stages - 1 else {})


def train() -> Ledger:
    mesh = init_device_mesh(
        "cuda",
        (STAGES, dist.get_world_size() // STAGES),
        mesh_dim_names=("pp", "dp"),
    )
    at, pp, dp = (
        mesh.get_local_rank("pp"),
        mesh.get_group("pp"),
        mesh.get_group("dp"),
    )
    torch.manual_seed(at)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    chunks = 2 if INTERLEAVED else 1
    stages, wrapped = [], []
    for c in range(chunks):
        module = nn.Sequential(
            nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH)
        ).cuda()
        wrapped.append(
            nn.parallel.DistributedDataParallel(
                module, device_ids=[device.index], process_group=dp
            )
        )
        stages.append(
            PipelineStage(
                wrapped[-1],
                at + c * STAGES,
                STAGES * chunks,
                device,
                group=pp,
                **shapes(at + c * STAGES, STAGES * chunks, device),
            )
        )
    kind = ScheduleInterleaved1F1B if INTERLEAVED else Schedule1F1B
    schedule = kind(
        stages if INTERLEAVED else stages[0],
        MICRO_BATCHES,
        loss_fn=nn.functional.mse_loss,
    )
    parameters = [p for w in wrapped for p in w.parameters()]
    optimizer = torch.optim.AdamW(parameters)
    ledger = Ledger()
    job = falcon_torch.pipeline(schedule, optimizer, mesh, state=[ledger])
    Death(job, parameters[0])
    inputs = torch.ones(MICRO_BATCHES * SAMPLES, WIDTH, device=device)
    while job.next_iteration(until=ITERATIONS):
        if at == 0:
            job.step(inputs)
        else:
            job.step(target=inputs)
        ledger.add(list(job.numbers()), dp)
        optimizer.step()
        optimizer.zero_grad()
    return ledger


torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group(os.environ.get("BACKEND", "nccl"))
ledger = falcon_torch.run(train)
last = ITERATIONS * MICRO_BATCHES * dist.get_world_size() // STAGES
want = [sum(range(last)), sum(k * k for k in range(last))]
print("ledger", dist.get_rank(), ledger.sums.tolist(), want, flush=True)
if ledger.sums.tolist() != want:
    raise SystemExit(
        f"micro-batches were lost or run twice: {ledger.sums.tolist()} instead of {want}"
    )
dist.destroy_process_group()
