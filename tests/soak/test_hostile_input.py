"""Hostile requests at two replicas, for as long as asked: every answer is one the contract knows, nothing breaks,
and afterwards the ledger adds up and memory has not grown.

`make soak` runs twenty minutes; `SCHEDULER_TEST_SOAK_SECONDS` says otherwise.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import msgpack
import pytest

from scheduler.api.status import STATUS_BY_ERROR
from scheduler.inspection.recount import check
from scheduler.ledger.ledger import open_ledger
from tests.replicas.harness.rig import Rig
from tests.soak.hostile import NODES, HostileRequest, Hostility
from tests.support.servers import RedisServer

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SOAK_SECONDS = float(os.environ.get("SCHEDULER_TEST_SOAK_SECONDS", "1200"))
BRIEF_SECONDS = 12.0
CALLERS = 8


@dataclass(slots=True)
class Sample:
    """Memory in bytes at one moment."""

    replicas: list[int]
    redis: int
    keys: int


@dataclass(slots=True)
class Soak:
    rig: Rig
    server: RedisServer
    ends_at: float
    answers: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    async def attack(self, seed: int) -> None:
        hostility = Hostility(seed)
        async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
            while time.monotonic() < self.ends_at and len(self.faults) < 20:
                request = hostility.request()
                try:
                    response = await self._send(client, request)
                except httpx.HTTPError as error:
                    self.faults.append(f"{request} ended in {type(error).__name__}: {error}")
                    continue
                self._judge(request, response)
                if response.status_code == 200 and request.path == "/v1/schedule":
                    made = _content(response)["reservation"]
                    if made is not None:
                        hostility.note_reservation(made["reservation_id"])

    async def _send(self, client: httpx.AsyncClient, request: HostileRequest) -> httpx.Response:
        headers = list(request.headers)
        content = None
        if isinstance(request.body, bytes):
            content = request.body
        elif request.body is not None:
            # As another program would: lone surrogates are escaped, and so reach the replica.
            content = json.dumps(request.body).encode()
            headers.append(("Content-Type", "application/json"))
        url = f"{self.rig.any_url()}{request.path}"
        wire = [(name.encode(), value.encode("latin-1")) for name, value in headers]
        return await client.request(request.method, url, content=content, headers=wire)

    def _judge(self, request: HostileRequest, response: httpx.Response) -> None:
        said = str(response.status_code)
        if response.status_code >= 400:
            code = _content(response).get("code", "")
            said = f"{said} {code}"
            if response.status_code not in KNOWN_STATUSES or response.status_code == 500 or not code:
                self.faults.append(f"{request} was answered {said}: {response.text[:300]}")
        self.answers[said] += 1

    async def keep_nodes_alive(self) -> None:
        """Somebody well-behaved reports as well, so that there is something to attack."""
        async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
            while True:
                for node_id in NODES:
                    url = f"{self.rig.any_url()}/v1/nodes/{node_id}"
                    await client.put(url, json={"endpoint": f"http://{node_id}:8000"})
                    snapshot = {"status": "ready", "cpu_count": 64, "memory_total_bytes": 2**36}
                    body = {"service_instance_id": "the-real-one", "snapshot": snapshot}
                    await client.post(f"{url}/heartbeat", json=body)
                await asyncio.sleep(1)

    async def take_samples(self, every_seconds: float) -> None:
        while True:
            await asyncio.sleep(every_seconds)
            self.samples.append(await asyncio.to_thread(self._sample))

    def _sample(self) -> Sample:
        replicas = [
            int(Path(f"/proc/{replica.pid}/statm").read_text().split()[1]) * PAGE_BYTES for replica in self.rig.replicas
        ]
        with self.server.client() as client:
            return Sample(replicas, client.info("memory")["used_memory"], client.dbsize())


def _content(response: httpx.Response) -> dict[str, Any]:
    packed = response.headers["content-type"] == "application/msgpack"
    content: dict[str, Any] = msgpack.unpackb(response.content) if packed else response.json()
    return content


KNOWN_STATUSES = {status.http for status in STATUS_BY_ERROR.values()} | {405}


async def soak(server: RedisServer, seconds: float) -> Soak:
    settings = ("strategy=least_loaded", "report_ttl=5s", "templates.learn=true", "shutdown.drain=200ms")
    async with Rig(server.address, replicas=2, settings=settings) as rig:
        run = Soak(rig, server, time.monotonic() + seconds)
        helpers = [
            asyncio.create_task(run.keep_nodes_alive()),
            asyncio.create_task(run.take_samples(max(1.0, seconds / 60))),
        ]
        try:
            await asyncio.gather(*(run.attack(rig.random.getrandbits(32)) for _ in range(CALLERS)))
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
        print(f"seed {rig.seed}: {dict(run.answers.most_common())}")
        assert run.faults == []
        await rig.ready()
        assert not any("Traceback" in line for replica in rig.replicas for line in replica.other_lines)
        logged = [event for replica in rig.replicas for event in replica.log if event["level"] in ("error", "critical")]
        assert logged == []
        await _explain_every_key(server)
        return run


async def _explain_every_key(server: RedisServer) -> None:
    """`inspect check`: nothing contradicts itself, and no key is unknown or without a bound."""
    ledger = await open_ledger(server.url)
    try:
        report = await check(ledger)
    finally:
        await ledger.close()
    assert report.ok, "\n".join(map(str, report.violations))
    with server.client() as client:
        assert report.looked_at["keys"] == pytest.approx(client.dbsize(), abs=50)  # some expire in between


async def test_hostile_requests_for_a_moment(private_server: RedisServer) -> None:
    run = await soak(private_server, BRIEF_SECONDS)
    assert run.answers["200"] > 20
    assert sum(count for said, count in run.answers.items() if said.startswith("4")) > 20


@pytest.mark.soak
@pytest.mark.timeout(SOAK_SECONDS + 300)
async def test_hostile_requests_until_memory_would_show_it(private_server: RedisServer) -> None:
    run = await soak(private_server, SOAK_SECONDS)
    third = len(run.samples) // 3
    middle, last = run.samples[third : 2 * third], run.samples[2 * third :]
    for number in range(len(run.rig.replicas)):
        _assert_flat(f"replica {number}", middle, last, lambda sample, number=number: sample.replicas[number])
    # Finished reservations stay readable for an hour, so keys grow in a run of twenty minutes; what one takes does not.
    _assert_flat("Redis, a key", middle, last, lambda sample: sample.redis / sample.keys)


def _assert_flat(what: str, middle: list[Sample], last: list[Sample], size: Any) -> None:
    before, after = median(map(size, middle)), median(map(size, last))
    print(f"{what}: {before:,.0f} bytes in the middle third, {after:,.0f} in the last")
    assert after <= before * 1.1, f"{what} grew from {before:,.0f} to {after:,.0f} bytes"
