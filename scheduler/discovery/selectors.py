"""Checks Kubernetes label selectors at start-up, so that a typo stops the start instead of failing every watch. The
API server applies them."""

from __future__ import annotations

import re

from scheduler.errors import ConfigurationError

_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_PREFIX = r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/"
_KEY = rf"(?:{_PREFIX})?{_NAME}"
_VALUE = rf"(?:{_NAME})?"
_VALUES = rf"\(\s*{_VALUE}\s*(?:,\s*{_VALUE}\s*)*\)"

_REQUIREMENT = re.compile(
    rf"\s*(?:!\s*{_KEY}|{_KEY}(?:\s*(?:==|=|!=)\s*{_VALUE}|\s+(?:in|notin)\s*{_VALUES}|\s*[<>]\s*\d+)?)\s*"
)

SELECTOR_FORM = "a label selector such as app=node,tier in (a, b),!canary"


def checked_selector(key: str, text: str) -> str:
    """The trimmed selector, "" for a blank one. Raises ConfigurationError naming `key` when it is invalid."""
    selector = text.strip()
    position = 0
    while position < len(selector):
        requirement = _REQUIREMENT.match(selector, position)
        end = requirement.end() if requirement else position
        if requirement is None or (end < len(selector) and selector[end] != ",") or end == len(selector) - 1:
            raise ConfigurationError(f"{key} is {text!r}; allowed is {SELECTOR_FORM}")
        position = end + 1
    return selector
