"""Control data on the emulated GPU: what an operator gives there is what it gives on the CPU."""

import random
import sys
import threading

import torch

SHAPES = [(1,), (7,), (3, 4), (2, 3, 5), (0,), (4, 1)]
TYPES = [torch.int64, torch.int32, torch.uint8, torch.bool]


def same(name: str, device: object, host: object) -> None:
    got = device.cpu() if isinstance(device, torch.Tensor) else device
    right = got == host if not isinstance(host, torch.Tensor) else got.dtype == host.dtype and torch.equal(got, host)
    if not right:
        sys.exit(f"{name}: {got} on the device, {host} on the host")


def fresh(r: random.Random) -> torch.Tensor:
    shape, kind = r.choice(SHAPES), r.choice(TYPES)
    n = 1
    for s in shape:
        n *= s
    return torch.tensor([r.randrange(2 if kind == torch.bool else 100) for _ in range(n)]).to(kind).reshape(shape)


STEPS = {
    "cat": lambda x, k: torch.cat([x, x]),
    "cat of others": lambda x, k: torch.cat([x.reshape(-1), torch.arange(k, device=x.device)]),
    "stack": lambda x, k: torch.stack([x, x]).sum(0),
    "transposed": lambda x, k: x.t().contiguous() if x.dim() == 2 else x.clone(),
    "every second": lambda x, k: x.reshape(-1)[::2].contiguous(),
    "cast": lambda x, k: x.to(TYPES[k % 4]),
    "through floats": lambda x, k: x.float().to(torch.int64),
    "compared": lambda x, k: (x > k) | (x == 3),
    "arithmetic": lambda x, k: x.to(torch.int64) * 3 + k,
    "in place": lambda x, k: x.to(torch.int64).add_(k).mul_(2),
    "filled": lambda x, k: torch.full_like(x, k % 2),
    "where": lambda x, k: torch.where(x.to(torch.int64) > k, x.to(torch.int64), k),
    "set": lambda x, k: put(x, k),
    "masked": lambda x, k: x[x.to(torch.int64) > k],
    "unique": lambda x, k: torch.unique(x),
    "nonzero": lambda x, k: torch.nonzero(x),
    "sorted": lambda x, k: torch.sort(x.reshape(-1).to(torch.int64), stable=True)[1],
    "summed": lambda x, k: x.to(torch.int64).cumsum(0),
    "most": lambda x, k: x.reshape(-1).to(torch.int64).max().reshape(1) if x.numel() else x.clone(),
    "picked": lambda x, k: x.reshape(-1)[torch.tensor([0, 0], device=x.device)] if x.numel() else x.clone(),
    "flipped": lambda x, k: x.flip(0),
    "bytes": lambda x, k: torch.cat([x.to(torch.int64).reshape(-1)] * 2).view(torch.uint8).clone(),
    "repeated": lambda x, k: torch.repeat_interleave(x.reshape(-1).to(torch.int64) % 3),
}


def put(x: torch.Tensor, k: int) -> torch.Tensor:
    y = x.reshape(-1).to(torch.int64).clone()
    if y.numel():
        y[k % y.numel()] = k
        y[: y.numel() // 2] += 1
    return y


def stories(count: int) -> int:
    steps = 0
    for seed in range(count):
        r = random.Random(seed)
        host = fresh(r)
        device = host.cuda()
        told = []
        for _ in range(8):
            name, k = r.choice(sorted(STEPS)), r.randrange(50)
            told.append(f"{name} {k}")
            host, device = STEPS[name](host, k), STEPS[name](device, k)
            same(f"story {seed}, {told}", device, host)
            if host.numel() > 5000:
                break
            steps += 1
    return steps


def for_the_host() -> None:
    a = torch.arange(10, device="cuda")
    same("equal", torch.equal(a, a.clone()), True)
    same("not equal", torch.equal(a, a + 1), False)
    same("truth", bool((a < 10).all()), True)
    same("size of the largest", max(a.unbind()).item(), 9)
    x = torch.rand(16, 4)
    same("indices of floats", x.cuda().topk(2)[1], x.topk(2)[1])
    same("floats that move", torch.cat([x.cuda().t(), x.cuda().t()]).contiguous(), torch.cat([x.t(), x.t()]))


def decided_alike() -> None:
    """What a framework decides by is not computed, but every rank finds the same: a norm, a loss, an overflow."""
    for k in range(200):
        torch.full((1 << k % 14,), float("nan"), device="cuda")  # what memory held before
        x = torch.full((512, 256), float("inf"), device="cuda")
        norm = torch.stack([part.norm(2) for part in x.split(128)]).norm(2)
        same("a norm", bool((~torch.isfinite(norm) | (norm < 0)).any()), False)
        torch.full_like(norm, float("inf"))  # whose place is taken next
        same("a finite norm", bool(torch.isfinite(norm)), True)
        same("overflow", bool(torch.isfinite(x.amax()).logical_not()), False)
        same("a loss", x.square().mean().item(), 0.0)


def streams_in_order() -> None:
    side = torch.cuda.Stream()
    a = torch.zeros(4, dtype=torch.int64, device="cuda")
    for k in range(200):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            a += k
        torch.cuda.current_stream().wait_stream(side)
        a += 1
    same("two streams", a, torch.full((4,), 200 + sum(range(200))))


def from_threads() -> None:
    def count(out: list[int]) -> None:
        a = torch.zeros(8, dtype=torch.int64, device="cuda")
        for _ in range(300):
            a += 1
        out.append(int(a.sum()))

    found: list[int] = []
    threads = [threading.Thread(target=count, args=(found,)) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    same("four threads", found, [2400] * 4)


def nothing_breaks() -> None:
    a = torch.arange(4, device="cuda")
    a[torch.tensor([1000], device="cuda")]  # on a GPU a kernel would stop the process; no check is emulated
    large = torch.zeros(1 << 25, dtype=torch.uint8, device="cuda")
    large += 1  # data: larger than what is computed
    same("the next operator", a + 1, torch.arange(1, 5))
    same("a large one", int(large[0]), 0)


torch.cuda.set_device(0)
for_the_host()
decided_alike()
streams_in_order()
from_threads()
nothing_breaks()
print("control data:", stories(int(sys.argv[1])), "operators")
