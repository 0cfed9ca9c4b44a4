"""Stands in for packages that a framework imports and that no test needs: kernels, data sets, reports."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

# What PyTorch itself does with triton it finds out when these are imported: that must be the truth.
FIRST = ("torch.utils.flop_counter", "torch._inductor.compile_fx", "torch._inductor.select_algorithm")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names: list[str]) -> None:
        self.names = names

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in self.names else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        made: Any = MagicMock(name=spec.name)
        made.__name__, made.__spec__, made.__path__ = spec.name, spec, []
        return made  # type: ignore[no-any-return]

    def exec_module(self, _: ModuleType) -> None:
        """Nothing is in it."""


@contextmanager
def unused(*names: str) -> Iterator[None]:
    """Have modules of these packages be importable, where they are not installed."""
    for name in FIRST:
        importlib.import_module(name)
    finder = _Finder([name for name in names if importlib.util.find_spec(name) is None])
    if "tensorboard" in finder.names:
        sys.modules["torch.utils.tensorboard"] = MagicMock()
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [m for m in sys.modules if m.partition(".")[0] in finder.names]:
            del sys.modules[name]
