"""The reservations that a replica remembers, to restore a ledger that lost them.

Of each reservation the newest state that the ledger reported or that a call of this replica caused, until its
deadline. No decision uses it: only `scheduler.ledger.rebuild` reads it, to write it back with a script, where the
higher revision wins. A reservation takes about 500 bytes here, keys and names included.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgpack

from scheduler.ledger import codec

# Reservations are dropped this long after their deadline, because the ledger's time is only estimated here.
_GRACE_MS = 5_000
# How much of it reports accounted for is not remembered: a restored reservation is held in full.
_NOT_REMEMBERED = frozenset(
    {
        b"held_cpu",
        b"held_memory",
        b"held_count",
        b"held_resources",
        b"report_generation",
        b"restored",
        b"spread_counted",
    }
)
# Field names take most of the memory, so each is stored as its index here. Other names are stored as text.
_NAMES = (
    *("node_id", "state", "lifecycle", "cpu_count", "memory_bytes", "created_at_ms", "expires_at_ms", "sequence"),
    *("revision", "fingerprint", "strategy", "caller", "request_id", "sandbox_id", "sandbox_told", "confirmed_at_ms"),
    *("finished_at_ms", "reason", "orphaned", "degraded", "template_id", "ttl_ms", "own_deadline_ms", "tombstone"),
    *("group_key", "group_sequence", "group_cpu", "group_memory_mb", "group_charged", "spread"),
)
_CODE_BY_NAME: Mapping[bytes, int] = {name.encode(): code for code, name in enumerate(_NAMES)}
_PACKER = msgpack.Packer()


@dataclass(frozen=True, slots=True)
class _Form:
    """What is kept of reservations whose fields have the same names, and where it stands among names and values.

    `kept`: the places of the values, None: all; `codes`: their names, as they are kept."""

    revision: int | None
    deadline: int | None
    kept: tuple[int, ...] | None
    codes: tuple[Any, ...]


@lru_cache(maxsize=256)
def _form_of(names: tuple[Any, ...]) -> _Form:
    """Of the many reservations most have the same few forms."""
    places = {name: 2 * index + 1 for index, name in enumerate(names)}
    remembered = [name for name in names if name not in _NOT_REMEMBERED]
    kept = None if len(remembered) == len(names) else tuple(places[name] for name in remembered)
    codes = tuple(_CODE_BY_NAME.get(name, name) for name in remembered)
    return _Form(places.get(b"revision"), places.get(b"expires_at_ms"), kept, codes)


class ReservationMemory:
    """At most `limit` reservations; 0 remembers none. Those due first are evicted first.

    `not_remembered` counts evictions as `full`, and changes that did not fit into a script's reply as `untold`."""

    def __init__(self) -> None:
        self.limit = 0
        self.not_remembered = Counter(full=0, untold=0)
        self._ahead_ms = 0.0  # the ledger's time minus this process' monotonic time
        self._kept: dict[str, tuple[int, int, bytes]] = {}  # revision, deadline, fields
        self._due: dict[int, list[str]] = {}  # second → reservations due in it, or due in it before a change

    def __len__(self) -> int:
        return len(self._kept)

    def remember(self, reservation_id: str, flat: Sequence[Any]) -> None:
        """The reservation's alternating field names and values, as the ledger has them."""
        if self.limit <= 0:
            return
        form = _form_of(tuple(flat[::2]))
        revision = 0 if form.revision is None else int(flat[form.revision])
        deadline = 0 if form.deadline is None else int(flat[form.deadline])
        fields: list[Any] = [None] * (2 * len(form.codes))
        fields[::2] = form.codes
        fields[1::2] = flat[1::2] if form.kept is None else [flat[place] for place in form.kept]
        known = self._kept.get(reservation_id)
        if known is not None and known[0] > revision:
            return
        second = deadline // 1000
        if known is None or known[1] // 1000 != second:
            self._due.setdefault(second, []).append(reservation_id)
        self._kept[reservation_id] = (revision, deadline, _PACKER.pack(fields))
        if len(self._kept) > self.limit:
            self._evict()

    def remember_changes(self, reply: Sequence[Any]) -> None:
        """Remember the other reservations that a script changed, from its reply (lua/include/revisions)."""
        self.not_remembered["untold"] += int(reply[0])
        for index in range(1, len(reply), 2):
            self.remember(codec.text(reply[index]), reply[index + 1])

    def note_time(self, ledger_ms: int) -> None:
        """The ledger's present time. Until it is known, no reservation is dropped as due."""
        self._ahead_ms = ledger_ms - time.monotonic() * 1000

    def drop_due(self) -> None:
        """Drop reservations past their deadline. Call it every second or so."""
        now_ms = self._ahead_ms + time.monotonic() * 1000
        for second in [second for second in self._due if (second + 1) * 1000 + _GRACE_MS <= now_ms]:
            for reservation_id in self._due.pop(second):
                self._forget(reservation_id, second)

    def all(self) -> Iterator[tuple[str, list[Any]]]:
        """Every id with its alternating field names and values, the earliest deadline first."""
        for second in sorted(self._due):
            for reservation_id in list(self._due.get(second, ())):
                known = self._kept.get(reservation_id)
                if known is not None and known[1] // 1000 == second:
                    yield reservation_id, _unpacked(known[2])

    def _forget(self, reservation_id: str, second: int) -> bool:
        """Drop the reservation unless its deadline has moved to another second."""
        known = self._kept.get(reservation_id)
        if known is None or known[1] // 1000 != second:
            return False
        del self._kept[reservation_id]
        return True

    def _evict(self) -> None:
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
