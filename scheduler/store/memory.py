"""What a replica remembers of reservations, so that a ledger that lost them can be told.

The newest state that the ledger answered of each, or that a call of this replica brought about, until its deadline.
It decides nothing: nobody reads it but `scheduler.store.rebuild`, which writes it back through a script, and there the
higher revision stands. A reservation takes about 500 bytes here, keys and names included.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgpack

from scheduler.store import codec

# A remembered reservation is dropped this long after its deadline: the ledger's time is only estimated.
_GRACE_MS = 5_000
# What no memory can vouch for: how much reports had accounted for. It is put back held in full.
_NOT_REMEMBERED = frozenset({b"held_cpu", b"held_memory", b"held_count", b"report_generation", b"restored"})
# Names are most of what a reservation's fields take, so each is kept as its place here. Others are kept as they are.
_NAMES = (
    *("node_id", "state", "lifecycle", "cpu_count", "memory_bytes", "created_at_ms", "expires_at_ms", "sequence"),
    *("revision", "fingerprint", "strategy", "caller", "request_id", "sandbox_id", "sandbox_told", "confirmed_at_ms"),
    *("finished_at_ms", "reason", "orphaned", "degraded", "template_id", "ttl_ms", "tombstone", "group_key"),
    *("group_sequence", "group_cpu", "group_memory_mb", "group_charged"),
)
_CODE_BY_NAME: Mapping[bytes, int] = {name.encode(): code for code, name in enumerate(_NAMES)}


class ReservationMemory:
    """At most `limit` reservations; 0 remembers nothing. What falls due first falls out first.

    `not_remembered` counts these as `full`, and as `untold` what a script changed without room to tell it."""

    def __init__(self) -> None:
        self.limit = 0
        self.not_remembered = Counter(full=0, untold=0)
        self._ahead_ms = 0.0  # of the ledger's time before this process' monotonic one
        self._kept: dict[str, tuple[int, int, bytes]] = {}  # revision, deadline, fields
        self._due: dict[int, list[str]] = {}  # second → those whose deadline it is, or was before a change

    def __len__(self) -> int:
        return len(self._kept)

    def remember(self, reservation_id: str, flat: Sequence[Any], brought: Mapping[str, str] | None = None) -> None:
        """The reservation's fields as a script told them, and what its caller `brought` where they lack it."""
        if self.limit <= 0:
            return
        fields: list[Any] = []
        revision = deadline = 0
        names = iter(flat)
        for name, value in zip(names, names, strict=True):
            if name == b"revision":
                revision = int(value)
            elif name == b"expires_at_ms":
                deadline = int(value)
            elif name in _NOT_REMEMBERED:
                continue
            fields += (_CODE_BY_NAME.get(name, name), value)
        for brought_name, text in (brought or {}).items():
            fields += (_CODE_BY_NAME[brought_name.encode()], text.encode())
        known = self._kept.get(reservation_id)
        if known is not None and known[0] > revision:
            return
        second = deadline // 1000
        if known is None or known[1] // 1000 != second:
            self._due.setdefault(second, []).append(reservation_id)
        self._kept[reservation_id] = (revision, deadline, msgpack.packb(fields))
        if len(self._kept) > self.limit:
            self._let_fall_out()

    def remember_changes(self, told: Sequence[Any]) -> None:
        """What a script changed beside what it was asked for, as lua/include/revisions tells it."""
        self.not_remembered["untold"] += int(told[0])
        for index in range(1, len(told), 2):
            self.remember(codec.text(told[index]), told[index + 1])

    def note_time(self, ledger_ms: int) -> None:
        """So late it is by the ledger's clock. Until it was told, nothing is taken for due."""
        self._ahead_ms = ledger_ms - time.monotonic() * 1000

    def drop_due(self) -> None:
        """Forget what fell due. To be called every second or so."""
        now_ms = self._ahead_ms + time.monotonic() * 1000
        for second in [second for second in self._due if (second + 1) * 1000 + _GRACE_MS <= now_ms]:
            for reservation_id in self._due.pop(second):
                self._forget(reservation_id, second)

    def all(self) -> Iterator[tuple[str, list[Any]]]:
        """Every id with its fields and their values in turn, those due first first."""
        for second in sorted(self._due):
            for reservation_id in list(self._due.get(second, ())):
                known = self._kept.get(reservation_id)
                if known is not None and known[1] // 1000 == second:
                    yield reservation_id, _unpacked(known[2])

    def _forget(self, reservation_id: str, second: int) -> bool:
        """Unless its deadline has moved away from that second."""
        known = self._kept.get(reservation_id)
        if known is None or known[1] // 1000 != second:
            return False
        del self._kept[reservation_id]
        return True

    def _let_fall_out(self) -> None:
        self.drop_due()
        while len(self._kept) > self.limit:
            second = min(self._due)
            self.not_remembered["full"] += self._forget(self._due[second].pop(0), second)
            if not self._due[second]:
                del self._due[second]


def _unpacked(packed: bytes) -> list[Any]:
    fields: list[Any] = []
    parts = iter(msgpack.unpackb(packed, raw=True))
    for code, value in zip(parts, parts, strict=True):
        fields += (_NAMES[code] if isinstance(code, int) else code, value)
    return fields
