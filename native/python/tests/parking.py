"""Stands in for agents and engine where a rank dies: suspension, parking, orders to rejoin."""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.distributed as dist

from fake_hook import Mailbox, Post
from falcon_torch import _hook, _join, _votes
from falcon_torch._hook import Rejoin

LIMIT_S = 1200 if os.environ.get("FALCON_LONG") == "1" else 120
SPARES = 2  # processes that may take a dead one's place
GLOO_S = 8  # by which a survivor leaves an operation with another survivor
RUNNING, PARKED_EMPTY = -2, -1  # in Agent.parked; else the iteration that a parked rank holds
torch.set_num_threads(1)  # threads do not survive a fork
fork = multiprocessing.get_context("fork")


class Agent:
    """What ranks and the test share in place of agents and an engine."""

    def __init__(self, world: int, shard_of: Callable[[int], int]) -> None:
        self.world, self.shard_of = world, shard_of
        self.suspended = fork.Value("q", 0)
        # generation, resume, whether from a checkpoint, then split, then sources
        self.order = fork.Array("q", [0, 0, 0] + [0] * 2 * world)
        self.parked = fork.Array("q", [RUNNING] * world)  # by rank
        self.older = fork.Array("q", [PARKED_EMPTY] * world)  # another iteration that a parked rank holds
        self.split = fork.Array("q", [0] * world)  # in force, zeros as it was in the beginning

    def rejoin(self, stored: int = -1) -> int:
        """Order all to rejoin at the newest iteration of which each shard has a holder; others get its state.

        With stored all go back to the checkpoint of that iteration.
        """
        resume, sources = (self._newest() if stored < 0 else stored), list(range(self.world))
        if stored < 0:
            holders = self._holders(resume)
            sources = [r if r in holders[self.shard_of(r)] else holders[self.shard_of(r)][0] for r in sources]
        with self.order.get_lock():
            self.order[:] = [self.suspended.value, resume, int(stored >= 0), *self.split, *sources]
        return resume

    def _holders(self, step: int) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {self.shard_of(r): [] for r in range(self.world)}
        for r in range(self.world):
            if step in (self.parked[r], self.older[r]):
                found[self.shard_of(r)].append(r)
        return found

    def _newest(self) -> int:
        newest = max(self.parked)
        for step in (newest, newest - 1):
            if all(self._holders(step).values()):
                return step
        raise AssertionError(f"no step is held whole: {list(self.parked)}, {list(self.older)}")

    def read(self) -> Rejoin:
        with self.order.get_lock():
            generation, resume, stored, *rest = self.order[:]
        split, sources = rest[: self.world], rest[self.world :]
        moves = {rank: source for rank, source in enumerate(sources) if rank != source}
        return Rejoin(generation, resume, bool(stored), [count for count in split if count], moves)


@dataclass
class ParkingMailbox(Mailbox):
    """A mailbox whose rank can be suspended."""

    agent: Any = None
    generation: int = 0
    voided: int = 0

    def poll(self, i: int) -> int:
        newest = super().poll(i)
        return newest if newest > self.voided else 0

    def ack(self, order: int, i: int, status: int) -> None:
        super().ack(order, i, status)
        voted = next(p.order for p in self.posts if p.order.id == order)
        if status == _hook.APPLIED and voted.kind == _hook.MICRO_BATCHES:
            self.agent.split[:] = voted.values + [0] * (self.agent.world - len(voted.values))

    def place(self, order: int, i: int, rank: int, step_ns: list[int], received: int) -> None:
        super().place(order, i, rank, step_ns, received)
        self.rank = rank

    def suspended(self) -> bool:
        return bool(self.agent.suspended.value > self.generation)

    def park(
        self, status: int, step: int, checksum: int, older: tuple[int, int] = (PARKED_EMPTY, 0)
    ) -> tuple[int, Rejoin | None]:
        super().park(status, step, checksum, older)
        self.agent.older[self.rank] = older[0]
        self.agent.parked[self.rank] = step
        while self.agent.order[0] <= self.generation:
            time.sleep(0.002)
        self.agent.parked[self.rank] = RUNNING
        order = self.agent.read()
        self.generation = order.generation
        self.voided = super().poll(order.resume)
        return _hook.PARK_REJOIN, order


Train = Callable[[ParkingMailbox], Any]


