"""A process that takes a dead rank's place makes its groups without peers, with every PyTorch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
