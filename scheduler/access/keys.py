"""API keys from a file of hashes, which is read again when it changes.

A plain SHA-256 is enough because keys are made by `generate_key`: 256 random bits cannot be guessed, so a slow hash
would only slow down every request.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from scheduler.access.key_file import read_key_file
from scheduler.access.roles import Principal
from scheduler.errors import ConfigurationError
from scheduler.observability.logging import get_logger

log = get_logger("scheduler.access")

_LOOK_AGAIN_SECONDS = 1.0


def generate_key() -> str:
    """A new key: 256 random bits in 43 characters that fit any header."""
    return secrets.token_urlsafe(32)


def hash_key(key: str) -> str:
    """The hash for the file; the key itself is shown once and stored nowhere."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


class KeyRing:
    """The keys of one file. When the file becomes invalid later, the last valid keys stay in force."""

    def __init__(self, path: Path, clock: Callable[[], float] | None = time.monotonic) -> None:
        """`clock` None: the file is read again only by `reload`.

        Raises ConfigurationError when the file cannot be read or is invalid."""
        self._path = path
        self._clock = clock
        self._stamp = self._stamp_now()
        self._entries = read_key_file(path)
        self._looked_at = 0.0 if clock is None else clock()

    def authenticate(self, key: str) -> Principal | None:
        """The key's owner. A wrong key takes as long as a right one."""
        self._reload_when_changed()
        presented = bytes.fromhex(hash_key(key))
        found: Principal | None = None
        for entry in self._entries:
            if hmac.compare_digest(entry.digest, presented):
                found = entry.principal
        return found

    @property
    def path(self) -> Path:
        return self._path

    def reload(self) -> None:
        """Use the file's present content. Raises ConfigurationError, and keeps the keys, when it is invalid."""
        self._entries = read_key_file(self._path)

    def _reload_when_changed(self) -> None:
        if self._clock is None:
            return
        now = self._clock()
        if now - self._looked_at < _LOOK_AGAIN_SECONDS:
            return
        self._looked_at = now
        stamp = self._stamp_now()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self.reload()
        except ConfigurationError as error:
            log.error("API keys not reloaded, the previous ones stay", detail=error.detail)
        else:
            log.info("API keys reloaded", count=len(self._entries))

    def _stamp_now(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino
