"""Deals a dataset to the ranks by the numbers of micro-batches, so that any split sees each sample once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

TAKEN = ("batch_sampler", "drop_last", "sampler")  # options of DataLoader that dealing decides


class Deal:
    """Which samples belong to a micro-batch.

    The micro-batches of all iterations are numbered; number n has the same samples whichever rank
    runs it. An epoch has as many whole iterations as the dataset gives; what is left over is not
    used in it.
    """

    def __init__(self, dataset: Any, size: int, per_iteration: int, shuffle: bool, seed: int) -> None:
        if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
            raise ValueError("the dataset has no length or no order; take one with __getitem__ and __len__")
        if size < 1:
            raise ValueError(f"batch_size is {size}; it must be at least 1")
        samples = len(dataset)
        self._samples, self._size, self._shuffle, self._seed = samples, size, shuffle, seed
        self._per_epoch = samples // (size * per_iteration) * per_iteration
        if self._per_epoch == 0:
            raise ValueError(f"the dataset has {samples} samples; one iteration takes {size * per_iteration}")
        self._epoch, self._order = -1, torch.empty(0, dtype=torch.int64)

    def indices(self, number: int) -> list[int]:
        """The indices of the samples of micro-batch number."""
        epoch, at = divmod(number, self._per_epoch)
        first = at * self._size
        if not self._shuffle:
            return list(range(first, first + self._size))
        if epoch != self._epoch:
            random = torch.Generator().manual_seed(self._seed + epoch)
            self._epoch, self._order = epoch, torch.randperm(self._samples, generator=random)
        picked: list[int] = self._order[first : first + self._size].tolist()
        return picked


class Loader:
    """The batches of one rank; job.micro_batches takes it. Made by job.loader."""

    def __init__(
        self,
        dataset: Any,
        deal: Deal,
        numbers: Callable[[int], range],
        whole: bool,
        options: dict[str, Any],
    ) -> None:
        for name in TAKEN:
            if name in options:
                raise ValueError(f"{name} can't be given: which samples a rank gets follows from the split")
        if options.get("num_workers", 0) > 0:
            options = {"persistent_workers": True, **options}
        self._deal, self._numbers, self._whole = deal, numbers, whole
        self._first = 0  # iteration that the sampler begins with when it is iterated
        self._loader = DataLoader(dataset, batch_sampler=self, **options)
        self._batches: Iterator[Any] | None = None
        self._next: tuple[int, range] | None = None  # the iteration that _batches goes on with, and what it deals there

    def __iter__(self) -> Iterator[list[int]]:
        """Iterate over the indices of batches, without end; workers run ahead of training."""
        iteration = self._first
        while True:
            dealt = [self._deal.indices(number) for number in self._numbers(iteration)]
            yield from [list(chain.from_iterable(dealt))] if self._whole else dealt
            iteration += 1

    def of(self, iteration: int) -> Iterator[Any]:
        """Iterate over the batches of one iteration: one, or with whole off one per micro-batch."""
        numbers = self._numbers(iteration)
        if self._batches is None or self._next != (iteration, numbers):
            self._first = iteration  # another split, or a batch was left: what workers prepared is dropped
            self._batches = iter(self._loader)
        self._next = None
        for _ in range(1 if self._whole else len(numbers)):
            yield next(self._batches)
        self._next = (iteration + 1, self._numbers(iteration + 1))
