"""The stacks of this process's Python threads, when the node's agent asks for them.

The agent makes a file, falcon-ask.PID; a thread of this process finds it and writes falcon-stack.PID with the
interpreter's own faulthandler. No signal is used, as launchers and frameworks use them. A main thread that waits inside
NCCL or CUDA has let the interpreter's lock go, so that this thread can run; while another thread holds the lock,
nothing is written.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import threading
import time

LOOK_S = 0.5  # between two looks for a request
_started = False


def start(folder: str = "") -> None:
    """Look for requests from now on; a second call does nothing."""
    global _started
    if _started:
        return
    _started = True
    folder = folder or os.environ.get("FALCON_SHM_DIR") or "/dev/shm"
    threading.Thread(target=_watch, args=(folder,), name="falcon-stack", daemon=True).start()


def _watch(folder: str) -> None:
    while True:
        time.sleep(LOOK_S)
        with contextlib.suppress(OSError):
            _answer(folder, os.getpid())


def _answer(folder: str, pid: int) -> None:
    """Write the stacks where they are asked for, once a request, and by root or this user alone."""
    asked = os.lstat(os.path.join(folder, f"falcon-ask.{pid}"))
    path = os.path.join(folder, f"falcon-stack.{pid}")
    if asked.st_uid not in (0, os.geteuid()) or os.path.lexists(path):
        return
    new = f"{path}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        faulthandler.dump_traceback(file=fd, all_threads=True)
    finally:
        os.close(fd)
    os.rename(new, path)
