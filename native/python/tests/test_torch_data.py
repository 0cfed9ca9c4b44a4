"""Every sample of an epoch is dealt to one rank, once, while the split changes."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from fake_hook import Mailbox, Post, split
from falcon_torch._job import Job
from falcon_torch._mesh import place
from ranks import play

PER_ITERATION = 8  # micro-batches of all replicas
SIZE = 3


class Numbers(Dataset[int]):
    """A sample is its index."""

    def __init__(self, samples: int) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> int:
        return index


def make_job(mailbox: Mailbox, mesh: str, world: int, micro_batches: int) -> Job:
    return Job(place(mesh, mailbox.rank, world), micro_batches, parameters=[torch.zeros(1)])


def train(mailbox: Mailbox, mesh: str, world: int, samples: int, iterations: int, options: Any) -> list[list[int]]:
    """Return the samples of each iteration."""
    job = make_job(mailbox, mesh, world, PER_ITERATION // place(mesh, 0, world).replicas)
    loader = job.loader(Numbers(samples), SIZE, **options)
    seen: list[list[int]] = []
    while job.next_iteration(iterations):
        batches = [batch.tolist() for batch in job.micro_batches(loader)]
        assert all(len(b) == SIZE for b in batches)
        seen.append(list(chain(*batches)))
    return seen


def changing(replicas: int, times: int) -> list[Post]:
    """Splits that change with nearly every iteration."""
    posts = []
    for k in range(times):
        counts = [1] * replicas
        counts[k % replicas] += 3
        counts[(k // 2) % replicas] += PER_ITERATION - sum(counts)
        posts.append(split(2 * k if k % 3 else k * 2 + 1, k + 1, counts))
    return posts


OPTIONS: list[dict[str, Any]] = [
    {},
    {"shuffle": True, "seed": 5},
    {"num_workers": 2},
    {"shuffle": True, "num_workers": 1},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("mesh", "world"), [("dp=4", 4), ("fsdp=2,dp=2", 4), ("dp=2,pp=2", 4), ("tp=2,dp=2", 4)])
def test_every_sample_once_an_epoch(mesh: str, world: int, options: dict[str, Any]) -> None:
    layout = place(mesh, 0, world)
    per_iteration = PER_ITERATION * layout.width * SIZE
    samples = 6 * per_iteration + 5  # the last 5 make no iteration
    ranks = play(world, train, mesh, world, samples, 18, options, posts=changing(layout.replicas, 8))
    alike = world // (layout.replicas * layout.width)  # ranks with the same data
    for epoch in range(3):
        seen = Counter(n for rank in ranks for i in range(6) for n in rank[6 * epoch + i])
        assert len(seen) == samples - 5
        assert set(seen.values()) == {alike}
    assert len({len(i) for rank in ranks for i in rank}) > 1, "the splits never differed"
    if options.get("shuffle"):
        assert ranks[0][:6] != ranks[0][6:12]
    else:
        assert ranks[0][0] == ranks[0][6][: len(ranks[0][0])] or len(ranks[0][0]) != len(ranks[0][6])


def test_an_iteration_has_the_same_samples_with_any_split() -> None:
    def of(posts: list[Post]) -> list[list[int]]:
        ranks = play(2, train, "dp=2", 2, 200, 10, {"shuffle": True, "seed": 1}, posts=posts)
        return [list(chain(*(rank[i] for rank in ranks))) for i in range(10)]

    assert of([]) == of([split(0, 1, [1, 7]), split(4, 2, [6, 2])])


def leave_batches(mailbox: Mailbox) -> list[int]:
    job = make_job(mailbox, "dp=1", 1, 4)
    loader = job.loader(Numbers(100), 1, num_workers=1)
    seen = []
    while job.next_iteration(4):
        for k, batch in enumerate(job.micro_batches(loader)):
            seen += batch.tolist()
            if k == 1 and job.iteration in (1, 2):
                break
    return seen


def test_batches_that_were_left_do_not_shift_the_next_iteration() -> None:
    (seen,) = play(1, leave_batches)
    assert seen == [0, 1, 2, 3, 4, 5, 8, 9, 12, 13, 14, 15]


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(5))


def misuse(mailbox: Mailbox) -> list[str]:
    job = make_job(mailbox, "dp=1", 1, 4)
    said = []
    data = Numbers(8)
    for arguments in ((data, 3), (Stream(), 1), (data, 0), (data, 1, "sampler"), (data, 1, "drop_last")):
        with pytest.raises(ValueError, match=r"\w+") as e:
            job.loader(*arguments[:2], **dict.fromkeys(arguments[2:]))  # type: ignore[arg-type]
        said.append(str(e.value))
    return said


def test_misuse_is_refused_with_a_sentence() -> None:
    (said,) = play(1, misuse)
    assert said == [
        "the dataset has 8 samples; one iteration takes 12",
        "the dataset has no length or no order; take one with __getitem__ and __len__",
        "batch_size is 0; it must be at least 1",
        "sampler can't be given: which samples a rank gets follows from the split",
        "drop_last can't be given: which samples a rank gets follows from the split",
    ]


def tensors(mailbox: Mailbox) -> list[tuple[int, ...]]:
    job = make_job(mailbox, "dp=1", 1, 2)
    loader = job.loader(TensorDataset(torch.zeros(8, 5), torch.zeros(8)), 2)
    assert job.next_iteration(1)
    return [tuple(t.shape) for pair in job.micro_batches(loader) for t in pair]


def test_batches_are_collated() -> None:
    assert play(1, tensors) == [[(2, 5), (2,), (2, 5), (2,)]]
