"""Checkpoints by the job's own functions: written on order (S4), and read when a recovery goes back to storage.

An ordered checkpoint counts where every rank has written its part, else on no rank. It must not decide what is in
a checkpoint, nor where it lies.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any, TypeAlias

from . import _hook
from ._log import Log
from ._votes import Votes

Save: TypeAlias = Callable[[int], Any]
Load: TypeAlias = Callable[[int], Any]


class Storage:
    """The functions of the job that write and read its checkpoints."""

    def __init__(self, hook: _hook.Hook, log: Log, save: Save | None, load: Load | None) -> None:
        for name, function in (("save", save), ("load", load)):
            if function is not None and not callable(function):
                raise ValueError(f"{name} is a {type(function).__name__}; it must be a function of an iteration")
        self._hook, self._log, self._save, self._load = hook, log, save, load
        self.can_save = self.can_load = False  # every rank can

    def agree(self, votes: Votes) -> None:
        """Find out what every rank can: where one alone can't, none is asked to."""
        self.can_save = votes.everywhere(self._save is not None)
        self.can_load = votes.everywhere(self._load is not None)

    def write(self, votes: Votes, order: int, i: int) -> bool:
        """Write the checkpoint with which a restart begins at iteration i; the same answer on every rank."""
        assert self._save is not None
        complete = votes.decide(f"checkpoint/{order}", self._run(self._save, i, "save"))
        if complete:
            self._hook.checkpoint(i)
        return complete

    def read(self, votes: Votes, i: int) -> None:
        """Take everything over from the checkpoint of iteration i. Raise where some rank can't."""
        if not self.can_load or self._load is None:
            raise NotImplementedError("this job has no load= on every rank: it can't load a checkpoint by itself")
        if not votes.everywhere(self._run(self._load, i, "load")):
            raise ValueError(f"the checkpoint of iteration {i} was not loaded on every rank")
        self._hook.checkpoint(i)

    def _run(self, function: Callable[[int], Any], i: int, name: str) -> bool:
        """Call a function of the job; whether it succeeded. Why not is on stderr."""
        try:
            done = function(i)
        except Exception as error:  # whatever it is, all ranks go on alike
            why = "".join(traceback.format_exception_only(type(error), error)).strip()
            traceback.print_exc(file=sys.stderr)
        else:
            if done is not False:
                return True
            why = "it returned False"
        print(f"falcon_torch: {name}({i}) failed: {why}", file=sys.stderr, flush=True)
        self._log.write(storage=name, iteration=i, why=why[:400])
        return False
