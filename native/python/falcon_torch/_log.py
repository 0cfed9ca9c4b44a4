"""One JSON line per iteration, order and end, where FALCON_LOG says so ("stdout", or "unix:PATH")."""

from __future__ import annotations

import json
import os
import socket
import time
from typing import Any


class Log:
    """Where a rank writes its lines; without FALCON_LOG nowhere. It never fails training."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._fd = -1
        self._socket: socket.socket | None = None
        to = os.environ.get("FALCON_LOG", "")
        if to == "stdout":
            self._fd = os.dup(1)
        elif to.startswith("unix:"):
            self._connect(to.removeprefix("unix:"))

    def _connect(self, path: str) -> None:
        try:
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.settimeout(2)
            self._socket.connect(path)
        except OSError:
            self._socket = None
            return
        self._fd = self._socket.fileno()
        self.write(pid=os.getpid(), generation=int(os.environ.get("FALCON_GENERATION", "0")))

    def write(self, **fields: Any) -> None:
        """Write one line; what can't be written is lost."""
        if self._fd < 0:
            return
        line = "\n" + json.dumps({"rank": self.rank, **fields}) + "\n"  # a print without an end may come before
        if self._socket is not None:
            line = line[1:]
        try:
            os.write(self._fd, line.encode())
        except OSError:
            self._fd = -1

    def iteration(self, i: int, ms: float, paused_ms: float, first_sample: int, micro_batches: int) -> None:
        """Write the line of one iteration."""
        if self._fd < 0:
            return
        cpu = os.times()
        self.write(
            iteration=i,
            ms=round(ms, 3),
            paused_ms=round(paused_ms, 3),
            loss=0,
            first_sample=first_sample,
            micro_batches=micro_batches,
            cpu_ms=1e3 * (cpu.user + cpu.system),
            end_unix_ns=time.time_ns(),
        )
