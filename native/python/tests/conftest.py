"""Tests that need torch are left out where it can't be imported, with one line."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

collect_ignore = []
if importlib.util.find_spec("torch") is None:
    collect_ignore = [f.name for f in HERE.glob("test_torch_*.py")]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the first and the last case of each test with torch, but where FALCON_CASES says all."""
    if os.environ.get("FALCON_CASES") == "all":
        return
    cases: dict[tuple[Path, str], list[pytest.Item]] = {}
    for item in items:
        if item.path.name.startswith("test_torch_"):
            cases.setdefault((item.path, getattr(item, "originalname", item.name)), []).append(item)
    left_out = [item for of_one in cases.values() for item in of_one[1:-1]]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


def pytest_report_header() -> str:
    """Say what is left out."""
    if collect_ignore:
        return f"no torch: {len(collect_ignore)} files of tests are skipped"
    import torch

    return f"torch {torch.__version__}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the largest difference of each file, and what else was measured."""
    worst: dict[str, float] = {}
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            key = f"{Path(report.location[0]).stem}: {name}"
            worst[key] = max(worst.get(key, 0.0), float(value))
    for key, value in sorted(worst.items()):
        terminalreporter.write_line(f"{key} {value:.3g}")
