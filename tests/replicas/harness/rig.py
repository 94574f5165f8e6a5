"""Replicas as processes, all on one ledger."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import signal
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tests.support.replica_process import ReplicaProcess

START_SECONDS = 60.0  # several start at once, on a machine that has other work
LISTEN_NO_MORE_THAN_NEEDED = ("--no-grpc", "--no-metrics-listener")


def seed_of_this_run() -> int:
    """`SCHEDULER_TEST_SEED`, else a new one."""
    return int(os.environ.get("SCHEDULER_TEST_SEED") or secrets.randbits(32))


class Rig:
    """`replicas` processes on the ledgers at `addresses` (one for all, or one each).

    `settings` are `--set KEY=VALUE`s; every replica gets them. A replica that was killed is started anew with
    the same arguments on another port, as a supervisor on another machine would."""

    def __init__(
        self,
        *addresses: str,
        replicas: int = 2,
        settings: Sequence[str] = (),
        arguments: Sequence[str] = LISTEN_NO_MORE_THAN_NEEDED,
    ) -> None:
        self.seed = seed_of_this_run()
        self.random = random.Random(self.seed)
        common = [*arguments, *(word for setting in settings for word in ("--set", setting))]
        self._commands = [("--redis-addr", addresses[number % len(addresses)], *common) for number in range(replicas)]
        self._environments: list[dict[str, str]] = [{} for _ in range(replicas)]
        self.replicas = [ReplicaProcess(*command) for command in self._commands]
        self._serving: set[int] = set()
        self.fixed_urls: list[str] = []  # of replicas that somebody else started

    def environment(self, number: int, **variables: str) -> None:
        """Of the replica `number`, before it is started."""
        self._environments[number] = variables
        self.replicas[number] = ReplicaProcess(*self._commands[number], environment=variables)

    @property
    def urls(self) -> list[str]:
        """Where a balancer would send requests now: every replica that was ready and has not been taken out."""
        return self.fixed_urls or [self.replicas[number].url for number in sorted(self._serving)]

    def any_url(self) -> str | None:
        return self.random.choice(urls) if (urls := self.urls) else None

    async def start(self) -> Self:
        print(f"\nseed {self.seed}  (SCHEDULER_TEST_SEED={self.seed} replays it)")
        await asyncio.gather(*(self.start_one(number) for number in range(len(self.replicas))))
        return self

    async def start_one(self, number: int) -> None:
        """Start a replica and wait until it says that it is ready."""
        replica = self.replicas[number]
        replica.spawn()
        await asyncio.to_thread(replica.wait_for_event, "listening", START_SECONDS)
        await asyncio.to_thread(replica.wait_until_ready, START_SECONDS)
        self._serving.add(number)

    async def kill(self, number: int) -> None:
        """As a power cut would. Callers notice by themselves: a balancer is never told beforehand either."""
        await asyncio.to_thread(self.replicas[number].kill)
        self._serving.discard(number)

    async def replace(self, number: int) -> None:
        """After `kill`: another process in its place."""
        self.replicas[number] = ReplicaProcess(*self._commands[number], environment=self._environments[number])
        await self.start_one(number)

    def freeze(self, number: int) -> None:
        self.replicas[number].send(signal.SIGSTOP)

    def wake(self, number: int) -> None:
        self.replicas[number].send(signal.SIGCONT)

    async def terminate(self, number: int) -> int:
        """SIGTERM, and its exit status. It is taken out of balance only when it stops answering."""
        status = await asyncio.to_thread(self.replicas[number].stop)
        self._serving.discard(number)
        return status

    async def ready(self) -> None:
        """Every serving replica says that it is."""
        for number in sorted(self._serving):
            await asyncio.to_thread(self.replicas[number].wait_until_ready, START_SECONDS)

    def output(self) -> str:
        return "\n".join(f"--- replica {number}\n{replica.output()}" for number, replica in enumerate(self.replicas))

    async def __aenter__(self) -> Self:
        try:
            return await self.start()
        except BaseException:
            await self._end(signal.SIGKILL)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind:
            print(f"seed {self.seed}\n{self.output()[-20_000:]}")
        await self._end(signal.SIGKILL if kind else signal.SIGTERM)

    async def _end(self, number: signal.Signals) -> None:
        for replica in self.replicas:
            replica.send(signal.SIGCONT)
            replica.send(number)
        running = [replica for replica in self.replicas if replica.process is not None]
        ended = await asyncio.gather(*(asyncio.to_thread(replica.wait) for replica in running), return_exceptions=True)
        for replica in running:
            replica.send(signal.SIGKILL)
        for outcome in ended:
            if isinstance(outcome, BaseException):
                raise outcome
