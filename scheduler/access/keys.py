"""API keys: a file of hashes, read again when it changes.

The file is JSON or TOML (by its suffix) and holds one entry per key under `keys`:

    name      the caller this key stands for; two entries may share it while keys rotate
    role      node, gateway or admin
    sha256    hash of the key, in hex
    node_id   optional, for role node: the only node this key may speak for

A plain SHA-256 is enough because keys are made by `generate_key`: with 256 random bits there is nothing to
guess, so a slow hash would only slow down every request.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import time
import tomllib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scheduler.access.roles import Principal, Role
from scheduler.domain.text import clean_id
from scheduler.errors import ConfigurationError
from scheduler.observability.logging import get_logger

log = get_logger("scheduler.access")

KEYS_PER_NAME_MAX = 2
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LOOK_AGAIN_SECONDS = 1.0


def generate_key() -> str:
    """A new key: 256 random bits in 43 characters that fit any header."""
    return secrets.token_urlsafe(32)


def hash_key(key: str) -> str:
    """The hash that goes into the file; the key itself is shown once and kept nowhere."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class _Entry:
    digest: bytes
    principal: Principal


class KeyRing:
    """The keys of one file. A file that turns out broken later changes nothing: the last good keys stay."""

    def __init__(self, path: Path, clock: Callable[[], float] | None = time.monotonic) -> None:
        """`clock` None: it is read again by `reload` alone.

        Raises ConfigurationError when the file cannot be read or says something impossible."""
        self._path = path
        self._clock = clock
        self._stamp = self._stamp_now()
        self._entries = _read(path)
        self._looked_at = 0.0 if clock is None else clock()

    def authenticate(self, key: str) -> Principal | None:
        """Whose key this is. Takes as long for a wrong key as for a right one."""
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
        """Take over what the file says now. Raises ConfigurationError, and then the keys stay."""
        self._entries = _read(self._path)

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


def _read(path: Path) -> tuple[_Entry, ...]:
    try:
        text = path.read_text("utf-8")
        content: Any = tomllib.loads(text) if path.suffix.lower() == ".toml" else json.loads(text)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"API keys: {path} cannot be read ({type(error).__name__})") from None
    listed = content.get("keys") if isinstance(content, dict) else None
    if not isinstance(listed, list) or not listed:
        raise ConfigurationError(f"API keys: {path} must hold a list `keys` with at least one key")
    entries = tuple(_entry(path, index, item) for index, item in enumerate(listed))
    _check_names(path, entries)
    return entries


def _entry(path: Path, index: int, item: Any) -> _Entry:
    """One entry of the file; what is wrong is named without ever repeating a hash or a key."""

    def wrong(what: str) -> ConfigurationError:
        return ConfigurationError(f"API keys: {path}, entry {index}: {what}")

    if not isinstance(item, dict):
        raise wrong("must be an object with name, role and sha256")
    unknown = sorted(set(item) - {"name", "role", "sha256", "node_id"})
    if unknown:
        raise wrong(f"unknown member {unknown[0]}")
    name, digest, node_id = item.get("name"), item.get("sha256"), item.get("node_id")
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name):
        raise wrong("name must be 1 to 64 of A-Z, a-z, 0-9, dot, underscore and dash")
    if item.get("role") not in list(Role):
        raise wrong("role must be node, gateway or admin")
    role = Role(item["role"])
    if not isinstance(digest, str) or not _SHA256.fullmatch(digest.lower()):
        raise wrong("sha256 must be 64 hexadecimal digits")
    if node_id is not None:
        node_id = clean_id(node_id) if role is Role.NODE and isinstance(node_id, str) else None
        if node_id is None:
            raise wrong("node_id must be a node's id, and only a key of role node may carry one")
    return _Entry(bytes.fromhex(digest), Principal(name, role, node_id))


def _check_names(path: Path, entries: tuple[_Entry, ...]) -> None:
    counts = Counter(entry.principal.name for entry in entries)
    for name, count in counts.items():
        if count > KEYS_PER_NAME_MAX:
            raise ConfigurationError(f"API keys: {path}: {name} has {count} keys, at most {KEYS_PER_NAME_MAX}")
        if len({entry.principal for entry in entries if entry.principal.name == name}) > 1:
            raise ConfigurationError(f"API keys: {path}: the keys of {name} must agree on role and node_id")
