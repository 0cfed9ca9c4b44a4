"""A small job of any adapter in which something ends: DEATH says what, whom, in which iteration and phase.

Each process tells in a file of its own what it does, for a judge that asks nobody else: lines of JSON in
FOLDER/PID.log. Who is in the job with it is exchanged by a collective, so that a process that trains alone says so.
"""

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ["FOLDER"])
ADAPTER, INSIDE = os.environ["ADAPTER"], os.environ["ENTRY"] == "inside"
RESTARTS = os.environ.get("TORCHRUN", "")  # under torchrun, with so many restarts
LAUNCHED = os.environ.get("FALCON_GENERATION", "0") != "0"  # by an agent
PER_NODE = 2


def become_launcher() -> None:
    """Be the torchrun of this node, in the place of its first rank; the other ranks' places wait for it."""
    node = int(os.environ["RANK"]) // PER_NODE
    mark = FOLDER / f"torchrun-{node}"
    if os.environ["LOCAL_RANK"] == "0":
        mark.write_text(str(os.getpid()))
        words = [
            "--nnodes",
            str(int(os.environ["WORLD_SIZE"]) // PER_NODE),
            "--node-rank",
            str(node),
        ]
        words += ["--nproc-per-node", str(PER_NODE), "--max-restarts", RESTARTS]
        words += [
            "--master-addr",
            "127.0.0.1",
            "--master-port",
            os.environ["TORCHRUN_PORT"],
        ]
        os.environ["STORE_OF_JOB"] = (
            os.environ["MASTER_ADDR"] + ":" + os.environ["MASTER_PORT"]
        )
        os.environ["FALCON_LOG"] = (
            ""  # the lab would take its workers' lines for one rank's
        )
        os.execv(
            sys.executable,
            [sys.executable, "-m", "torch.distributed.run", *words, sys.argv[0]],
        )
    while (
        not mark.exists()
        or not mark.read_text()
        or Path(f"/proc/{mark.read_text()}").exists()
    ):
        time.sleep(0.1)
    sys.exit(0)


def become_worker() -> None:
    """Be a worker of torchrun whose hook knows its device, and whose store outlives every rank."""
    os.environ["FALCON_DEVICE"] = (
        f"n{int(os.environ['RANK']) // PER_NODE}.g{os.environ['LOCAL_RANK']}"
    )
    os.environ["MASTER_ADDR"], _, os.environ["MASTER_PORT"] = os.environ.pop(
        "STORE_OF_JOB"
    ).rpartition(":")
    os.execv(sys.executable, [sys.executable, *sys.argv])


if RESTARTS and not LAUNCHED and "TORCHELASTIC_RUN_ID" not in os.environ:
    become_launcher()
if "STORE_OF_JOB" in os.environ:
    become_worker()

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ITERATIONS, EVERY, MICRO_BATCHES = (
    int(os.environ["ITERATIONS"]),
    int(os.environ["EVERY"]),
    4,
)
PACE_S = 0.05
DEATH = json.loads(os.environ["DEATH"])
PID = os.getpid()
log = os.open(FOLDER / f"{PID}.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)


def tell(**fields: Any) -> None:
    os.write(
        log,
        (
            json.dumps({"pid": PID, "rank": RANK, "ns": time.monotonic_ns(), **fields})
            + "\n"
        ).encode(),
    )


class AskedToFailError(ValueError):
    """The error that the scenario wants."""


def reach(iteration: int, phase: str, micro: int = 0) -> None:
    """Carry out the death that is due here, once a rank."""
    if (RANK not in DEATH["ranks"]) or (
        DEATH["iteration"],
        DEATH["phase"],
        DEATH["micro"],
    ) != (iteration, phase, micro):
        return
    try:
        os.close(os.open(FOLDER / f"reached-{RANK}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    tell(reached=phase, iteration=iteration)
    if DEATH["by"] == "raise":
        raise AskedToFailError(f"process {PID} can't read its data")
    if DEATH["by"] == "kill":
        kill = (os.kill, (PID, signal.SIGKILL))
        threading.Timer(DEATH["delay_ms"] / 1e3, *kill).start() if DEATH[
            "delay_ms"
        ] else kill[0](*kill[1])
    while DEATH["by"] == "wait" and not (FOLDER / "go").exists():
        time.sleep(0.005)


tell(
    started=True,
    generation=int(os.environ.get("FALCON_GENERATION", "0")),
    joins=os.environ.get("FALCON_JOIN") == "1",
    resumes=os.environ.get("FALCON_RESUME") == "1",
    attempt=int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
)
if ADAPTER != "none":
    import falcon_torch
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

WIDTH, SAMPLES = 64, 8
LOCAL = int(os.environ["LOCAL_RANK"])


class Ledger:
    """Sums over the micro-batches of all ranks so far, and how often this rank has counted."""

    def __init__(self) -> None:
        self.sums = torch.zeros(2, dtype=torch.int64)
        self.waiting = torch.zeros(2, dtype=torch.int64)

    def count(self) -> None:
        self.sums, self.waiting = (
            self.sums + self.waiting,
            torch.zeros(2, dtype=torch.int64),
        )

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"sums": self.sums}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        self.sums, self.waiting = (
            state["sums"].clone(),
            torch.zeros(2, dtype=torch.int64),
        )


class Net(nn.Module):
    """Two layers, between which forward and backward of a micro-batch can end."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.job: Any = None
        self._at, self._forward, self._backward = -1, 0, 0

    def _next_of(self, name: str) -> int:
        if self.job.iteration != self._at:
            self._at, self._forward, self._backward = self.job.iteration, 0, 0
        setattr(self, name, getattr(self, name) + 1)
        return int(getattr(self, name)) - 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.gelu(self.first(x))
        if self.job is not None and hidden.requires_grad:
            reach(self.job.iteration, "forward", self._next_of("_forward"))
            hidden.register_hook(self._gradient)
        return self.second(hidden)

    def _gradient(self, gradient: torch.Tensor) -> torch.Tensor:
        reach(self.job.iteration, "backward", self._next_of("_backward"))
        return gradient


class Plain:
    """A job without an adapter, with what the script asks of one."""

    def __init__(self, begin: int) -> None:
        self.iteration = begin - 1
        self._first = begin

    def next_iteration(self, until: int) -> bool:
        self.iteration += 1
        return self.iteration < until

    def attempt(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def numbers(self) -> range:
        first = (self.iteration * WORLD + RANK) * MICRO_BATCHES
        return range(first, first + MICRO_BATCHES)

    def micro_batches(self) -> Iterator[int]:
        yield from self.numbers()

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()

    def checkpointed(self, iteration: int) -> None:
        """Tell the agent, which looks for such files."""
        folder = (
            Path(os.environ["FALCON_LAB_DIR"]) / "checkpoints" / f"step-{iteration}-g0"
        )
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "complete.json").write_text("{}")


def part(iteration: int, rank: int = RANK) -> Path:
    return FOLDER / f"checkpoint-{iteration}" / f"{rank}.pt"


def complete(iteration: int) -> bool:
    return all(part(iteration, r).exists() for r in range(WORLD))


def newest_checkpoint() -> int:
    """The iteration that the newest complete checkpoint begins with."""
    known = [
        int(f.name.partition("-")[2])
        for f in FOLDER.glob("checkpoint-*")
        if (f / "complete").exists()
    ]
    return max(known, default=0)


def make_job(
    ledger: Ledger, begin: int
) -> tuple[Any, Any, torch.optim.Optimizer, Callable[[], None]]:
    """The job, its networks, its optimizer, and what runs an iteration's micro-batches."""
    torch.manual_seed(1)
    net = Net().cuda()
    x = torch.ones(SAMPLES, WIDTH, device="cuda")

    def load(iteration: int) -> None:
        """On emulated GPUs weights mean nothing: all ranks get the same ones."""
        ledger.load_state_dict(torch.load(part(iteration), weights_only=True))
        optimizers[0].state.clear()
        with torch.no_grad():
            for p in net.parameters():
                mine = p.to_local() if hasattr(p, "to_local") else p
                mine.copy_(torch.zeros(mine.shape))
        tell(loaded=iteration)

    optimizers: list[torch.optim.Optimizer] = []
    with_state = {"begin": begin, "state": [ledger], "save": None, "load": load}
    if ADAPTER in ("ddp", "none"):
        model = nn.parallel.DistributedDataParallel(net, device_ids=[LOCAL])
        optimizer = torch.optim.AdamW(model.parameters())
        optimizers.append(optimizer)
        job = (
            Plain(begin)
            if ADAPTER == "none"
            else falcon_torch.ddp(model, optimizer, MICRO_BATCHES, **with_state)
        )
    elif ADAPTER in ("fsdp", "hsdp"):
        shape, names = (
            ((WORLD,), ("shard",))
            if ADAPTER == "fsdp"
            else ((WORLD // 2, 2), ("replicate", "shard"))
        )
        model = fully_shard(
            net, mesh=init_device_mesh("cuda", shape, mesh_dim_names=names)
        )
        optimizer = torch.optim.AdamW(model.parameters())
        optimizers.append(optimizer)
        job = falcon_torch.fsdp(model, optimizer, MICRO_BATCHES, **with_state)
    else:
        job, optimizer, run = make_pipeline(net, optimizers, with_state)
        return job, net, optimizer, run

    def run() -> None:
        for _ in job.micro_batches():
            job.backward(model(x).square().mean())

    return job, net, optimizer, run


def make_pipeline(
    net: Net, optimizers: list[torch.optim.Optimizer], with_state: dict[str, Any]
) -> tuple[Any, torch.optim.Optimizer, Callable[[], None]]:
    """A job of two stages, whose replicas lie on different nodes."""
    mesh = init_device_mesh("cuda", (WORLD // 2, 2), mesh_dim_names=("dp", "pp"))
    at = mesh.get_local_rank("pp")
    model = nn.parallel.DistributedDataParallel(
        net, device_ids=[LOCAL], process_group=mesh.get_group("dp")
    )
    stage = PipelineStage(
        model, at, 2, torch.device("cuda", LOCAL), group=mesh.get_group("pp")
    )
    schedule = Schedule1F1B(stage, MICRO_BATCHES, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.AdamW(model.parameters())
    optimizers.append(optimizer)
    job = falcon_torch.pipeline(schedule, optimizer, mesh, **with_state)
    batch = torch.ones(MICRO_BATCHES * SAMPLES, WIDTH, device="cuda")

    def run() -> None:
        job.step(batch) if at == 0 else job.step(target=batch)

    return job, optimizer, run


def meet(numbers: list[int]) -> tuple[list[int], list[int]]:
    """Who is in the job, by process, and the sums of all micro-batches of the iteration."""
    mine = torch.zeros(WORLD + 2, dtype=torch.int64)
    mine[RANK], mine[WORLD], mine[WORLD + 1] = (
        PID,
        sum(numbers),
        sum(k * k for k in numbers),
    )
    all_of_it = mine.to("cuda")
    dist.all_reduce(all_of_it)
    values = all_of_it.cpu().tolist()
    return values[:WORLD], values[WORLD:]


def save(ledger: Ledger, iteration: int, peers: list[int]) -> None:
    """Write this rank's part of the checkpoint that iteration begins with."""
    file = part(iteration)
    file.parent.mkdir(exist_ok=True)
    torch.save(ledger.state_dict(), f"{file}.{PID}")
    reach(iteration - 1, "checkpoint")
    os.rename(f"{file}.{PID}", file)
    tell(saved=iteration, peers=peers)


def train() -> Ledger:
    ledger = Ledger()
    begin = newest_checkpoint() if os.environ.get("FALCON_RESUME") == "1" else 0
    if begin > 0:
        ledger.load_state_dict(torch.load(part(begin), weights_only=True))
    job, net, optimizer, run = make_job(ledger, begin)
    optimizer.register_step_pre_hook(
        lambda *_: reach(job.iteration, "update")
    )  # behind the adapter's own
    net.job = job
    while job.next_iteration(until=ITERATIONS):
        with job.attempt():
            i, numbers = job.iteration, list(job.numbers())
            peers, sums = meet(numbers)
            ledger.waiting = torch.tensor(sums)
            tell(begun=i, peers=peers, numbers=numbers)
            if (
                RANK == 0
                and i % EVERY == 0
                and complete(i)
                and not (part(i).parent / "complete").exists()
            ):
                (part(i).parent / "complete").touch()
                job.checkpointed(i)
            time.sleep(PACE_S)  # reads its data
            run()
            reach(i, "before-update")
            ledger.count()
            optimizer.step()
            tell(updated=i, peers=peers)
            reach(i, "after-update")
            optimizer.zero_grad()
            if (i + 1) % EVERY == 0:
                save(ledger, i + 1, peers)
            torch.cuda.current_stream().synchronize()
    return ledger


reach(-1, "start")
torch.cuda.set_device(LOCAL)
dist.init_process_group("nccl")
reach(-1, "groups")
ledger = falcon_torch.run(train) if INSIDE else train()
tell(done=True, sums=ledger.sums.tolist())
(FOLDER / f"done-{RANK}").touch()
while not (FOLDER / "leave").exists():  # the judge looks before the job is over
    time.sleep(0.02)
dist.destroy_process_group()
