"""More than one server: a primary with replicas under Sentinel, and a small Redis Cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import redis

from tests.support.servers import RedisServer, free_port

SETTLE_SECONDS = 60.0


def wait_for(condition: Callable[[], bool], what: str, seconds: float = SETTLE_SECONDS) -> None:
    """Poll until `condition` holds; servers being unreachable meanwhile is not an answer."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return
        except redis.exceptions.RedisError:
            pass
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        time.sleep(0.02)


class Topology:
    """Servers that start and stop together, in this order when they stop."""

    @property
    def servers(self) -> list[RedisServer]:
        raise NotImplementedError

    def start(self) -> Self:
        raise NotImplementedError

    def stop(self) -> None:
        for server in self.servers:
            server.stop()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class SentinelTopology(Topology):
    """One primary, its replicas, and the sentinels that watch them under the name `aenv`."""

    name = "aenv"

    def __init__(self, replicas: int = 1, sentinels: int = 3, down_after_ms: int = 500) -> None:
        at_once = ["--repl-diskless-sync-delay", "0"]
        self.primary = RedisServer(at_once)
        link = ["--replicaof", "127.0.0.1", str(self.primary.port)]
        self.replicas = [RedisServer([*at_once, *link]) for _ in range(replicas)]
        self.sentinels = [
            _Sentinel(self.name, self.primary, sentinels // 2 + 1, down_after_ms) for _ in range(sentinels)
        ]

    @property
    def url(self) -> str:
        """What `--redis-addr` takes."""
        hosts = ",".join(sentinel.address for sentinel in self.sentinels)
        return f"sentinel://{hosts}/{self.name}"

    def primary_port(self) -> int:
        """The port the sentinels name now."""
        with self.sentinels[0].client() as client:
            return int(client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.name)[1])

    def start(self) -> Self:
        self.primary.start()
        for replica in self.replicas:
            replica.start()
        wait_for(self._replicas_linked, "the replicas to follow the primary")
        for sentinel in self.sentinels:
            sentinel.start()
        wait_for(self._sentinels_agree, "the sentinels to know each other and the replicas")
        return self

    def _replicas_linked(self) -> bool:
        for replica in self.replicas:
            with replica.client() as client:
                if client.info("replication")["master_link_status"] != "up":
                    return False
        return True

    def _sentinels_agree(self) -> bool:
        for sentinel in self.sentinels:
            with sentinel.client() as client:
                flat = client.execute_command("SENTINEL", "MASTER", self.name)
                state = flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))
                if int(state["num-slaves"]) != len(self.replicas):
                    return False
                if int(state["num-other-sentinels"]) != len(self.sentinels) - 1:
                    return False
        return True

    @property
    def servers(self) -> list[RedisServer]:
        return [*self.sentinels, *self.replicas, self.primary]


class _Sentinel(RedisServer):
    """The same program with `--sentinel` and a configuration file that it rewrites itself."""

    def __init__(self, name: str, primary: RedisServer, quorum: int, down_after_ms: int) -> None:
        super().__init__()
        self._configuration = self.directory / "sentinel.conf"
        self._configuration.write_text(
            f"sentinel monitor {name} 127.0.0.1 {primary.port} {quorum}\n"
            f"sentinel down-after-milliseconds {name} {down_after_ms}\n"
            f"sentinel failover-timeout {name} 2000\n"
        )

    def command(self) -> list[str]:
        listen = ["--port", str(self.port), "--bind", "127.0.0.1"]
        return [str(self.program), str(self._configuration), "--sentinel", *listen]


class ClusterTopology(Topology):
    """Primaries that share the slots evenly, each with `replicas_each` replicas behind it."""

    def __init__(self, primaries: int = 3, replicas_each: int = 0) -> None:
        self.primaries = [_ClusterMember() for _ in range(primaries)]
        self.replicas = [_ClusterMember() for _ in range(primaries * replicas_each)]

    @property
    def url(self) -> str:
        """What `--redis-addr` takes."""
        return "cluster://" + ",".join(member.address for member in self.primaries)

    def start(self) -> Self:
        members = [*self.primaries, *self.replicas]
        for member in members:
            member.start()
        for index, primary in enumerate(self.primaries):
            first, last = _slot_range(index, len(self.primaries))
            with primary.client() as client:
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
                for other in members:
                    client.execute_command("CLUSTER", "MEET", "127.0.0.1", other.port, other.bus_port)
        wait_for(lambda: all(self._knows(member, len(members)) for member in members), "the members to meet")
        for index, replica in enumerate(self.replicas):
            with self.primaries[index % len(self.primaries)].client() as client:
                primary_id = client.execute_command("CLUSTER", "MYID")
            with replica.client() as client:
                client.execute_command("CLUSTER", "REPLICATE", primary_id)
        wait_for(lambda: all(_cluster_ok(member) for member in members), "the cluster to be whole")
        return self

    def _knows(self, member: RedisServer, count: int) -> bool:
        with member.client() as client:
            return int(client.cluster("info")["cluster_known_nodes"]) == count

    def owner(self, key: str) -> RedisServer:
        """The primary that serves `key` now; kill it to lose its slots."""
        for member in [*self.primaries, *self.replicas]:
            if member.process is None:
                continue
            with member.client() as client:
                slot = client.execute_command("CLUSTER", "KEYSLOT", key)
                for first, last, holder, *_ in client.execute_command("CLUSTER", "SLOTS"):
                    if int(first) <= slot <= int(last):
                        return next(m for m in [*self.primaries, *self.replicas] if m.port == int(holder[1]))
        raise LookupError(f"no member serves {key}")

    @property
    def servers(self) -> list[RedisServer]:
        return [*self.replicas, *self.primaries]


class _ClusterMember(RedisServer):
    def __init__(self) -> None:
        # The bus port is given, since the default of port + 10000 may lie beyond 65535.
        self.bus_port = free_port()
        super().__init__(
            [
                *["--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-port", str(self.bus_port)],
                *["--repl-diskless-sync-delay", "0"],
            ]
        )


def _slot_range(index: int, parts: int) -> tuple[int, int]:
    return index * 16384 // parts, (index + 1) * 16384 // parts - 1


def _cluster_ok(member: RedisServer) -> bool:
    with member.client() as client:
        return str(client.cluster("info")["cluster_state"]) == "ok"
