from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent

PROGRAM = """
import json, sys
from falcon_torch import _hook, _raised

class Hook:
    def raised(self, *told):
        print(json.dumps(told))

_hook.Hook = Hook
_raised.install()
"""


def run(tmp_path: Path, body: str) -> tuple[str, str, int]:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM + body)
    env = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=env, check=False)
    return done.stdout.strip(), done.stderr, done.returncode


def test_what_nothing_handles_is_reported_and_printed_as_before(tmp_path: Path) -> None:
    out, err, status = run(tmp_path, "def f():\n    raise ValueError('boom\\nmore')\nf()\n")
    line = len(PROGRAM.splitlines()) + 2
    assert out == f'["ValueError", "train.py:{line}", "boom", false]'
    assert "ValueError: boom" in err
    assert status == 1


def test_what_is_handled_and_an_ordinary_end_are_not(tmp_path: Path) -> None:
    assert run(tmp_path, "try:\n    1 / 0\nexcept ZeroDivisionError:\n    pass\nsys.exit(3)\n") == ("", "", 3)


def test_the_line_is_the_programs_own(tmp_path: Path) -> None:
    out, _, _ = run(tmp_path, "json.loads('{')\n")
    assert f"train.py:{len(PROGRAM.splitlines()) + 1}" in out


def test_a_report_that_fails_hides_nothing(tmp_path: Path) -> None:
    _, err, status = run(tmp_path, "Hook.raised = None\nraise KeyError('a')\n")
    assert "KeyError: 'a'" in err
    assert status == 1


@pytest.mark.parametrize(
    ("kind", "text", "of_peers"),
    [
        (RuntimeError, "NCCL communicator was aborted on rank 3", True),
        (RuntimeError, "[../gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4242", True),
        (type("DistBackendError", (RuntimeError,), {}), "any", True),
        (ConnectionResetError, "any", True),
        (RuntimeError, "mat1 and mat2 shapes cannot be multiplied", False),
        (ValueError, "NCCL", False),
    ],
)
def test_errors_of_communication_are_told_apart(kind: type[Exception], text: str, of_peers: bool) -> None:
    from falcon_torch import _raised

    assert _raised.of_peers(kind, text) is of_peers
