"""Trims texts and validates ids, the same way for every source."""

from __future__ import annotations

import re
from collections.abc import Sequence

from scheduler.domain.limits import ID_BYTES_MAX

# Unicode's White_Space, which is what AgentENV trims. Python's own strip() would take U+001C to U+001F too.
_WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
_WHITE_SPACE += "\u2028\u2029\u202f\u205f\u3000"


def trim(text: str) -> str:
    """The text without white space around it."""
    return text.strip(_WHITE_SPACE)


# Half of a surrogate pair cannot be written as UTF-8, so a key cannot contain it.
_UNFIT_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_PLAIN_ID = re.compile(rf"[!-~]{{1,{ID_BYTES_MAX}}}")

_PLAIN_IDS = re.compile(rf"(?:[!-~]{{1,{ID_BYTES_MAX}}}\n)*")

ID_FORM = f"1 to {ID_BYTES_MAX} bytes of text without control characters"


def has_unfit_character(text: str) -> bool:
    """Whether the text has a control character or half a surrogate pair, which no key, header or log line should
    contain."""
    return _UNFIT_CHARACTER.search(text) is not None


def clean_id(text: str, most_bytes: int = ID_BYTES_MAX) -> str | None:
    """The trimmed id: at least one byte of UTF-8, no control characters. None: not a valid id."""
    if _PLAIN_ID.fullmatch(text):
        return text
    trimmed = trim(text)
    if not trimmed or has_unfit_character(trimmed) or len(trimmed.encode()) > most_bytes:
        return None
    return trimmed


def are_plain_ids(texts: Sequence[str]) -> bool:
    """Whether all are valid ids that need no trimming, asked of all at once. False: each must be looked at."""
    lines = "\n".join((*texts, ""))
    return lines.count("\n") == len(texts) and _PLAIN_IDS.fullmatch(lines) is not None


def cut(text: str, most_bytes: int) -> str:
    """The text cut to that many bytes of UTF-8, never inside a character; half a surrogate pair is dropped."""
    encoded = text.encode("utf-8", "ignore")
    if len(encoded) > most_bytes:
        return encoded[:most_bytes].decode(errors="ignore")
    return text if text.isascii() else encoded.decode()
