"""Agents have started a job again: what an elastic agent starts beside them makes no groups."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch.distributed as dist

SCRIPT = """
import os
os.environ["LD_PRELOAD"] = "/lib/libfalcon_hook.so"  # as under the hook
from falcon_torch import _environment
_environment.prepare()
import torch.distributed as dist
dist.init_process_group("gloo")
print("met", dist.get_world_size(), os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"])
"""


def start(store: dist.TCPStore, **environment: str) -> subprocess.CompletedProcess[str]:
    """A job of one process that meets in the store."""
    given = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
    own = {**os.environ, "LD_PRELOAD": "", "TORCHELASTIC_USE_AGENT_STORE": "True", "GLOO_SOCKET_IFNAME": "lo"}
    path = os.pathsep.join(sys.path)
    return subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        env={**own, "PYTHONPATH": path, **given, **environment},
        check=False,
        timeout=120,
    )


def worker(attempt: int) -> dict[str, str]:
    """What torchrun gives its workers."""
    return {
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_MAX_RESTARTS": "3",
        "TORCHELASTIC_RESTART_COUNT": str(attempt),
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }


@pytest.fixture
def store() -> dist.TCPStore:
    return dist.TCPStore("127.0.0.1", 0, None, is_master=True, wait_for_workers=False)


def test_workers_of_torchrun_meet_where_nothing_was_launched(store: dist.TCPStore) -> None:
    got = start(store, **worker(1))
    assert got.stdout.split() == ["met", "1", "0"], got.stderr


def test_workers_of_torchrun_end_beside_a_launch(store: dist.TCPStore) -> None:
    launched = start(store, FALCON_GENERATION="4", TORCHELASTIC_RESTART_COUNT="4")
    assert launched.stdout.split() == ["met", "1", "0"], launched.stderr
    beside = start(store, **worker(1))
    assert beside.returncode == 1
    assert beside.stdout == ""
    assert beside.stderr.strip().startswith("falcon_torch: agents have started this job again as generation 4")


def test_what_a_user_asks_for_is_refused_and_not_overwritten(store: dist.TCPStore) -> None:
    got = start(store, TORCH_NCCL_ASYNC_ERROR_HANDLING="1")
    assert got.stdout.split() == ["met", "1", "1"], got.stderr
