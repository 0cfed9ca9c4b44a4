"""Which ranks are a replica, by the mesh of the job (docs/job.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm, prod
from typing import Any

TEXT_MOST = 127  # bytes that falcon_job_mesh takes
NAMES = ("tp", "cp", "etp", "ep", "fsdp", "dp", "pp", "vpp")
SPLIT_RANKS = ("tp", "cp", "fsdp", "dp", "pp")

# What frameworks call the dimensions of a DeviceMesh.
ALIASES = {
    "dp_replicate": "dp",
    "replicate": "dp",
    "ddp": "dp",
    "dp_shard": "fsdp",
    "shard": "fsdp",
    "dp_shard_cp": "fsdp",
}


@dataclass(frozen=True)
class Layout:
    """Where one rank is in the mesh.

    Replicas are what S2 moves micro-batches between: ranks of different replicas meet only at the
    gradient. width ranks of a replica have data of their own (the shard group of HSDP): they run
    their micro-batches at the same time, and slot is which of them this rank is.
    """

    text: str
    world: int
    replicas: int
    replica: int
    width: int
    slot: int
    stages: int
    shard: int  # ranks with the same one hold the same state, in different replicas
    shards: int


def parse(text: str) -> dict[str, int]:
    """Sizes of the dimensions, innermost first. Raise ValueError where the text is no mesh."""
    dims: dict[str, int] = {}
    for term in text.split(","):
        name, _, size = term.partition("=")
        if name not in NAMES or name in dims or not size.isdigit() or str(int(size)) != size or int(size) < 1:
            raise ValueError(f"mesh {text!r}: {term!r} is not NAME=SIZE with a name of {', '.join(NAMES)}, each once")
        dims[name] = int(size)
    if len(text) > TEXT_MOST:
        raise ValueError(f"mesh {text!r} has {len(text)} bytes; at most {TEXT_MOST} are allowed")
    return dims


def place(text: str, rank: int, world: int) -> Layout:
    """Find the place of a rank. Raise ValueError where the mesh does not fit the job."""
    dims = parse(text)
    ranks = prod(dims.get(name, 1) for name in SPLIT_RANKS)
    if ranks != world:
        raise ValueError(f"mesh {text!r} has {ranks} ranks; the job has {world}")
    at, left = dict.fromkeys(SPLIT_RANKS, 0), rank
    for name, size in dims.items():
        if name in SPLIT_RANKS:
            at[name], left = left % size, left // size
    dp, fsdp = dims.get("dp", 1), dims.get("fsdp", 1)
    joined = _joined_by_experts(text, dims)
    shard = at["dp"] % joined
    for name in ("tp", "cp", "fsdp", "pp"):
        shard = shard * dims.get(name, 1) + at[name]
    return Layout(
        text=text,
        world=world,
        replicas=dp // joined,
        replica=at["dp"] // joined,
        width=fsdp * joined,
        slot=at["dp"] % joined * fsdp + at["fsdp"],
        stages=dims.get("pp", 1),
        shard=shard,
        shards=world // (dp // joined),
    )


def ranks_along(text: str, rank: int, name: str) -> list[int]:
    """The ranks that differ from a rank in one dimension of the mesh alone."""
    stride = 1
    for dim, size in parse(text).items():
        if dim == name:
            first = rank - rank // stride % size * stride
            return [first + k * stride for k in range(size)]
        if dim in SPLIT_RANKS:
            stride *= size
    return [rank]


def _joined_by_experts(text: str, dims: dict[str, int]) -> int:
    """How many dp ranks talk inside a micro-batch, as their experts are spread over them."""
    ep, fsdp = dims.get("ep", 1), dims.get("fsdp", 1)
    if ep == 1 or fsdp > 1:
        return 1
    dense = dims.get("tp", 1) * dims.get("cp", 1)
    expert = dims.get("etp", dims.get("tp", 1)) * ep
    order = list(dims)
    if "dp" in order and set(order[order.index("dp") + 1 :]) - {"pp", "vpp"}:
        raise ValueError(f"mesh {text!r}: with ep, dp must come after tp, cp, etp and ep")
    if "pp" in order and set(order[order.index("pp") + 1 :]) - {"vpp"}:
        raise ValueError(f"mesh {text!r}: with ep, pp must come last")
    joined = lcm(dense, expert) // dense
    if dims.get("dp", 1) % joined != 0:
        raise ValueError(f"mesh {text!r}: {expert} ranks of etp and ep do not divide the ranks of a stage")
    return joined


def text_of(mesh: Any, names: Sequence[str] | None = None) -> str:
    """The mesh's text: a str as it is, a DeviceMesh of the whole job by the names of its dimensions."""
    if isinstance(mesh, str):
        return mesh
    names = names or mesh.mesh_dim_names
    if names is None:
        raise ValueError("the DeviceMesh has no mesh_dim_names; name its dimensions tp, cp, fsdp, dp or pp")
    ranks = mesh.mesh.flatten().tolist()
    if ranks != list(range(len(ranks))):
        raise ValueError(f"the DeviceMesh has its ranks in the order {ranks[:8]}; Falcon takes 0, 1, 2 and so on")
    dims = zip(reversed(names), reversed(mesh.mesh.shape), strict=True)
    return ",".join(f"{ALIASES.get(name, name)}={size}" for name, size in dims)
