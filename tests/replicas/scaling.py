"""How many placements a second one, two and three replicas make on this machine, and what they cost Redis.

    make scaling

Callers keep their connections and ask one after the other; each answer is a real least_loaded placement with its
reservation written. Beside it stands the floor: the same HTTP server answering a constant. Callers, replicas and Redis
share the machine's cores, so the figures say what this machine does, not what a replica could do with a core of its
own; what Redis spends on one placement does not depend on that.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from tests.replicas.harness.fleet import Fleet, NodeModel
from tests.replicas.harness.rig import Rig
from tests.support.servers import RedisServer, free_port

HINT = {"kind": "cold_sandbox", "cpu_count": 1, "memory_mb": 512, "images": ["app"]}
WARM_UP = 200

CONSTANT = b"""
import json, sys, uvicorn

ANSWER = json.dumps({"node": {"node_id": "node-0", "endpoint": "http://node-0:8000"}, "strategy": "least_loaded",
    "replayed": False, "degraded": False, "reservation": {"reservation_id": "0" * 32, "node_id": "node-0",
    "state": "pending", "lifecycle": "explicit", "cpu_count": 1, "memory_bytes": 536870912, "sandbox_id": None,
    "created_at_ms": 0, "expires_at_ms": 0}}).encode()
HEADERS = [(b"content-type", b"application/json"), (b"content-length", str(len(ANSWER)).encode())]

async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": ANSWER})

uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error", access_log=False, lifespan="off")
"""


@dataclass(frozen=True, slots=True)
class Figures:
    """One row. `redis_us`: CPU of the Redis process per placement, everything it did meanwhile included."""

    what: str
    placements: int
    seconds: float
    latencies_ms: Sequence[float]
    redis_us: float | None
    script_us: float | None

    def quantile(self, share: float) -> float:
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Connection:
    """The least an HTTP client can be, so that the callers do not become what is measured."""

    def __init__(self, port: int) -> None:
        self._port = port
        body = json.dumps({"hint": HINT}).encode()
        head = ("POST /v1/schedule HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json")
        self._request = "\r\n".join((*head, f"Content-Length: {len(body)}", "", "")).encode() + body

    async def ask(self, count: int, latencies_ms: list[float]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            for _ in range(count):
                began = time.perf_counter()
                writer.write(self._request)
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                await reader.readexactly(length)
                latencies_ms.append((time.perf_counter() - began) * 1_000)
                if not head.startswith(b"HTTP/1.1 200"):
                    raise RuntimeError(f"a placement failed: {head[:200]!r}")
        finally:
            writer.close()


async def drive(ports: Sequence[int], callers: int, count: int) -> tuple[float, list[float]]:
    latencies_ms: list[float] = []
    each = count // callers
    connections = [Connection(ports[number % len(ports)]) for number in range(callers)]
    began = time.perf_counter()
    await asyncio.gather(*(connection.ask(each, latencies_ms) for connection in connections))
    return time.perf_counter() - began, latencies_ms


async def measure_replicas(replicas: int, callers: int, count: int) -> Figures:
    with RedisServer() as server:
        settings = ("strategy=least_loaded", "report_ttl=10m", "shutdown.drain=0s")
        arguments = ("--no-grpc", "--no-metrics-listener", "--log-level", "error")
        async with _quiet_rig(server, replicas, settings, arguments) as (rig, ports):
            await Fleet(rig, [NodeModel(f"node-{n}", 16_000, 64_000_000) for n in range(100)]).discover()
            await drive(ports, callers, WARM_UP)
            cpu_before, script_before = _spent(server)
            seconds, latencies_ms = await drive(ports, callers, count)
            cpu_after, script_after = _spent(server)
    placed = len(latencies_ms)
    return Figures(
        f"{replicas} replica{'s' * (replicas > 1)}",
        placed,
        seconds,
        latencies_ms,
        redis_us=(cpu_after - cpu_before) * 1e6 / placed,
        script_us=(script_after - script_before) / placed,
    )


@asynccontextmanager
async def _quiet_rig(
    server: RedisServer, replicas: int, settings: Sequence[str], arguments: Sequence[str]
) -> AsyncIterator[tuple[Rig, list[int]]]:
    """The ports are given, since replicas that log only errors do not say where they listen."""
    ports = [free_port() for _ in range(replicas)]
    words = [*arguments, *(word for setting in settings for word in ("--set", setting))]
    rig = Rig(server.address, replicas=0)
    processes = []
    try:
        for port in ports:
            command = ["serve", "--port", str(port), "--redis-addr", server.address, *words]
            processes.append(await asyncio.create_subprocess_exec(sys.executable, "-m", "scheduler", *command))
        for port in ports:
            await _until_open(port)
        rig.fixed_urls = [f"http://127.0.0.1:{port}" for port in ports]
        yield rig, ports
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            await process.wait()


async def measure_floor(callers: int, count: int) -> Figures:
    port = free_port()
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", CONSTANT.decode(), str(port))
    try:
        await _until_open(port)
        await drive([port], callers, WARM_UP)
        seconds, latencies_ms = await drive([port], callers, count)
    finally:
        process.terminate()
        await process.wait()
    return Figures("a constant answer", len(latencies_ms), seconds, latencies_ms, None, None)


async def _until_open(port: int, seconds: float = 60.0) -> None:
    gives_up_at = time.monotonic() + seconds
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            if time.monotonic() > gives_up_at:
                raise
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return


def _spent(server: RedisServer) -> tuple[float, float]:
    """CPU seconds of the server so far, and microseconds inside scripts."""
    with server.client() as client:
        cpu = client.info("cpu")
        stats = client.info("commandstats")
    return cpu["used_cpu_user"] + cpu["used_cpu_sys"], float(stats.get("cmdstat_evalsha", {}).get("usec", 0))


def show(rows: Sequence[Figures]) -> None:
    table = Table(title=f"Placements on this machine ({os.cpu_count()} cores, callers included)")
    for column in ("", "placements/s", "p50 ms", "p99 ms", "Redis CPU µs", "of that in the script"):
        table.add_column(column, justify="left" if not column else "right")
    for row in rows:
        redis_us = "" if row.redis_us is None else f"{row.redis_us:.0f}"
        script_us = "" if row.script_us is None else f"{row.script_us:.0f}"
        rate, p50, p99 = f"{row.placements / row.seconds:,.0f}", f"{row.quantile(0.5):.1f}", f"{row.quantile(0.99):.1f}"
        table.add_row(row.what, rate, p50, p99, redis_us, script_us)
    Console(width=110).print(table)


async def main(callers: int, count: int) -> None:
    rows = [await measure_floor(callers, count)]
    rows += [await measure_replicas(replicas, callers, count) for replicas in (1, 2, 3)]
    show(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--callers", type=int, default=24)
    parser.add_argument("--placements", type=int, default=6_000)
    given = parser.parse_args()
    asyncio.run(main(given.callers, given.placements))
