"""The key under which a schedule may be repeated."""

from __future__ import annotations

import secrets


class Key:
    """An idempotency key; None makes one. One that the caller gave may have been used before: what is found under it
    may belong to an earlier run of the caller, so it is cancelled on the caller's word only."""

    def __init__(self, text: str | None) -> None:
        self.given = text is not None
        self.text = new_idempotency_key() if text is None else text


def new_idempotency_key() -> str:
    return secrets.token_urlsafe(24)
