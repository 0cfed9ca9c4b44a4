"""A process that waits to become a rank: what its order makes of it, and that it ends without one."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PACKAGE = Path(__file__).parent.parent
# Without torch, which these tests need not import.
START = "import sys; import falcon_torch.standby as s; s.IMPORTS = ('json',); s.main(sys.argv[1:])"
SCRIPT = """
import json, os, sys
import beside
print(json.dumps({
    "argv": sys.argv, "rank": os.environ.get("RANK"), "standby": os.environ.get("FALCON_STANDBY"),
    "imports": os.environ.get("FALCON_STANDBY_IMPORTS"), "name": __name__, "main": sys.modules["__main__"].__file__,
    "path": sys.path[0], "beside": beside.HERE, "oom": open("/proc/self/oom_score_adj").read().strip(),
    "nice": os.nice(0), "early": "colorsys" in sys.modules,
}), flush=True)
raise SystemExit(int(os.environ.get("STATUS", "0")))
"""


class Standby:
    """A standby, and what its agent holds of it."""

    def __init__(self, folder: Path, *arguments: str, start: str = START, **env: str) -> None:
        (folder / "train.py").write_text(SCRIPT)
        (folder / "beside.py").write_text("HERE = 'beside'\n")
        self.log = folder / "log"
        self.line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.line.settimeout(60)
        path = os.pathsep.join([str(PACKAGE), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
        self.process = subprocess.Popen(
            [sys.executable, "-c", start, *arguments],
            env={**os.environ, "PYTHONPATH": path, "FALCON_STANDBY": str(theirs.fileno()), **env},
            cwd=folder,
            pass_fds=[theirs.fileno()],
            stderr=subprocess.PIPE,
            text=True,
        )
        theirs.close()

    def heard(self) -> dict[str, Any]:
        data = self.line.recv(4096)
        return json.loads(data) if data else {}

    def order(self, *args: str, **env: str) -> None:
        with self.log.open("w") as log:
            data = json.dumps({"env": env, "args": args, "mark": "m"}).encode()
            socket.send_fds(self.line, [data], [log.fileno()])

    def ended(self) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


def oom() -> str:
    return Path("/proc/self/oom_score_adj").read_text().strip()


def test_an_order_makes_it_the_rank(tmp_path: Path) -> None:
    s = Standby(tmp_path, "train.py", "--rank={rank}", FALCON_STANDBY_IMPORTS="colorsys")
    assert s.heard() == {"ready": True}
    assert Path(f"/proc/{s.process.pid}/oom_score_adj").read_text().strip() == "1000"
    s.order("train.py", "--rank=5", RANK="5", STATUS="3")
    assert s.heard() == {"taken": "m"}
    code, _ = s.ended()
    got = json.loads(s.log.read_text())
    assert code == 3
    assert got == {
        "argv": ["train.py", "--rank=5"],
        "rank": "5",
        "standby": "taken",
        "imports": None,
        "name": "__main__",
        "main": "train.py",
        "path": str(tmp_path),
        "beside": "beside",
        "oom": oom(),
        "nice": os.nice(0),
        "early": True,
    }


def test_it_runs_nothing_when_its_agent_ends(tmp_path: Path) -> None:
    s = Standby(tmp_path, "train.py")
    s.heard()
    s.line.close()
    assert s.ended()[0] == 0
    assert not s.log.exists()


def test_an_agent_that_ends_before_the_answer_has_nothing_running(tmp_path: Path) -> None:
    s = Standby(tmp_path, "train.py")
    s.heard()
    os.kill(s.process.pid, signal.SIGSTOP)
    s.order("train.py", RANK="5")
    s.line.close()
    os.kill(s.process.pid, signal.SIGCONT)
    code, _ = s.ended()
    assert code != 0
    assert s.log.read_text() == "" or "Traceback" in s.log.read_text()
    assert '"rank"' not in s.log.read_text()


def test_it_ends_after_its_life(tmp_path: Path) -> None:
    s = Standby(tmp_path, "train.py", start=START.replace("; s.main", "; s.LIFE_S = 0.2; s.main"))
    assert s.heard() == {"ready": True}
    assert s.ended()[0] == 0


@pytest.mark.parametrize("data", [b"what", b"{}", b'{"env": {}, "args": [], "mark": 1}'])
def test_an_order_that_is_none_runs_nothing(tmp_path: Path, data: bytes) -> None:
    s = Standby(tmp_path, "train.py")
    s.heard()
    s.line.send(data)
    assert s.heard() == {}
    assert s.ended()[0] != 0


@pytest.mark.parametrize("value", ["77", "x", "1"])
def test_a_socket_that_is_none(tmp_path: Path, value: str) -> None:
    s = Standby(tmp_path, "train.py", FALCON_STANDBY=value)
    code, errors = s.ended()
    assert code == 1
    assert "is no socket of an agent" in errors
    assert "Traceback" not in errors


def test_a_module_that_is_missing_is_named(tmp_path: Path) -> None:
    s = Standby(tmp_path, "train.py", FALCON_STANDBY_IMPORTS="no_such_module")
    code, errors = s.ended()
    assert code == 1
    assert "no_such_module" in errors


@pytest.mark.parametrize("standby", ["", "taken"])
def test_without_an_agent_the_script_runs_at_once(tmp_path: Path, standby: str) -> None:
    s = Standby(tmp_path, "train.py", "a", FALCON_STANDBY=standby, RANK="2", STATUS="4")
    s.process.stderr, got = None, s.process.wait(60)
    assert got == 4


def test_a_module_as_the_script(tmp_path: Path) -> None:
    s = Standby(tmp_path, "-m", "train")
    s.heard()
    s.order("-m", "train", "--x", RANK="1")
    s.heard()
    assert s.ended()[0] == 0
    got = json.loads(s.log.read_text())
    assert (got["name"], got["argv"][1:]) == ("__main__", ["--x"])


def test_no_script_is_one_sentence(tmp_path: Path) -> None:
    s = Standby(tmp_path)
    code, errors = s.ended()
    assert code == 1
    assert errors == "falcon_torch.standby: name a script: python -m falcon_torch.standby train.py\n"
