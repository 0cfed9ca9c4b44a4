"""SIGINT ends a process whose main thread waits for a peer that has ended; in any other Python takes it as ever."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

PACKAGE = Path(__file__).parent.parent
SCRIPT = """
import ctypes, os, signal, sys, threading
sys.path.insert(0, {package!r})
from falcon_torch import _interrupt
_interrupt.TAKEN_S, _interrupt.LOOK_S = 0.1, 0.05
_interrupt._peer_has_ended = lambda: {ended}
libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)

def wait(seconds=None):  # in C, where no handler runs
    libc.pthread_mutex_lock(mutex)
    if seconds:
        threading.Timer(seconds, libc.pthread_mutex_unlock, (mutex,)).start()
    libc.pthread_mutex_lock(mutex)

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may ignore it
_interrupt.watch()
{first}
print("ready", flush=True)
{then}
print("went on", flush=True)
"""


def await_call(pid: int) -> None:
    """Until the main thread sleeps in its call, and in the same one."""
    seen: list[str] = []
    while len(seen) < 5 or len(set(seen[-5:])) > 1 or seen[-1].startswith("running"):
        seen.append(Path(f"/proc/{pid}/syscall").read_text())
        time.sleep(0.01)


def interrupted(then: str, ended: bool, first: str = "") -> tuple[int, str, str]:
    """The status of a process that gets SIGINT, and what it printed."""
    text = SCRIPT.format(package=str(PACKAGE), ended=ended, first=first, then=then)
    process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    await_call(process.pid)
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=60)
    return process.returncode, out, said


def test_who_waits_for_a_peer_that_has_ended_ends() -> None:
    status, out, said = interrupted("wait()", ended=True)
    assert (status, out) == (-signal.SIGINT, "")
    assert said.strip().startswith("falcon_torch: SIGINT came, a peer has ended")


def test_who_waits_for_peers_that_live_takes_it_when_they_come() -> None:
    status, out, said = interrupted("wait(1)", ended=False)
    assert (status, out) == (-signal.SIGINT, "")
    assert "falcon_torch" not in said.partition("Traceback")[0]
    assert said.strip().endswith("KeyboardInterrupt")


def test_what_the_program_does_with_it_is_left_to_it() -> None:
    caught = "try:\n    threading.Event().wait()\nexcept KeyboardInterrupt:\n    wait(1)"
    assert interrupted(caught, ended=True)[:2] == (0, "went on\n")
    own = "signal.signal(signal.SIGINT, lambda *_: print('own', flush=True))"
    assert interrupted("wait(1)", ended=True, first=own)[:2] == (0, "own\nwent on\n")


def test_a_signal_to_a_child_is_none_to_its_parent() -> None:
    child = """
child = os.fork()
if child == 0:
    signal.signal(signal.SIGINT, lambda *_: os._exit(7))
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait()
"""
    then = f"{child}\nassert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7\nwait(1)"
    text = SCRIPT.format(package=str(PACKAGE), ended=True, first="", then=then)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "ready\nwent on\n"), done.stderr
