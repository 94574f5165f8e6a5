"""Converts the ledger of an older version to the format of this one.

Version 0.1 has no format number to refuse, so it is fenced: `convert_ledger` writes a text where 0.1 keeps its
settings, its clock and its list of leftovers, and each of its scripts then fails before its first write. All other
keys keep their place and meaning, open reservations and bindings included; node rows are rebuilt.

Format 2 differs in its indexes, and formats 2 and 3 in what node rows say. Old indexes are dropped and new settings
get their defaults in one step; rows bring the rest along when they are next brought up to date, in slices, before
anything is placed. A replica of these formats refuses the new one in words.

Who changes what a key means raises FORMAT in `lua/include/format` and adds a stage to `lua/convert_ledger`, before
`finish`: it processes one slice, notes its progress in the `conversion` hash, and answers `converting`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from scheduler.domain.settings import LedgerSettings
from scheduler.ledger import codec
from scheduler.ledger.runner import Runner
from scheduler.ledger.settings_fields import encode

_CONVERTIBLE = frozenset({b"2", b"3"})


@dataclass(frozen=True, slots=True)
class OldLedger:
    """The contents of an older ledger. `made_by`: version 0.1, or a later format; `converting`: fenced, and not
    converted yet."""

    made_by: str
    converting: bool
    nodes: int
    open_reservations: int
    bindings: int


class Conversion:
    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def look(self) -> OldLedger | None:
        """What there is to convert; None for a ledger of this version's format, or none at all. Writes nothing."""
        keys, client = self._runner.keys, self._runner.client
        known_format = await client.command("HGET", keys.settings, "format")
        if int(await client.command("EXISTS", keys.settings)) and known_format not in _CONVERTIBLE:
            return None
        converting = bool(int(await client.command("EXISTS", keys.conversion)))
        if known_format is None and not converting and not int(await client.command("EXISTS", keys.fenced_settings)):
            return None
        counts = await client.pipeline(
            [("ZCARD", keys.nodes), ("ZCARD", keys.expiry), ("HLEN", keys.bindings)],
        )
        return OldLedger(
            "version 0.1" if known_format is None else f"format {int(known_format)}", converting, *map(int, counts)
        )

    async def convert(self, progress: Callable[[str, int], None] = lambda stage, done: None) -> bool:
        """Convert what `look` found, continuing an interrupted conversion; True when there was something to do.
        Calls `progress` after each slice. Raises StoreUnusable for a format that this version cannot convert."""
        content = encode(LedgerSettings())
        # Depends on limits that version 0.1 may have; while it is absent, scripts assume it is set.
        del content["limited"]
        defaults = [part for item in content.items() for part in item]
        worked = False
        while True:
            status, reply = await self._runner.run("convert_ledger", *defaults)
            if status != "converting":
                return worked
            worked = True
            progress(codec.text(reply[0]), int(reply[1]))
