"""Everything the callers were told. Nothing is ever taken back out."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Answer:
    """One attempt of one call. `status` None: the connection ended without an answer, which says nothing
    about what the ledger did. Times are of the monotonic clock, seconds."""

    call: str
    key: str
    began: float
    ended: float
    status: int | None
    code: str = ""
    reservation_id: str = ""
    node_id: str = ""
    state: str = ""
    sandbox_id: str = ""
    replayed: bool = False
    degraded: bool = False
    orphaned: bool = False
    replica: str = ""
    fault: str = ""

    @property
    def acknowledged(self) -> bool:
        return self.status == 200


@dataclass(slots=True)
class History:
    """Answers in the order in which they arrived."""

    answers: list[Answer] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def note(self, answer: Answer) -> None:
        self.answers.append(answer)

    def acknowledged(self, call: str) -> Iterator[Answer]:
        return (answer for answer in self.answers if answer.call == call and answer.acknowledged)

    def placements(self) -> dict[str, list[Answer]]:
        """Idempotency key → every acknowledged placement under it."""
        found: dict[str, list[Answer]] = {}
        for answer in self.acknowledged("schedule"):
            found.setdefault(answer.key, []).append(answer)
        return found

    def last_acknowledged(self, call: str) -> dict[str, Answer]:
        return {answer.key: answer for answer in self.acknowledged(call)}

    def tally(self) -> dict[str, int]:
        """How often each call got each answer."""
        counts: dict[str, int] = {}
        for answer in self.answers:
            said = answer.fault or "no answer" if answer.status is None else f"{answer.status} {answer.code}".strip()
            name = f"{answer.call} {said}"
            counts[name] = counts.get(name, 0) + 1
        return dict(sorted(counts.items()))

    def longest_silence(self, call: str = "schedule", since: float | None = None) -> float:
        """The longest time, in seconds, in which no such call was acknowledged to anybody."""
        moments = sorted(answer.ended for answer in self.acknowledged(call) if since is None or answer.ended >= since)
        edges = ([since] if since is not None else []) + moments
        return max((later - earlier for earlier, later in pairwise(edges)), default=0.0)

    def first_after(self, moment: float, call: str = "schedule") -> Answer | None:
        """The first call that began after `moment` and was acknowledged."""
        later = [answer for answer in self.acknowledged(call) if answer.began >= moment]
        return min(later, key=lambda answer: answer.ended, default=None)

    def save(self, path: Path) -> None:
        """For reading after a failure: one answer a line."""
        with path.open("w", encoding="utf-8") as lines:
            for answer in self.answers:
                lines.write(json.dumps(asdict(answer)) + "\n")
