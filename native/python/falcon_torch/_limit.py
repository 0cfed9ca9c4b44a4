"""The time limit of a collective, applied while PyTorch's own watchdog must not act.

A survivor of a peer's death is held for a recovery, so the watchdog is off. Where no recovery comes, as when the
engine is away, this limit ends the process as the watchdog would: launchers and schedulers then do what they do.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from typing import Any

import torch.distributed.distributed_c10d as c10d

from . import _hook
from ._log import Log

SPARE_S = 60.0  # beyond the group's own limit: a recovery that has begun is not cut off
LOOKED_AT_S = 5.0  # shorter waits are not compared: they are no reason to look at groups


class Limit:
    """Ends the process when it has waited in one collective for longer than its group allows."""

    def __init__(self, hook: _hook.Hook, log: Log) -> None:
        self._hook, self._log = hook, log

    def look(self) -> None:
        """Compare, and end the process where the limit has passed."""
        waited = self._hook.waited_s()
        if waited < LOOKED_AT_S or self._hook.suspended():
            return
        limit = longest_s()
        if waited <= limit + SPARE_S:
            return
        why = (
            f"falcon_torch: waited {waited:.0f} s for peers in one collective: {SPARE_S:.0f} s more than its group's "
            f"limit of {limit:.0f} s, and no recovery came; ending the process, as PyTorch's watchdog would"
        )
        self._log.write(end="limit", why=why)
        print(why, file=sys.stderr, flush=True)
        os.abort()


def longest_s() -> float:
    """The longest limit of any process group: of which one the wait is, is not known."""
    limits = [limit_of(group).total_seconds() for group in list(c10d._world.pg_map)]
    return max(limits, default=c10d.default_pg_timeout.total_seconds())


def limit_of(group: c10d.ProcessGroup) -> timedelta:
    """The limit of one group's collectives: that of its backend which allows most."""
    limits: list[timedelta] = []
    for device in group._device_types:
        options = getattr(group._get_backend(device), "options", None)
        limits.append(getattr(options, "_timeout", c10d.default_pg_timeout))
    return max(limits, default=c10d.default_pg_timeout)


def set_limit(limit: timedelta) -> None:
    """Set the limit of the default group's collectives."""
    now: Any = getattr(c10d, "set_timeout", None) or getattr(c10d, "_set_pg_timeout", None)
    if now is not None:
        now(limit, c10d._get_default_group())
