"""One thing that does not add up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scheduler.ledger import codec

UNEXPLAINED = "unknown"


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """`subject` is what is wrong with, `rule` which rule it breaks, `detail` how, for people."""

    subject: str
    rule: str
    detail: str

    def __str__(self) -> str:
        return f"{self.subject} {self.detail}" if self.rule != "total" else f"{self.subject}: {self.detail}"

    @property
    def is_unexplained(self) -> bool:
        """A key that is of no kind: nothing knows what it should be, so no repair touches it."""
        return self.rule == UNEXPLAINED

    @property
    def identity(self) -> tuple[str, str]:
        """What a second look must find again; the figures in `detail` may have moved."""
        return self.subject, self.rule


def findings_in(reply: Sequence[Any]) -> list[Finding]:
    """The rest of a recount script's reply."""
    told = [codec.text(part) for part in reply]
    return [Finding(*told[index : index + 3]) for index in range(0, len(told), 3)]
