"""Reads and writes the file of API keys, by one rule for both.

The file is JSON or TOML (by its suffix) and holds one entry per key under `keys`:

    name      the caller this key stands for; two entries may share it while keys rotate
    role      node, gateway or admin
    sha256    hash of the key, in hex
    node_id   optional, for role node: the only node this key may act for
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scheduler.access.roles import Principal, Role
from scheduler.domain.text import clean_id
from scheduler.errors import ConfigurationError

KEYS_PER_NAME_MAX = 2
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class InvalidEntry(ValueError):
    """What is wrong with an entry; never contains a hash or a key."""


@dataclass(frozen=True, slots=True)
class KeyEntry:
    digest: bytes
    principal: Principal

    def as_dict(self) -> dict[str, str]:
        """The entry as it is written in the file."""
        principal = self.principal
        if principal.role is None:
            raise InvalidEntry("role must be node, gateway or admin")
        entry = {"name": principal.name, "role": principal.role.value, "sha256": self.digest.hex()}
        return entry if principal.node_id is None else {**entry, "node_id": principal.node_id}


def entry_of(item: Any) -> KeyEntry:
    """Parses one entry of the file. Raises InvalidEntry."""
    if not isinstance(item, dict):
        raise InvalidEntry("must be an object with name, role and sha256")
    unknown = sorted(set(item) - {"name", "role", "sha256", "node_id"})
    if unknown:
        raise InvalidEntry(f"unknown member {unknown[0]}")
    name, digest, node_id = item.get("name"), item.get("sha256"), item.get("node_id")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidEntry("name must be 1 to 64 of A-Z, a-z, 0-9, dot, underscore and dash")
    if item.get("role") not in list(Role):
        raise InvalidEntry("role must be node, gateway or admin")
    role = Role(item["role"])
    if not isinstance(digest, str) or not _SHA256.fullmatch(digest.lower()):
        raise InvalidEntry("sha256 must be 64 hexadecimal digits")
    if node_id is not None:
        node_id = clean_id(node_id) if role is Role.NODE and isinstance(node_id, str) else None
        if node_id is None:
            raise InvalidEntry("node_id must be a node's id, and only a key of role node may carry one")
    return KeyEntry(bytes.fromhex(digest), Principal(name, role, node_id))


def check_names(entries: Sequence[KeyEntry]) -> None:
    """Checks that entries of one name agree, and are at most two. Raises InvalidEntry."""
    counts = Counter(entry.principal.name for entry in entries)
    for name, count in counts.items():
        if count > KEYS_PER_NAME_MAX:
            raise InvalidEntry(f"{name} has {count} keys, at most {KEYS_PER_NAME_MAX}")
        if len({entry.principal for entry in entries if entry.principal.name == name}) > 1:
            raise InvalidEntry(f"the keys of {name} must agree on role and node_id")


def read_key_file(path: Path) -> tuple[KeyEntry, ...]:
    """Every entry. Raises ConfigurationError when the file cannot be read or has an invalid entry."""
    form = "TOML" if _is_toml(path) else "JSON"
    try:
        text = path.read_text("utf-8-sig")
        content: Any = tomllib.loads(text) if _is_toml(path) else json.loads(text, object_pairs_hook=_once)
    except OSError as error:
        raise ConfigurationError(f"API keys: {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"API keys: {path} cannot be read: it is not UTF-8") from None
    except InvalidEntry as invalid:
        raise ConfigurationError(f"API keys: {path}: {invalid}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"API keys: {path} is not {form}: {error}") from None
    listed = content.get("keys") if isinstance(content, dict) else None
    if not isinstance(listed, list) or not listed:
        raise ConfigurationError(f"API keys: {path} must hold a list `keys` with at least one key")
    entries = []
    for index, item in enumerate(listed):
        try:
            entries.append(entry_of(item))
        except InvalidEntry as invalid:
            raise ConfigurationError(f"API keys: {path}, entry {index}: {invalid}") from None
    try:
        check_names(entries)
    except InvalidEntry as invalid:
        raise ConfigurationError(f"API keys: {path}: {invalid}") from None
    return tuple(entries)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """TOML refuses by itself a member that is given twice; of JSON the last one would count."""
    found = dict(pairs)
    if len(found) < len(pairs):
        name = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise InvalidEntry(f"member {name} is given twice in one place")
    return found


def add_to_file(path: Path, entry: KeyEntry) -> None:
    """Write the file anew with this entry at its end, in one step: whoever reads it finds the old or the new one.

    A file that is made is its owner's alone to read; one that is there keeps its mode and owner.
    Raises ConfigurationError for what `read_key_file` would refuse, and then writes nothing."""
    entries = (*(read_key_file(path) if path.exists() else ()), entry)
    try:
        check_names(entries)
    except InvalidEntry as invalid:
        raise ConfigurationError(f"API keys: {path}: {invalid}") from None
    path = path.resolve()  # a link stays one
    beside = path.with_name(f".{path.name}.new")
    try:
        found = path.stat() if path.exists() else None
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigurationError(
            f"API keys: somebody else writes {path} right now; remove {beside} if that was interrupted"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"API keys: {path} cannot be written ({error.strerror})") from None
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(_toml(entries) if _is_toml(path) else _json(entries))
            file.flush()
            os.fsync(file.fileno())
        if found is not None:
            _give(beside, found)
        beside.replace(path)
    except BaseException as error:
        beside.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise ConfigurationError(f"API keys: {path} cannot be written ({error.strerror})") from None
        raise


def save_key(path: Path, key: str) -> None:
    """Write the key into a new file, for its owner alone. Raises ConfigurationError; one that is there is kept."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigurationError(f"API keys: {path} is there already, and is not overwritten") from None
    except OSError as error:
        raise ConfigurationError(f"API keys: {path} cannot be written ({error.strerror})") from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f"{key}\n")


def _give(file: Path, like: os.stat_result) -> None:
    """Copy mode and owner: the owner may be the scheduler's user while an administrator adds keys."""
    own = file.stat()
    if (own.st_uid, own.st_gid) != (like.st_uid, like.st_gid):
        os.chown(file, like.st_uid, like.st_gid)
    file.chmod(like.st_mode & 0o777)


def _is_toml(path: Path) -> bool:
    return path.suffix.lower() == ".toml"


def _json(entries: Sequence[KeyEntry]) -> str:
    return json.dumps({"keys": [entry.as_dict() for entry in entries]}, indent=2) + "\n"


def _toml(entries: Sequence[KeyEntry]) -> str:
    """JSON with everything beyond ASCII escaped is valid TOML too."""
    return "\n".join(
        "[[keys]]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in entry.as_dict().items())
        for entry in entries
    )
