"""The machine that gpu.py runs on, and the processes of the part that runs."""

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent


class SkipError(Exception):
    """A part that can't be had here; its text is the line of the report."""


def free_port() -> int:
    """Find a port whose successor is likely free as well."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Bench:
    """The machine, and the processes of the part that runs."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.bin = Path(options.bin).resolve()
        self.hollow = options.hollow
        self.end = time.monotonic() + options.seconds
        self.deadline = self.end
        self.folder = Path(tempfile.mkdtemp(prefix="falcon-gpu-"))
        self.processes: list[subprocess.Popen] = []
        self.agent: subprocess.Popen  # of the newest part that has one
        self.base = dict(os.environ)
        self.hook = self.bin / "lib" / "libfalcon_hook.so"
        self.plugin = self.bin / "lib" / "libnccl-profiler-falcon.so"

    def left(self) -> float:
        """Seconds until the part's deadline."""
        return max(0.1, self.deadline - time.monotonic())

    def need(self, *files: Path) -> None:
        """SkipError where a file is not built."""
        for f in files:
            if not f.exists():
                raise SkipError(f"{f} is not there: make build on a machine with Go, and carry bin/")

    def start(self, command: list, env: dict | None = None, name: str = "process") -> subprocess.Popen:
        """Start a process of this part; its output goes to a file of that name."""
        out = (self.folder / f"{name}.out").open("wb")
        p = subprocess.Popen(
            [str(c) for c in command],
            env=env or self.base,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.processes.append(p)
        return p

    def text(self, name: str) -> str:
        """Read what a process wrote."""
        return (self.folder / f"{name}.out").read_text(errors="replace")

    def lines(self, name: str) -> list[dict]:
        """Read the JSON lines of a rank."""
        out = []
        for line in self.text(name).splitlines():
            if line.startswith("{"):
                try:
                    out.append(json.loads(line))
                except ValueError:
                    continue
        return out

    def why(self, name: str) -> str:
        """Find the line that says why a process failed."""
        lines = [line for line in self.text(name).splitlines() if line.strip() and not line.startswith("{")]
        errors = [line for line in lines if "Error" in line or "error" in line]
        return (errors or lines or ["it wrote nothing"])[-1][:300]

    def wait(self, what: str, ready, least: float = 0.1):
        """Wait for an event, until the part's deadline."""
        while True:
            got = ready()
            if got:
                return got
            if time.monotonic() > self.deadline:
                raise SkipError(f"{what} did not come within the part's time")
            time.sleep(least)

    def kill(self) -> None:
        """End what this part started, by its groups."""
        for p in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(p.pid, signal.SIGKILL)
            p.wait()
        self.processes = []
        mark = f"FALCON_SHM_DIR={self.shm()}".encode()
        for environ in Path("/proc").glob("[0-9]*/environ"):  # what an agent started has a group of its own
            with contextlib.suppress(OSError):
                if mark in environ.read_bytes().split(b"\0"):
                    os.kill(int(environ.parent.name), signal.SIGKILL)

    def rank_env(self, rank: int, world: int, port: int, hook: str = "") -> dict:
        """Build the environment of a rank; hook is "", "hook" or "plugin"."""
        env = dict(self.base)
        env.update(
            RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
        )
        env.update(
            NCCL_HOSTID=f"falcon-{rank}",
            NCCL_MULTI_RANK_GPU_ENABLE="1",
            NCCL_CUMEM_ENABLE="0",
            PYTHONUNBUFFERED="1",
            NCCL_SOCKET_IFNAME="lo",
        )
        if hook:
            env.update(
                FALCON_JOB="gpu", FALCON_SHM_DIR=str(self.shm()), FALCON_DEVICE=f"n1.g{rank}", FALCON_TEST_MB="64"
            )
        if hook == "hook":
            env["LD_PRELOAD"] = ":".join(filter(None, [str(self.hook), env.get("LD_PRELOAD", "")]))
        if hook == "plugin":
            env["NCCL_PROFILER_PLUGIN"] = str(self.plugin)
        return env

    def shm(self) -> Path:
        """Make the folder of the hooks' files."""
        folder = self.folder / "shm"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def job(self, mode: str, world: int, hook: str, port: int = 0, **extra: str) -> tuple[list[subprocess.Popen], int]:
        """Start all ranks of a job; they meet at a port."""
        port = port or free_port()
        ranks = []
        for r in range(world):
            env = self.rank_env(r, world, port, hook) | extra
            ranks.append(self.start([sys.executable, HERE / "ranks.py", mode], env, f"rank{r}"))
        return ranks, port

    def finish(self, ranks: list[subprocess.Popen]) -> None:
        """Wait for all ranks to end well."""
        for r, p in enumerate(ranks):
            try:
                rc = p.wait(self.left())
            except subprocess.TimeoutExpired:
                raise SkipError(f"rank {r} did not end within the part's time: {self.why(f'rank{r}')}") from None
            if rc:
                raise SkipError(f"rank {r} ended with {rc}: {self.why(f'rank{r}')}")

    def inspect(self) -> str:
        """Ask the agent's inspection of one hooked process."""
        files = [f for f in self.shm().iterdir() if f.name.startswith("falcon.") and not f.name.endswith(".ended")]
        if not files:
            raise SkipError("no hooked process left a file: NCCL is called past the hook")
        done = subprocess.run(
            [self.bin / "falcon-agent", "inspect", files[0]], capture_output=True, text=True, timeout=self.left()
        )
        return done.stdout or done.stderr
