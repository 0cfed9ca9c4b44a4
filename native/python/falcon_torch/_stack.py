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
_FIRST_NAMESPACE = 0xEFFFFFFC  # inode of the machine's first PID namespace, fixed by the kernel
_started = False


def start(folder: str = "") -> None:
    """Look for requests from now on; a second call does nothing."""
    global _started
    if _started:
        return
    _started = True
    shared = folder or os.environ.get("FALCON_SHM_DIR") or "/dev/shm"
    threading.Thread(target=_watch, args=(shared,), name="falcon-stack", daemon=True).start()


def folders(shared: str) -> list[str]:
    """The folders where the agent may ask: the hook's own file lies in one of them (native/hook/folder.c)."""
    return [os.path.join(shared, f"falcon-{_outer_user()}"), shared]


def _outer_user() -> int:
    """Number of this user outside of its user namespace, as the hook takes it."""
    me = os.geteuid()
    with contextlib.suppress(OSError, ValueError), open("/proc/self/uid_map") as table:
        for line in table:
            inside, outside, count = map(int, line.split())
            if inside <= me < inside + count:
                return outside + me - inside
    return me


def _watch(shared: str) -> None:
    places = folders(shared)
    while True:
        time.sleep(LOOK_S)
        for folder in places:
            with contextlib.suppress(OSError):
                _answer(folder, _own_name())


def _own_name() -> str:
    """Number of this process, and its PID namespace unless that is the machine's first: containers share folders."""
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        namespace = _FIRST_NAMESPACE
    return str(os.getpid()) if namespace == _FIRST_NAMESPACE else f"{os.getpid()}-{namespace}"


def _answer(folder: str, pid: str) -> None:
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
