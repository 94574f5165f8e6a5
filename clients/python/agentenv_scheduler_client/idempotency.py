"""The key under which a schedule may be repeated."""

from __future__ import annotations

import re
import secrets

from agentenv_scheduler_client.errors import InvalidRequest

_USABLE = re.compile(r"[!-~]{1,255}")
_FORM = "1 to 255 visible ASCII characters"


class Key:
    """An idempotency key; None makes one. One that the caller gave may have been used before: what is found under it
    may belong to an earlier run of the caller, so it is cancelled on the caller's word only.

    Raises InvalidRequest for a key that no header can carry, before anything is asked."""

    def __init__(self, text: str | None) -> None:
        self.given = text is not None
        self.text = secrets.token_urlsafe(24) if text is None else text
        if not _USABLE.fullmatch(self.text):
            wrong = {"field": "idempotency_key", "found": self.text[:200], "allowed": _FORM}
            raise InvalidRequest("not valid: idempotency_key", facts={"errors": [wrong]})
