"""A process that takes a dead rank's place makes its groups without peers, with every PyTorch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1]

# As PyTorch before 2.14: groups are made by their classes, nothing is registered.
BEFORE_2_14 = """
import torch, torch.distributed as dist
from datetime import timedelta
from falcon_torch import _join

c10d = dist.distributed_c10d
saved = dict(dist.Backend._plugins)
dist.Backend._plugins.clear()
if hasattr(dist.Backend, "_ensure_backend_registered"):
    dist.Backend._ensure_backend_registered = lambda name: None
real = c10d.ProcessGroupGloo
_join.pretend_backends()
assert _join.joins()
group = c10d.ProcessGroupGloo(dist.HashStore(), 1, 4, timeout=timedelta(seconds=77))
assert isinstance(group, c10d.ProcessGroupGloo) and not isinstance(group, real)
group._set_sequence_number_for_group()
group._shutdown()
assert group.size() == 4 and group.rank() == 1
assert _join.asked_timeout() == timedelta(seconds=77)
_join.restore_backends()
assert c10d.ProcessGroupGloo is real and not _join.joins()
print("right")
"""


def test_groups_without_peers_where_they_are_made_by_class() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BEFORE_2_14], cwd=PACKAGE, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.endswith("right\n"), done.stderr[-2000:]


ALONE = """
import sys, torch, torch.distributed as dist
from falcon_torch import _join

_join.pretend_backends()
dist.init_process_group("gloo")
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
before = [p.clone() for p in model.parameters()]
try:
    if sys.argv[1] == "step":
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    else:
        torch.save(model.state_dict(), sys.argv[2])
finally:
    assert all(bool((a == b).all()) for a, b in zip(before, model.parameters()))
print("goes on")
"""


@pytest.mark.parametrize("what", ["step", "save"])
def test_a_replacement_that_does_not_rejoin_changes_and_saves_nothing(what: str, tmp_path: Path) -> None:
    saved = tmp_path / "model.pt"
    environment = os.environ | {"RANK": "1", "WORLD_SIZE": "4"}
    done = subprocess.run(
        [sys.executable, "-c", ALONE, what, str(saved)],
        cwd=PACKAGE,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "without having rejoined" in done.stderr
    assert not saved.exists()
