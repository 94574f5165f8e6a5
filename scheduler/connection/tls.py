"""TLS to Redis: whom a connection trusts, and what it shows.

redis-py makes a context for each connection, which reads all authorities of the system each time and trusts them also
beside those of a file. Here connections share one, and a file of authorities is all that is trusted.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from redis.asyncio.connection import SSLConnection


class TlsContext:
    """The context of new connections, made anew when one of its files has changed: the authorities (None: those of the
    system), the certificate and its private key (None: none is shown)."""

    def __init__(
        self, ca_file: str | None, cert_file: str | None, key_file: str | None, *, check_hostname: bool
    ) -> None:
        self._ca_file = ca_file
        self._cert_file = cert_file
        self._key_file = key_file
        self._check_hostname = check_hostname
        self._made: ssl.SSLContext | None = None
        self._made_of: tuple[object, ...] = ()

    def get(self) -> ssl.SSLContext:
        """Raises OSError for a file that cannot be read, ssl.SSLError among them for one that is none such."""
        found = tuple(_state(name) for name in (self._ca_file, self._cert_file, self._key_file))
        if self._made is None or found != self._made_of:
            context = ssl.create_default_context(cafile=self._ca_file)
            context.check_hostname = self._check_hostname
            if self._cert_file is not None:
                context.load_cert_chain(self._cert_file, self._key_file)
            self._made, self._made_of = context, found
        return self._made


def _state(name: str | None) -> tuple[int, int, int] | None:
    if name is None:
        return None
    found = Path(name).stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


class TlsConnection(SSLConnection):
    """A connection of redis-py that takes its context from `tls`."""

    def __init__(self, *, tls: TlsContext, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.ssl_context = tls  # type: ignore[assignment]  # of which `get` is asked
