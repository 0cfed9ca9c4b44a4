"""Orders to rejoin are read as they are written, and a checksum sees every bit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from falcon_torch import _recover
from falcon_torch._hook import Rejoin, decode_rejoin
from falcon_torch._state import checksum


@pytest.mark.parametrize(
    "values", [[], [0, 1, 0, 0], [0, -1, 0, 0, 0], [0, 1, 0, 1, 4], [0, 1, 0, 0, 1, 2], [0, 1, 0, 0, 1, 2, 2]]
)
def test_orders_that_cannot_be_followed_are_refused(values: list[int]) -> None:
    with pytest.raises(ValueError, match="rejoin"):
        decode_rejoin(1, values)


def test_an_order_to_rejoin_is_read() -> None:
    order = decode_rejoin(4, [0, 9, 5, 2, 6, 2, 1, 3, 1])
    assert order == Rejoin(4, 5 << 31 | 9, False, [6, 2], {3: 1})


def test_a_checksum_sees_every_bit() -> None:
    tensor = torch.arange(37, dtype=torch.float32).to(torch.bfloat16)[1:]
    other = tensor.clone()
    assert checksum([tensor]) == checksum([other])
    other.view(torch.int16)[17] ^= 1
    assert checksum([tensor]) != checksum([other])
    assert checksum([tensor, other]) != checksum([other, tensor])


@pytest.mark.parametrize(
    ("told", "failed"),
    [("SUCCESS", False), ("TIMEOUT", False), ("REMOTE_ERROR", True), ("COMM_ERROR", True)],
)
def test_a_group_says_that_communication_has_failed(monkeypatch: pytest.MonkeyPatch, told: str, failed: bool) -> None:
    """Then a rank waits longer: its peers may be on a node that fell silent, which is given up after some beats."""
    backend = SimpleNamespace(get_error=lambda: f"ErrorType.{told}")
    groups = [SimpleNamespace(), SimpleNamespace(_get_backend=lambda _: backend)]  # the first can't be asked
    monkeypatch.setattr(_recover.c10d, "_world", SimpleNamespace(pg_map=groups))
    assert _recover.communication_failed(RuntimeError("CUDA error: an operation failed")) == failed
    assert _recover.communication_failed(RuntimeError("NCCL error: the remote end is gone"))


LIMIT = """
import sys
from datetime import timedelta
import torch.distributed as dist
from fake_hook import Mailbox
from falcon_torch import _limit, _log
waited, suspended = float(sys.argv[1]), sys.argv[2] == "suspended"
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=timedelta(seconds=70))
dist.new_group([0], timeout=timedelta(seconds=90))
mailbox = Mailbox(0)
mailbox.waited_s = lambda: waited
mailbox.suspended = lambda: suspended
_limit.Limit(mailbox, _log.Log(0)).look()
print("goes on")
"""


@pytest.mark.parametrize(
    ("waited", "state", "ends"),
    [(0, "trains", False), (149, "trains", False), (151, "trains", True), (999, "suspended", False)],
)
def test_a_wait_beyond_every_groups_limit_ends_the_process(waited: int, state: str, ends: bool) -> None:
    tests = Path(__file__).parent
    path = os.pathsep.join([str(tests), str(tests.parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    out = subprocess.run(
        [sys.executable, "-c", LIMIT, str(waited), state],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    assert (out.returncode == 0 and "goes on" in out.stdout) is not ends, out.stderr
    assert ("limit of 90 s" in out.stderr) is ends
