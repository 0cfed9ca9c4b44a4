"""Runs a training script, at once or as a standby: a process that waits, its imports done, to take a lost rank's place.

usage: python -m falcon_torch.standby SCRIPT [ARGUMENT ...]
       python -m falcon_torch.standby -m MODULE [ARGUMENT ...]

The agent starts a standby with FALCON_STANDBY naming a socket that nobody else has. The process imports torch and the
modules of FALCON_STANDBY_IMPORTS, and waits: it makes nothing of the job, holds no rank and no GPU, and Falcon's hook
stays idle in it. One order makes it a rank, with the environment, the arguments and the log of an ordinary launch. It
ends with its agent, and when no order has come within a day. Without FALCON_STANDBY the script runs at once.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import select
import socket
import sys
import types
from typing import Any

LIFE_S = 86400.0  # then the agent starts another one: modules may have been replaced since
ORDER_MAX = 1 << 20
FIRST_TO_END = "1000"  # of oom_score_adj: where memory runs out, a standby goes before any rank
OOM = "/proc/self/oom_score_adj"
TAKEN = "taken"  # FALCON_STANDBY of a process that has become a rank: the hook counts its life from then on
# What falcon_torch and DistributedDataParallel import when a job is made.
IMPORTS = ("torch", "torch.distributed", "torch._dynamo", "falcon_torch._api", "falcon_torch._ddp")


def main(arguments: list[str]) -> None:
    """Become the script: now, or when it is ordered."""
    if not arguments or arguments == ["-m"]:
        raise SystemExit("falcon_torch.standby: name a script: python -m falcon_torch.standby train.py")
    name = os.environ.get("FALCON_STANDBY", "")
    if name not in ("", TAKEN):
        arguments = _wait(name)
    _become(arguments)


def _wait(name: str) -> list[str]:
    """Import, wait for the order, and be what it names; the script and its arguments."""
    line = _open(name)
    score = _oom_score()
    _set_oom_score(FIRST_TO_END)
    for module in (*IMPORTS, *filter(None, os.environ.get("FALCON_STANDBY_IMPORTS", "").split(","))):
        importlib.import_module(module)
    line.send(json.dumps({"ready": True}).encode())
    ready, _, _ = select.select([line], [], [], LIFE_S)
    if not ready:
        raise SystemExit(0)
    data, files, flags, _ = socket.recv_fds(line, ORDER_MAX, 1)
    if not data:  # the agent has ended, or needs no standby any more
        raise SystemExit(0)
    order = _read(data, flags)
    for file in files:
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.close(file)
    os.environ.update(order["env"])
    os.environ["FALCON_STANDBY"] = TAKEN
    os.environ.pop("FALCON_STANDBY_IMPORTS", None)
    _set_oom_score(score)
    if _oom_score() != score:
        raise SystemExit(f"falcon_torch.standby: {OOM} can't be set back: this process would be the first to end")
    _prepare()
    line.send(json.dumps({"taken": order["mark"]}).encode())  # fails where the agent is gone: then nobody counts on it
    line.close()
    return list(order["args"])


def _open(name: str) -> socket.socket:
    try:
        line = socket.socket(fileno=int(name))
    except (ValueError, OSError) as error:
        raise SystemExit(f"falcon_torch.standby: FALCON_STANDBY={name} is no socket of an agent: {error}") from error
    line.set_inheritable(False)
    return line


def _read(data: bytes, flags: int) -> dict[str, Any]:
    if flags & socket.MSG_TRUNC:
        raise SystemExit("falcon_torch.standby: an order is longer than can be read")
    order: dict[str, Any] = json.loads(data)
    if not order["args"] or order["args"] == ["-m"] or not order["mark"]:
        raise SystemExit("falcon_torch.standby: an order names no script")
    return order


def _prepare() -> None:
    """Do what importing this package does in a process that is started for its rank."""
    if "libfalcon_hook" in os.environ.get("LD_PRELOAD", ""):
        from . import _environment

        _environment.prepare()


def _oom_score() -> str:
    with open(OOM) as file:
        return file.read().strip()


def _set_oom_score(score: str) -> None:
    """Set it where the kernel lets this process: what it lets it raise it lets it set back."""
    try:
        with open(OOM, "w") as file:
            file.write(score)
    except OSError:
        pass


def _become(arguments: list[str]) -> None:
    """Run the script as Python itself would."""
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    path = arguments[0]
    sys.argv = arguments
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    script = types.ModuleType("__main__")
    script.__dict__.update(__file__=path, __builtins__=__builtins__)
    sys.modules["__main__"] = script
    exec(code, script.__dict__)


if __name__ == "__main__":
    main(sys.argv[1:])
