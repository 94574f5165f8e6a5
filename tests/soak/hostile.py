"""What somebody might send who means harm, or whose code is broken: ids, numbers, rosters, metadata, whole requests."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any
from urllib.parse import quote

TEXTS = (
    *("", " ", "\t", "\n", "\x00", "\x7f", "\ud800", "é", "e\u0301", "\u202e", "\ufeff", "💥", "𝕊", "a" * 129),
    *("..", "../../etc/passwd", "%2e%2e%2f", "%", "%00", "a:b", "a%3Ab", "{default}", "aenv:{default}:shared_settings"),
    *("*", "?", "'; DROP TABLE nodes; --", "redis.call('FLUSHALL')", "]] .. redis.call('FLUSHALL') .. [["),
    *("${jndi:ldap://x}", "<script>alert(1)</script>", "\r\nSet-Cookie: a=b", "*3\r\n$3\r\nSET\r\n", "__proto__"),
    *("null", "undefined", "NaN", "-", "_", ".", "node-0", "node-1 ", "NODE-0", "0", "-1", "1e3", "true", "a" * 5_000),
)
NUMBERS: tuple[Any, ...] = (
    *(0, 1, -1, 2, 63, 64, 65, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53 - 1, 2**53, 2**63, 2**64, 10**30, -(2**63)),
    *(0.5, -0.0, 1.0, 1e308, math.pi, "1", "0x10", "1e3", "", True, False, None, [], {}, [1], {"a": 1}),
)
NODES = tuple(f"node-{number}" for number in range(4))
DURATIONS: tuple[Any, ...] = ("1s", "0s", "24h", "25h", "-1s", "1", 1, "1.5h", "9999999h", "1ns", "", None, "P1D", "∞")


@dataclass(frozen=True, slots=True)
class HostileRequest:
    """`body` is sent as JSON, unless it is bytes: those go as they are."""

    method: str
    path: str
    body: Any = None
    headers: tuple[tuple[str, str], ...] = ()


class Hostility:
    """Requests out of one seed. Most are right in most of their parts, so that they get far before they go wrong."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._reservations: list[str] = []
        self._makers: tuple[Callable[[], HostileRequest], ...] = (
            *(self._schedule, self._schedule, self._schedule, self._decide, self._decide, self._heartbeat),
            *(self._heartbeat, self._events, self._binding, self._template, self._node, self._read, self._hint),
            *(self._artifact, self._garbage),
        )

    def note_reservation(self, reservation_id: str) -> None:
        """Something real to aim at. The latest few are enough."""
        self._reservations = [*self._reservations[-99:], reservation_id]

    def request(self) -> HostileRequest:
        return self._random.choice(self._makers)()

    # -- parts ------------------------------------------------------------------------------------------------------

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def text(self) -> str:
        if self._chance(0.3):
            return "".join(chr(self._random.randrange(0x2FFF)) for _ in range(self._random.randrange(20)))
        return self._random.choice(TEXTS)

    def number(self, usual: int) -> Any:
        return usual if self._chance(0.7) else self._random.choice(NUMBERS)

    def node_id(self) -> str:
        return self._random.choice(NODES) if self._chance(0.85) else self.text()

    def sandbox_id(self) -> str:
        return f"sandbox-{self._random.randrange(200)}" if self._chance(0.8) else self.text()

    def roster(self) -> Any:
        kind = self._random.randrange(10)
        if kind < 5:
            return [self.sandbox_id() for _ in range(self._random.randrange(30))]
        if kind < 7:
            return [self.text() for _ in range(self._random.randrange(30))]
        return self._random.choice(
            [[], None, "all", [[]], [None], [1], ["same"] * 50, {"a": 1}, [str(number) for number in range(2_000)]]
        )

    def metadata(self) -> Any:
        if self._chance(0.8):
            return {self.text(): self.text() for _ in range(self._random.randrange(5))}
        return self._random.choice([None, [], "x", {"a": 1}, {"a": None}, {"a": {"b": {}}}, {"k": "v" * 20_000}])

    def _spoilt(self, body: dict[str, Any]) -> dict[str, Any]:
        """With a field missing, added or replaced, now and then."""
        if body and self._chance(0.15):
            body.pop(self._random.choice(list(body)))
        if self._chance(0.1):
            body[self.text()] = self._random.choice(NUMBERS)
        if body and self._chance(0.1):
            body[self._random.choice(list(body))] = self._random.choice(NUMBERS)
        return body

    # -- requests ---------------------------------------------------------------------------------------------------

    def _hint_body(self) -> dict[str, Any]:
        if self._chance(0.7):
            hint = {"kind": "cold_sandbox", "cpu_count": self.number(1), "memory_mb": self.number(64)}
            hint |= {"images": [self.text()], "metadata": self.metadata()} if self._chance(0.5) else {}
        else:
            hint = {"kind": "sandbox", "template_id": self.text(), "metadata": self.metadata()}
        return self._spoilt(hint)

    def _schedule(self) -> HostileRequest:
        body: dict[str, Any] = {"hint": self._hint_body(), "reservation_ttl": "2s"}
        if self._chance(0.2):
            body |= {"reservation_ttl": self._random.choice(DURATIONS)}
        if self._chance(0.2):
            body["exclude_nodes"] = [self.node_id() for _ in range(self._random.choice([0, 1, 3, 64, 65]))]
        if self._chance(0.2):
            body["lifecycle"] = self._random.choice(["heartbeat", "explicit", self.text(), None])
        key = f"key-{self._random.randrange(500)}" if self._chance(0.8) else self.text()
        headers = (("Idempotency-Key", _header(key)),) if self._chance(0.6) else ()
        path = self._random.choice(["/v1/schedule", "/v1/schedule", "/v1/explain"])
        return HostileRequest("POST", path, self._spoilt(body), headers)

    def _decide(self) -> HostileRequest:
        known = self._reservations and self._chance(0.8)
        reservation_id = self._random.choice(self._reservations) if known else self.text()
        call = self._random.choice(["confirm", "confirm", "cancel", "renew"])
        body: dict[str, Any] = {
            "confirm": {"sandbox_id": self.sandbox_id()},
            "cancel": {"reason": self.text()},
            "renew": {"ttl": self._random.choice(DURATIONS)},
        }[call]
        return HostileRequest("POST", f"/v1/reservations/{_path(reservation_id)}/{call}", self._spoilt(body))

    def _heartbeat(self) -> HostileRequest:
        snapshot: dict[str, Any] = {
            "status": "ready" if self._chance(0.8) else self.text(),
            "cpu_count": self.number(64),
            "memory_total_bytes": self.number(2**36),
            "allocated_cpu": self.number(2),
            "create_successes": self.number(5),
            "disks": [] if self._chance(0.8) else [{"mount_point": self.text(), "used_bytes": self.number(1)}],
        }
        body = {"service_instance_id": f"instance-{self._random.randrange(3)}", "snapshot": self._spoilt(snapshot)}
        if self._chance(0.6):
            body["sandbox_ids"] = self.roster()
        if self._chance(0.3):
            body["sequence"] = self.number(self._random.randrange(1_000))
        if self._chance(0.3):
            body["p2p_endpoint"] = {"backend": self.text(), "address": self.text()}
        return HostileRequest("POST", f"/v1/nodes/{_path(self.node_id())}/heartbeat", self._spoilt(body))

    def _events(self) -> HostileRequest:
        kinds = ["create", "delete", "pause", "resume", "fork", "explode"]
        events = [
            {
                "sandbox_id": self.sandbox_id(),
                "event_type": self._random.choice(kinds),
                "requested_cpu": self.number(1),
                "requested_memory_bytes": self.number(2**26),
            }
            for _ in range(self._random.choice([0, 1, 5, 200]))
        ]
        body = self._spoilt({"service_instance_id": "instance-0", "events": events})
        return HostileRequest("POST", f"/v1/nodes/{_path(self.node_id())}/events", body)

    def _binding(self) -> HostileRequest:
        path = f"/v1/bindings/{_path(self.sandbox_id())}"
        if self._chance(0.5):
            return HostileRequest("GET", path)
        node_id = self.node_id()
        return HostileRequest("PUT", path, self._spoilt({"node_id": node_id, "endpoint": f"http://{node_id}:8000"}))

    def _template(self) -> HostileRequest:
        path = f"/v1/templates/{_path(self._random.choice(['base', 'other', self.text()]))}"
        method = self._random.choice(["PUT", "GET", "DELETE"])
        body = self._spoilt({"cpu_count": self.number(1), "memory_mb": self.number(64)}) if method == "PUT" else None
        return HostileRequest(method, path, body)

    def _node(self) -> HostileRequest:
        path = f"/v1/nodes/{_path(self.node_id())}"
        if self._chance(0.2):
            instance = quote(self.text(), errors="replace")
            return HostileRequest(
                "DELETE", f"{path}?{self._random.choice(['', 'remove=true&'])}service_instance_id={instance}"
            )
        state = self._random.choice(["active", "active", "lingering", self.text()])
        endpoint = f"http://{self._random.choice(NODES)}:8000" if self._chance(0.8) else self.text()
        return HostileRequest("PUT", path, self._spoilt({"endpoint": endpoint, "state": state}))

    def _read(self) -> HostileRequest:
        limit = quote(str(self._random.choice(NUMBERS)))
        cursor = quote(self.text(), errors="replace")
        path = self._random.choice(["reservations", "groups", "templates", "nodes", "artifacts"])
        return HostileRequest("GET", f"/v1/{path}?limit={limit}&cursor={cursor}")

    def _hint(self) -> HostileRequest:
        text = self._random.choice(["{", "[]", '{"cpuCount": 1e999}', '{"a":' * 200, self.text()])
        body = {"method": "POST", "path": "/sandboxes-cold", "body_text": text}
        return HostileRequest("POST", "/v1/hints", self._spoilt(body))

    def _artifact(self) -> HostileRequest:
        body = {"cluster_id": self.text(), "backend": self.text(), "key": self.text(), "node_id": self.node_id()}
        return HostileRequest("PUT", "/v1/artifacts", self._spoilt(body))

    def _garbage(self) -> HostileRequest:
        raw = self._random.choice([b"", b"{", b"\xff\xfe", b"[" * 2_000, b'{"a":1,"a":2}', b"null", b"\x00" * 100])
        kinds = ["application/json", "application/msgpack", "text/plain", "application/json; charset=utf-16"]
        paths = ["/v1/schedule", "/v1/nodes/node-0/heartbeat", "/v1/nothing", "/v1/reservations/x/confirm"]
        method = self._random.choice(["POST", "PUT", "PATCH", "DELETE", "GET"])
        return HostileRequest(method, self._random.choice(paths), raw, (("Content-Type", self._random.choice(kinds)),))


def _path(text: str) -> str:
    """One path segment that holds the text, whatever it is."""
    return quote(text, safe="", errors="replace") or "%20"


def _header(text: str) -> str:
    """What a header can carry at all: bytes without line ends, no blank at either end."""
    carried = "".join(character for character in text if character.isprintable() and ord(character) < 256)
    return carried.strip() or "-"
