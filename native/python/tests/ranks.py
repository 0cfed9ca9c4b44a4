"""Plays a function on several ranks: forked processes over gloo, on CPUs."""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.distributed as dist

from fake_hook import Mailbox, Post, install
from falcon_torch import _votes

LIMIT_S = 120
MEET_S = 60  # for all ranks to have met, before any of the adapter's code runs
MEET_TRIES = 3
torch.set_num_threads(1)  # threads do not survive a fork


class RankError(AssertionError):
    """A rank raised; the text has its traceback."""


class NotMetError(RankError):
    """The ranks have not met: a fork of a process with threads may stand in a lock that one of them held."""


def play(
    world: int,
    function: Callable[..., Any],
    *args: Any,
    posts: list[Post] | None = None,
    hookless: frozenset[int] = frozenset(),
    stride_most: int = 1,
) -> list[Any]:
    """Return what function(mailbox, *args) returns on each rank; at most so many iterations lie between votes."""
    for _ in range(MEET_TRIES - 1):
        try:
            return _play(world, function, args, posts or [], hookless, stride_most)
        except NotMetError as e:
            print(e)
    return _play(world, function, args, posts or [], hookless, stride_most)


def _play(
    world: int,
    function: Callable[..., Any],
    args: Any,
    posts: list[Post],
    hookless: frozenset[int],
    stride_most: int,
) -> list[Any]:
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        ranks, pipes = [], []
        for rank in range(world):
            ours, theirs = fork.Pipe(duplex=False)
            mailbox = Mailbox(rank, list(posts), present=rank not in hookless)
            ranks.append(fork.Process(target=_rank, args=(theirs, folder, world, mailbox, stride_most, function, args)))
            ranks[-1].start()
            theirs.close()
            pipes.append(ours)
        try:
            _receive(pipes, MEET_S, NotMetError)
            return _receive(pipes, LIMIT_S, RankError)
        finally:
            for rank_process in ranks:
                rank_process.kill()
                rank_process.join()


def _receive(pipes: list[Connection], limit_s: int, late: type[RankError]) -> list[Any]:
    """Take the next message of each rank, None where it has ended; none for so long is an error of that type."""
    results: dict[int, Any] = {}
    while len(results) < len(pipes):
        ready = wait([p for k, p in enumerate(pipes) if k not in results], timeout=limit_s)
        if not ready:
            missing = sorted(set(range(len(pipes))) - set(results))
            raise late(f"ranks {missing} gave no result within {limit_s} s")
        for pipe in ready:
            rank = pipes.index(pipe)  # type: ignore[arg-type]
            try:
                ok, results[rank] = pipes[rank].recv()
            except EOFError:
                ok, results[rank] = True, None  # the rank ended by itself
            if not ok:
                raise RankError(f"rank {rank}: {results[rank]}")
    return [results[rank] for rank in range(len(pipes))]


def _rank(
    out: Connection,
    folder: str,
    world: int,
    mailbox: Mailbox,
    stride_most: int,
    function: Callable[..., Any],
    args: Any,
) -> None:
    gc.freeze()  # to collect a store that a fork has copied would wait for its thread, which is not here
    _votes.STRIDE_MOST = stride_most
    os.environ.update(
        RANK=str(mailbox.rank), WORLD_SIZE=str(world), LOCAL_RANK=str(mailbox.rank), GLOO_SOCKET_IFNAME="lo"
    )
    try:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=mailbox.rank, world_size=world)
        out.send((True, None))
        faulthandler.dump_traceback_later(LIMIT_S - 20, file=sys.__stderr__)  # where it stands, before it is killed
        result = function(install(mailbox), *args)
        out.send((True, result))
        out.close()
        dist.barrier()
    except BaseException:  # whatever it is, the test shows it
        out.send((False, traceback.format_exc()))
    finally:
        os._exit(0)  # gloo's threads may wait for ranks that are gone


def same(got: torch.Tensor, want: torch.Tensor) -> float:
    """The largest difference, relative to the largest element."""
    return float((got - want).abs().max() / want.abs().max().clamp_min(1e-300))
