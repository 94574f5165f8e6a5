"""What a placement is made with: the caller's deadline, and an idempotency key."""

from __future__ import annotations

import secrets
from collections.abc import Callable


class Deadline:
    """When a caller wants its answer; without one it waits. `now` is a clock in seconds."""

    def __init__(self, seconds: float | None, now: Callable[[], float]) -> None:
        self._now = now
        self.at = None if seconds is None else now() + seconds

    def left(self) -> float | None:
        return None if self.at is None else max(0.0, self.at - self._now())

    def at_most(self, seconds: float) -> float:
        left = self.left()
        return seconds if left is None else min(left, seconds)


class Key:
    """An idempotency key; None makes one. One that the caller gave may have been used before: what is found under it
    may belong to an earlier run of the caller, so it is cancelled on the caller's word only."""

    def __init__(self, text: str | None) -> None:
        self.given = text is not None
        self.text = new_idempotency_key() if text is None else text


def new_idempotency_key() -> str:
    return secrets.token_urlsafe(24)
