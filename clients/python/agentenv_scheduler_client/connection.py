"""How a scheduler is reached: address, API key and TLS. Keys and certificates in files may be renewed at any time."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypedDict

FilePath = str | os.PathLike[str]


class Tls:
    """Whom to trust, and what to show of oneself.

    `ca_file`: the authority that signed the server's certificate; without it the system's are trusted. `cert_file` and
    `key_file`: the client's own, for servers that ask for one; new connections show what the files hold by then."""

    def __init__(
        self,
        *,
        ca_file: FilePath | None = None,
        cert_file: FilePath | None = None,
        key_file: FilePath | None = None,
        key_password: str | None = None,
    ) -> None:
        if (cert_file is None) != (key_file is None):
            raise ValueError("cert_file and key_file are given together")
        self._own = None if cert_file is None or key_file is None else (os.fspath(cert_file), os.fspath(key_file))
        self._password = key_password
        self._shown = _Stamps()
        self.context = ssl.create_default_context(cafile=None if ca_file is None else os.fspath(ca_file))
        if self._own is not None:
            self.refresh()

    def refresh(self) -> None:
        """Read the own certificate again when its files have changed."""
        if self._own is not None:
            own = self._own
            self._shown.on_change(own, lambda: self.context.load_cert_chain(*own, password=self._password))


class ClientOptions(TypedDict, total=False):
    """`api_key`, or `api_key_file`, which is read again when it changes. `tls` takes a context of the caller's own too.

    `timeout_seconds` bounds each call as a whole, with its repetitions and pauses; at most `attempts` are made."""

    api_key: str | None
    api_key_file: FilePath | None
    tls: Tls | ssl.SSLContext | None
    timeout_seconds: float
    attempts: int | None


class Connection:
    """What every request carries beside its own."""

    def __init__(self, base_url: str, options: ClientOptions, user_agent: str) -> None:
        key, key_file, self._tls = options.get("api_key"), options.get("api_key_file"), options.get("tls")
        if key is not None and key_file is not None:
            raise ValueError("api_key and api_key_file exclude each other")
        self.base_url = base_url
        self._key = "" if key is None else key
        self._key_file = None if key_file is None else Path(key_file)
        self._key_read = _Stamps()
        self._agent = user_agent
        if self._key_file is not None:
            self._read_key(self._key_file)  # a file that is not there is told at once

    @property
    def verify(self) -> ssl.SSLContext | bool:
        """What httpx takes as `verify`. Without TLS no authorities are read, which would take longer than a call."""
        if self._tls is None:
            return not self.base_url.startswith("http:")
        return self._tls.context if isinstance(self._tls, Tls) else self._tls

    def headers(self) -> Mapping[str, str]:
        """The headers of one attempt; renewed files are read again before. Of a file that is being replaced the last
        content counts."""
        try:
            if self._key_file is not None:
                self._read_key(self._key_file)
            if isinstance(self._tls, Tls):
                self._tls.refresh()
        except (OSError, ValueError):  # a half-written file: OSError is also what ssl raises, ValueError is no UTF-8
            pass
        common = {"Accept": "application/json", "User-Agent": self._agent}
        return common | {"X-API-Key": self._key} if self._key else common

    def _read_key(self, file: Path) -> None:
        def read() -> None:
            key = file.read_text(encoding="utf-8").strip()
            if self._key and not key:
                raise ValueError("emptied, as while it is being written")
            self._key = key

        self._key_read.on_change((os.fspath(file),), read)


class _Stamps:
    """How files stood when they were last read."""

    def __init__(self) -> None:
        self._seen: tuple[tuple[int, int, int], ...] = ()

    def on_change(self, files: tuple[str, ...], read: Callable[[], None]) -> None:
        """Have files that changed read. What cannot be read is tried again the next time."""
        now = tuple((stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in map(os.stat, files))
        if now != self._seen:
            read()
            self._seen = now
