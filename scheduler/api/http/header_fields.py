"""The headers of one request, read once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from starlette.types import Scope


class HeaderFields:
    """Values by lower-case name. A header that is sent twice keeps both values, because most may be sent only once."""

    __slots__ = ("_first", "_more")

    def __init__(self, raw: Iterable[tuple[bytes, bytes]]) -> None:
        self._first: dict[bytes, bytes] = {}
        self._more: list[tuple[bytes, bytes]] = []
        first = self._first
        for name, value in raw:
            if name in first:
                self._more.append((name, value))
            else:
                first[name] = value

    @classmethod
    def of(cls, scope: Scope) -> HeaderFields:
        """The headers of this request; servers give their names in lower case."""
        found: HeaderFields | None = scope.get("header_fields")
        if found is None:
            found = scope["header_fields"] = cls(scope["headers"])
        return found

    def first(self, name: bytes) -> str | None:
        value = self._first.get(name)
        return None if value is None else value.decode("latin-1")

    def is_repeated(self, name: bytes) -> bool:
        return bool(self._more) and any(other == name for other, _ in self._more)

    def all(self, name: bytes) -> Sequence[str]:
        value = self._first.get(name)
        if value is None:
            return ()
        given = [value, *(more for other, more in self._more if other == name)] if self._more else [value]
        return [each.decode("latin-1") for each in given]
