"""Spread keys counted anew: which reservations and which records of sandboxes name which key.

A script then counts one key at one moment from these and from what has come since.
"""

from __future__ import annotations

from collections import defaultdict

from scheduler.inspection.walks import SCAN_COUNT, SLICE
from scheduler.ledger import codec
from scheduler.ledger.ledger import Ledger

ATTEMPTS = 5


class SpreadWalk:
    """One walk over reservations and records, as far as it was read."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._reservations: dict[str, set[str]] = defaultdict(set)
        self._sandboxes: dict[str, set[str]] = defaultdict(set)
        self._walked_to = 0

    @property
    def keys(self) -> set[str]:
        """The spread keys that something names."""
        return self._reservations.keys() | self._sandboxes.keys()

    async def judge(self, script: str, spread_key: str) -> tuple[str, list[object]]:
        """Runs recount_spread or repair_spread; reads on when too much was placed meanwhile."""
        for _ in range(ATTEMPTS):
            reservations = sorted(self._reservations[spread_key])
            sandboxes = sorted(self._sandboxes[spread_key])
            arguments: list[str | int] = [self._walked_to, len(reservations), *reservations, *sandboxes]
            status, reply = await self._ledger.runner.run(script, spread_key, *arguments)
            if status != "moved":
                break
            await self.read()
        return status, reply

    async def read(self) -> None:
        await self._read_records()
        await self._read_reservations()

    async def _read_records(self) -> None:
        cursor = "0"
        while True:
            reply = await self._ledger.client.command("HSCAN", self._ledger.keys.bindings, cursor, "COUNT", SCAN_COUNT)
            cursor = codec.text(reply[0])
            for sandbox_id, record in zip(reply[1][::2], reply[1][1::2], strict=True):
                # lua/include/records: behind the caller and a tab.
                _, _, keys = codec.text(record).partition("\n")
                _, tab, spread_key = keys.partition("\n")[0].partition("\t")
                if tab:
                    self._sandboxes[spread_key].add(codec.text(sandbox_id))
            if cursor == "0":
                return

    async def _read_reservations(self) -> None:
        keys, client = self._ledger.keys, self._ledger.client
        while True:
            page = await client.command(
                "ZRANGEBYSCORE", keys.reservations, f"({self._walked_to}", "+inf", "WITHSCORES", "LIMIT", 0, SLICE
            )
            if not page:
                return
            ids = [codec.text(reservation_id) for reservation_id in page[0::2]]
            named = await client.pipeline([("HGET", keys.reservation(found), "spread") for found in ids])
            for reservation_id, spread_key in zip(ids, named, strict=True):
                if spread_key is not None:
                    self._reservations[codec.text(spread_key)].add(reservation_id)
            self._walked_to = int(float(page[-1]))
            if len(ids) < SLICE:
                return