def _process(orders: Connection, out: Connection, agent: Agent, posts: list[Post], train: Train) -> None:
    """Wait for a rank to hold, and be its process."""
    gc.freeze()  # to collect a store that a fork has copied would wait for its thread, which is not here
    rank, port, joins = orders.recv()
    mailbox = ParkingMailbox(rank, list(posts), agent=agent)
    mailbox.generation = agent.suspended.value - 1 if joins else 0  # older orders are not for it
    os.environ.update(RANK=str(mailbox.rank), WORLD_SIZE=str(mailbox.agent.world), LOCAL_RANK=str(mailbox.rank))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCHELASTIC_USE_AGENT_STORE="True")
    os.environ.update(GLOO_SOCKET_IFNAME="lo")
    faulthandler.register(signal.SIGUSR1)
    _hook.Hook = lambda: mailbox  # type: ignore[assignment,misc]
    _votes.STRIDE_MOST = 1
    try:
        if joins:
            _join.pretend_backends()
            dist.init_process_group("gloo", timeout=timedelta(seconds=GLOO_S))  # of its groups, once it has joined
        else:
            dist.init_process_group("gloo")
            dist.distributed_c10d._set_pg_timeout(timedelta(seconds=GLOO_S), dist.group.WORLD)
        out.send((True, train(mailbox)))
    except BaseException:  # whatever it is, the test shows it
        out.send((False, traceback.format_exc()))
    out.close()
    time.sleep(LIMIT_S)  # its connections stay until all have ended


class Job:
    """Processes of one job, and what becomes of them."""

    def __init__(
        self,
        world: int,
        train: Train,
        posts: list[Post],
        shard_of: Callable[[int], int] = lambda _: 0,
        spares: int = SPARES,
    ) -> None:
        self.agent = Agent(world, shard_of)
        self.processes: list[Any] = [None] * world
        self._pipes: list[Any] = [None] * world
        self._waiting: list[Any] = []
        for _ in range(world + spares):  # before there are threads: a fork may copy a lock that one of them holds
            ours, theirs = fork.Pipe(duplex=False)
            reads, orders = fork.Pipe(duplex=False)
            process = fork.Process(target=_process, args=(reads, theirs, self.agent, posts, train), daemon=True)
            process.start()
            theirs.close()
            self._waiting.append((process, ours, orders))
        self._store = dist.TCPStore("127.0.0.1", 0, None, is_master=True, wait_for_workers=False)

    def start(self, place: int, rank: int, joins: bool = False) -> None:
        """Start the process at a place, with a rank."""
        self.processes[place], self._pipes[place], orders = self._waiting.pop(0)
        orders.send((rank, self._store.port, joins))

    def recover(self, dying: int, rank: int, stored: int = -1) -> int:
        """Wait until process dying has ended, and have a new one take its rank; the iteration that they resume at."""
        self.processes[dying].join(LIMIT_S)
        assert self.processes[dying].exitcode == 9
        self._pipes[dying] = None
        self.agent.suspended.value += 1
        parked = self.agent.parked
        self._until(lambda: all(parked[r] != RUNNING for r in range(self.agent.world) if r != rank))
        self.start(dying, rank, joins=True)
        self._until(lambda: parked[rank] == PARKED_EMPTY)
        return self.agent.rejoin(stored)

    def again(self, stored: int = -1) -> int:
        """Wait until all have parked once more, after a rejoin that failed, and order another one."""
        self.agent.suspended.value += 1
        self._until(lambda: all(p != RUNNING for p in self.agent.parked))
        return self.agent.rejoin(stored)

    def _until(self, ready: Callable[[], bool]) -> None:
        end = time.monotonic() + LIMIT_S
        while not ready():
            self._raise_errors()
            self._require(time.monotonic() < end, f"it took too long; parked: {list(self.agent.parked)}")
            time.sleep(0.005)

    def _raise_errors(self) -> None:
        for pipe in self._pipes:
            if pipe is not None and pipe.poll():
                codes = [p.exitcode for p in self.processes]
                raise AssertionError(f"a rank ended too soon, {codes}: {pipe.recv()}")

    def _require(self, condition: bool, text: str) -> None:
        """Fail with the text, after each process has printed where it is."""
        if not condition:
            for process in self.processes:
                if process.is_alive():
                    os.kill(process.pid, signal.SIGUSR1)
            time.sleep(1)
            raise AssertionError(text)

    def results(self) -> list[Any]:
        """What each process's train returned."""
        got = {}
        while len(got) < self.agent.world:
            ready = wait([p for k, p in enumerate(self._pipes) if k not in got], timeout=LIMIT_S)
            self._require(bool(ready), f"processes {sorted(set(range(self.agent.world)) - set(got))} did not end")
            for pipe in ready:
                k = self._pipes.index(pipe)
                ok, got[k] = pipe.recv()  # type: ignore[union-attr]
                assert ok, f"process {k}: {got[k]}"
        return [got[k] for k in range(self.agent.world)]

    def play(self, dead: tuple[int, int] | None = None) -> list[Any]:
        """What the processes returned, all ended; dead is the process that dies, and the rank that it holds by then."""
        try:
            for rank in range(self.agent.world):
                self.start(rank, rank)
            if dead is not None:
                self.recover(*dead)
            return self.results()
        finally:
            self.end()

    def end(self) -> None:
        for process in [p for p in self.processes if p is not None] + [p for p, _, _ in self._waiting]:
            process.kill()
            process.join()
        del self._store  # with its thread: the next job forks
