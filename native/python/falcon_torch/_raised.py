"""The error that ends this program, reported to the agent: a console names it where the ranks' ends are shown."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # as typing has it, which takes longer to import than all of this
if TYPE_CHECKING:
    from types import TracebackType

# Errors of communication, by name, as importing torch for them here would take seconds.
OF_PEERS = {"DistError", "DistBackendError", "DistNetworkError", "DistStoreError", "DistQueueEmptyError"}
TEXTS_OF_PEERS = ("NCCL", "gloo", "Connection closed by peer", "Connection reset by peer", "Broken pipe")
OWN = os.path.dirname(os.path.abspath(__file__))


def install() -> None:
    """Report what no handler takes, then go on as before."""
    before = sys.excepthook

    def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        _report(kind, error, trace)
        before(kind, error, trace)

    sys.excepthook = report


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    try:
        from ._hook import Hook

        text = next(iter(str(error).strip().splitlines()), "")
        Hook().raised(kind.__name__, where(trace), text, of_peers(kind, text))
    except Exception:  # what is reported must not hide what happened
        return


def of_peers(kind: type[BaseException], text: str) -> bool:
    """Whether a peer's end alone may explain an error."""
    if any(k.__name__ in OF_PEERS for k in kind.__mro__) or issubclass(kind, ConnectionError):
        return True
    return issubclass(kind, RuntimeError) and any(t in text for t in TEXTS_OF_PEERS)


def where(trace: TracebackType | None) -> str:
    """The innermost line that is of the program itself, and of no package, frozen module or part of Falcon."""
    found = ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        installed = "site-packages" in file or "dist-packages" in file
        if not found or not (installed or file.startswith(("<frozen", sys.base_prefix + "/lib", OWN))):
            found = f"{os.path.basename(file)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found
