#!/usr/bin/env python3
"""The hook beside XLA's own way to NCCL: xla.py DIR BIN.

The CUDA plug-in of JAX's wheels is linked to no NCCL: stubs within it open libnccl.so.2 by name and
look each function up. This calls those very stubs, by their addresses in the plug-in's symbol table,
over an NCCL that does nothing, and compares what the hook has recorded. No GPU and no JAX is
needed; the wheel (150 MB) is fetched from PyPI and its plug-in kept in DIR.
"""

import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

from fetch import PIP

WHEEL = "jax-cuda12-pjrt==0.10.2"
PLUGIN = "xla_cuda_plugin.so"
CALLS = 5


def fetch(top):
    """The plug-in of the pinned wheel; what is there already is not fetched again."""
    to = top / WHEEL.replace("==", "-") / PLUGIN
    if to.exists():
        return to
    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=top) as tmp:
        subprocess.run([*PIP, "download", "-q", "--no-deps", "--only-binary=:all:", "-d", tmp, WHEEL], check=True)
        with zipfile.ZipFile(next(pathlib.Path(tmp).glob("*.whl"))) as z:
            name = next(n for n in z.namelist() if n.endswith(PLUGIN))
            pathlib.Path(z.extract(name, tmp)).rename(to)
    return to


def stubs(plugin):
    """Offsets of the stubs, by NCCL's names."""
    lines = subprocess.run(["nm", plugin], capture_output=True, text=True, check=True).stdout.splitlines()
    found = (line.split() for line in lines if " t nccl" in line)
    return {name: int(offset, 16) for offset, _, name in found}


class Id(ctypes.Structure):
    """ncclUniqueId, which is passed by value."""

    _fields_ = (("bytes", ctypes.c_char * 128),)


def use(plugin):
    """In a process with the hook: a communicator of one rank, and a few calls on it."""
    ctypes.CDLL(plugin)
    with open("/proc/self/maps") as maps:
        base = next(int(line.split("-")[0], 16) for line in maps if plugin in line)
    offsets, pointer, number = stubs(plugin), ctypes.c_void_p, ctypes.c_int

    def call(name, *args):
        rc = ctypes.CFUNCTYPE(number, *(type(a) for a in args))(base + offsets[name])(*args)
        if rc > 2:  # the fake's own answers to what it does not do
            sys.exit(f"{name} returned {rc}")

    comm = pointer()
    where = ctypes.cast(ctypes.pointer(comm), pointer)
    call("ncclCommInitRank", where, number(1), Id(), number(0))
    for _ in range(CALLS):
        call("ncclAllReduce", pointer(), pointer(), ctypes.c_size_t(8), number(7), number(0), comm, pointer())
    with os.scandir(os.environ["FALCON_SHM_DIR"]) as files:
        names = [f.path for f in files if f.name.startswith("falcon.")]
    if not names:
        sys.exit("refused: the calls passed by the hook")
    subprocess.run([os.environ["INSPECT"], "inspect", names[0]], check=True)


def main():
    if sys.argv[1] == "use":
        use(sys.argv[2])
        return
    top, built = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    top.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as shm:
        env = dict(os.environ, FALCON_SHM_DIR=shm, FALCON_JOB="xla", RANK="0", WORLD_SIZE="1")
        env |= {"LD_LIBRARY_PATH": str(built / "hook"), "LD_PRELOAD": str(built / "lib" / "libfalcon_hook.so")}
        env["INSPECT"] = str(built / "falcon-agent")
        command = [sys.executable, __file__, "use", str(fetch(top))]
        run = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    print(run.stdout, run.stderr, sep="", end="")
    if run.returncode or "NCCL by dlsym" not in run.stdout or f" {CALLS} calls," not in run.stdout:
        sys.exit("refused: the hook does not see what XLA's stubs call")
    print(f"run: {WHEEL}: the stubs' calls are recorded")


if __name__ == "__main__":
    main()
