"""Who makes the job's groups: once agents have started the job again, nobody else does.

An elastic agent such as torchrun, with --max-restarts above 0, starts its workers again by itself. Where an agent of
Falcon can't end it, as on a node that has none, they would meet in the store what agents have started: two jobs.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from typing import Any

KEY = "falcon/launched"  # the generation that was launched, in the store itself
SENTENCE = (
    "falcon_torch: agents have started this job again as generation {}, and an elastic agent, such as torchrun, has "
    "started this process beside them: it ends before it makes a group. Give torchrun --max-restarts 0 where agents "
    "start ranks"
)


def number(variable: str) -> int:
    """What a variable of a launcher holds, 0 where it holds none."""
    text = os.environ.get(variable, "")
    return int(text) if text.isdigit() else 0


def needed() -> bool:
    """Whether this process may be one of two jobs: agents have started it, or an elastic agent has again."""
    return number("FALCON_GENERATION") > 0 or number("TORCHELASTIC_RESTART_COUNT") > 0


def watch() -> None:
    """Look into the store whenever groups are about to be made."""
    rendezvous: Any = importlib.import_module("torch.distributed.rendezvous")
    handlers = rendezvous._rendezvous_handlers
    real = handlers["env"]

    def watched(*args: Any, **kwargs: Any) -> Iterator[tuple[Any, int, int]]:
        for store, rank, size in real(*args, **kwargs):
            check(store)
            yield store, rank, size

    handlers["env"] = watched


def check(store: Any) -> None:
    """Say that this process's generation was launched, or end a process that no launch has started beside it."""
    generation = number("FALCON_GENERATION")
    if generation > 0:
        say(store, generation)
    elif whole(store).check([KEY]):
        raise SystemExit(SENTENCE.format(whole(store).get(KEY).decode()))


def say(store: Any, generation: int) -> None:
    """Tell whoever comes later that agents have started ranks of this generation."""
    whole(store).set(KEY, str(generation))


def whole(store: Any) -> Any:
    """The store without the prefixes of an attempt."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return store
