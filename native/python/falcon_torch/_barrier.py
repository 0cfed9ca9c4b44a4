"""Every rank has finished forward and backward of an iteration before any rank updates (FlashRecovery, figure 7).

Ranks that hold different parts of the state (pipeline stages, shards) exchange gradients within their part alone. Of
such a job one part would be a step further than another one when a rank dies in its backward pass, and no step would
be held whole. It must not decide what a rank does that does not learn how the others fared.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.distributed as dist

LOOK_S = 0.0002  # between two looks at a call of gloo, which can't be cut off


class Barrier:
    """A sum over all ranks that the host reads: it is their number once each of them has come."""

    def __init__(self, device: torch.device, cut_off: Callable[[], bool]) -> None:
        self._waits = "nccl" not in str(dist.get_backend())
        self._one = torch.ones(1, dtype=torch.int64, device="cpu" if self._waits else device)
        self._sum, self._cut_off = self._one.clone(), cut_off

    def passes(self) -> bool:
        """Whether every rank has come; waits for them. False, or RuntimeError, where the wait was cut off.

        Then other ranks may have passed.
        """
        self._sum.copy_(self._one)
        work = dist.all_reduce(self._sum, async_op=True)
        while self._waits and not work.is_completed():
            if self._cut_off():
                return False
            time.sleep(LOOK_S)
        work.wait()
        return bool(self._sum.item() == dist.get_world_size())
