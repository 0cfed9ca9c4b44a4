"""SIGINT for a process whose main thread can't take it: it waits on the device for a peer that has ended by it.

Python runs a signal's handler in the main thread, between two instructions. What Ctrl-C sends to all ranks ends those
that are in Python; the others wait for them in a call. PyTorch's watchdog would end them, and is off under Falcon.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from contextlib import suppress

TYPE_CHECKING = False  # as typing has it, which takes longer to import than all of this
if TYPE_CHECKING:
    from types import FrameType

TAKEN_S = 2.0  # for the main thread to take it
LOOK_S = 0.5
SENTENCE = "falcon_torch: SIGINT came, a peer has ended, and this process waits for it: it ends by SIGINT"
_taken = [0]  # how often the main thread has


def watch() -> None:
    """Have a thread end this process by SIGINT where its main thread can't. Once, in the main thread."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    if threading.current_thread() is not threading.main_thread():
        return
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    if (before := signal.set_wakeup_fd(writes, warn_on_full_buffer=False)) != -1:  # another one's
        signal.set_wakeup_fd(before)
        os.close(reads)
        os.close(writes)
        return
    signal.signal(signal.SIGINT, _take)
    os.register_at_fork(after_in_child=_leave_to_parent)
    threading.Thread(target=_await, args=(reads,), name="falcon-interrupt", daemon=True).start()


def _take(number: int, frame: FrameType | None) -> None:
    _taken[0] += 1
    signal.default_int_handler(number, frame)


def _leave_to_parent() -> None:
    """A signal to a child is none to its parent, which reads from the same pipe."""
    with suppress(ValueError):
        signal.set_wakeup_fd(-1)


def _await(reads: int) -> None:
    while True:
        taken = _taken[0]
        if signal.SIGINT not in os.read(reads, 4096):
            continue
        time.sleep(TAKEN_S)
        while _taken[0] == taken and signal.getsignal(signal.SIGINT) is _take:
            if _peer_has_ended():
                print(SENTENCE, file=sys.stderr, flush=True)
                _end()
            time.sleep(LOOK_S)


def _peer_has_ended() -> bool:
    """Whether a process group has failed: what the main thread waits for never comes."""
    if "torch.distributed" not in sys.modules:
        return False
    from ._recover import group_failed

    return group_failed()


def _end() -> None:
    """End by SIGINT itself, so that whoever collects this process knows why. Only C may do that in a thread."""
    c = ctypes.CDLL(None)
    c.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    c.signal(int(signal.SIGINT), None)  # SIG_DFL
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)  # it ends meanwhile
