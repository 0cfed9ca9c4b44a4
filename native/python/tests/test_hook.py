"""The stand-in of the tests has what the hook has, and the hook what the header declares."""

from __future__ import annotations

import ctypes
import inspect
import re
from pathlib import Path

from fake_hook import Mailbox
from falcon_torch import _hook

HEADER = (Path(__file__).parent.parent.parent / "include" / "falcon_job.h").read_text()
TYPES = {
    "int": ctypes.c_int,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "void": None,
    "const char *": ctypes.c_char_p,
    "falcon_job_order *": ctypes.POINTER(_hook._Order),
    "const int64_t": ctypes.POINTER(ctypes.c_int64),
    "const uint64_t": ctypes.POINTER(ctypes.c_uint64),
}


def declared() -> dict[str, tuple[object, list[object]]]:
    """Result and parameters of the header's functions, as ctypes has them."""
    text = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.S)
    out: dict[str, tuple[object, list[object]]] = {}
    for result, name, inside in re.findall(r"^(\w+) (falcon_job_\w+)\(([^)]*)\);", text, flags=re.M):
        parameters = [
            re.sub(r"\w+(\[\d+\])?$", "", p.strip()).strip() for p in inside.split(",") if p.strip() != "void"
        ]
        out[name] = (TYPES[result], [TYPES[p] for p in parameters])
    return out


def test_signatures_are_the_header_s() -> None:
    header = declared()
    assert len(header) > 10
    for name, (result, arguments) in _hook._SIGNATURES.items():
        assert header[name] == (result, list(arguments)), name


def test_the_order_has_the_header_s_size() -> None:
    (most,) = re.findall(r"#define FALCON_JOB_VALUES_MAX (\d+)", HEADER)
    assert int(most) == _hook.VALUES_MAX
    assert ctypes.sizeof(_hook._Order) == 24 + 4 * int(most)


def test_the_stand_in_has_the_hook_s_methods() -> None:
    def methods(of: type) -> dict[str, list[str]]:
        found = inspect.getmembers(of, inspect.isfunction)
        return {name: list(inspect.signature(f).parameters) for name, f in found if not name.startswith("_")}

    real, fake = methods(_hook.Hook), methods(Mailbox)
    fake.pop("of")
    assert fake == real
