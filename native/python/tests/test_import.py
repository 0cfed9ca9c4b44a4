"""What importing the package costs, and what it needs."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

PACKAGE = Path(__file__).parent.parent
MEASURE = """
import sys, time
began = time.process_time_ns()
import falcon_torch
print(time.process_time_ns() - began, "torch" in sys.modules)
"""


def python(code: str, **env: str) -> str:
    path = os.pathsep.join([str(PACKAGE), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    environment = {**os.environ, "PYTHONPATH": path, **env}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert out.returncode == 0, out.stderr
    return out.stdout


def test_import_takes_milliseconds_and_no_torch(record_property: Any) -> None:
    taken = []
    for _ in range(5):
        ns, torch = python(MEASURE).split()
        taken.append(int(ns) / 1e6)
        assert torch == "False"
    record_property("import_ms", min(taken))
    assert min(taken) <= 5


def test_without_the_hook_nothing_is_there() -> None:
    code = """
import falcon_torch
hook = falcon_torch.Hook()
print(falcon_torch.hook_loaded(), hook.present, hook.poll(3), hook.fetch(7), hook.paused_ms())
hook.mesh("dp=2", 4); hook.state(1, 1, 1); hook.begin_iteration(0); hook.begin_optimizer(0); hook.end_optimizer(1)
hook.ack(1, 2, 0); hook.finish()
"""
    assert python(code, LD_PRELOAD="").strip() == "False False 0 None 0.0"


def test_what_pytorch_reads_is_set_under_the_hook_alone() -> None:
    code = """
import os
os.environ["LD_PRELOAD"] = {preload!r}
from falcon_torch import _environment
print(*(os.environ.get(name, "-") for name in [*_environment.KEEP_ALIVE, *_environment.PROMPT]))
"""
    assert python(code.format(preload=""), LD_PRELOAD="").split() == ["-"] * 5
    assert python(code.format(preload="/lib/libfalcon_hook.so"), LD_PRELOAD="").split() == ["0"] * 5
    chosen = python(code.format(preload="libfalcon_hook.so"), LD_PRELOAD="", TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC="9000")
    assert chosen.split() == ["0"] * 4 + ["9000"]


def test_the_hook_takes_every_call() -> None:
    hook = PACKAGE.parent.parent / "bin" / "lib" / "libfalcon_hook.so"
    if not hook.exists():
        pytest.skip("the hook is not built; run make native")
    code = """
import falcon_torch
hook = falcon_torch.Hook()
hook.mesh("fsdp=2,dp=2", 4); hook.state(1 << 40, 1, 1); hook.begin_iteration(0); hook.begin_optimizer(0)
hook.end_optimizer(1); hook.ack(1, 2, 0)
print(falcon_torch.hook_loaded(), hook.present, hook.poll(1), hook.fetch(7), hook.paused_ms())
hook.finish()
"""
    assert python(code, LD_PRELOAD=str(hook)).strip() == "True True 0 None 0.0"


def test_an_unknown_name_is_an_attribute_error() -> None:
    code = "import falcon_torch\ntry: falcon_torch.dpp\nexcept AttributeError as e: print(e)"
    assert python(code).strip() == "module 'falcon_torch' has no attribute 'dpp'"


def test_the_wheel_is_pure_and_typed(tmp_path: Path) -> None:
    pytest.importorskip("setuptools.build_meta")
    code = (
        f"import os, setuptools.build_meta as b; os.chdir({str(tmp_path)!r}); print(b.build_wheel({str(tmp_path)!r}))"
    )
    for name in ("pyproject.toml", "README.md", "falcon_torch"):
        (tmp_path / name).symlink_to(PACKAGE / name)
    name = python(code).splitlines()[-1]
    import falcon_torch

    assert name == f"falcon_torch-{falcon_torch.__version__}-py3-none-any.whl"
    inside = set(zipfile.ZipFile(tmp_path / name).namelist())
    sources = {f"falcon_torch/{f.name}" for f in (PACKAGE / "falcon_torch").glob("*.py")}
    assert {f for f in inside if f.startswith("falcon_torch/")} == sources | {"falcon_torch/py.typed"}
