"""Files that are read again while a replica runs: certificates, API keys, the log level.

They are checked for changes every second, and SIGHUP reads all of them at once. A file that cannot be read changes
nothing: the values read before stay in force, the log says why, and `agentenv_scheduler_reloads_total` counts it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scheduler.config import Configuration, TlsSettings
from scheduler.errors import ConfigurationError
from scheduler.observability.logging import get_logger, set_level

if TYPE_CHECKING:
    from scheduler.observability.metrics import Metrics

log = get_logger(__name__)

Stamp = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """`read` applies the present content of the files, or raises ConfigurationError and changes nothing."""

    name: str
    files: tuple[Path, ...]
    read: Callable[[], None]

    def stamp(self) -> Stamp:
        """Changes when one of the files is written or replaced. Links are followed, because Kubernetes renews
        secrets by a link."""
        return tuple(_stamp(path) for path in self.files)


class Reloader:
    """Call `step` repeatedly; once `asked` is set, the next step reads everything."""

    def __init__(self, sources: Sequence[Source], metrics: Metrics) -> None:
        self.asked = asyncio.Event()
        self._sources = tuple(sources)
        self._metrics = metrics
        self._stamps = {source.name: source.stamp() for source in self._sources}
        for source in self._sources:
            metrics.expect_reloads(source.name)

    async def step(self) -> None:
        asked = self.asked.is_set()
        self.asked.clear()
        for source in self._sources:
            stamp = source.stamp()
            if asked or stamp != self._stamps[source.name]:
                self._stamps[source.name] = stamp
                self._reload(source)

    def _reload(self, source: Source) -> None:
        try:
            source.read()
        except ConfigurationError as error:
            self._metrics.count_reload(source.name, "failed")
            log.error("not reloaded; the former content stays in force", what=source.name, detail=error.detail)
        else:
            self._metrics.count_reload(source.name, "done")
            log.info("reloaded", what=source.name)


def tls_files(tls: TlsSettings) -> tuple[Path, ...]:
    return tuple(path for path in (tls.cert_file, tls.key_file, tls.client_ca_file) if path is not None)


def server_context(edge: str, tls: TlsSettings) -> ssl.SSLContext:
    """Raises ConfigurationError unless the certificate can be read, the key belongs to it, and the client authority
    is valid."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(tls.cert_file, tls.key_file)
        if tls.client_ca_file is not None:
            context.load_verify_locations(tls.client_ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(f"{edge}.tls: certificate, key or authority cannot be used ({reason})") from None
    return context


class ConfiguredLevel:
    """The log level, read again from the same file, environment and options as at the start."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def source(self) -> Source:
        file = self._configuration.file
        return Source("configuration", () if file is None else (file,), self._read)

    def _read(self) -> None:
        before, found = self._configuration, self._configuration.reread()
        self._configuration = found
        set_level(found.settings.logging.level.value)
        changed = sorted(key for key in found.values if found.values[key] != before.values[key] and key != "log_level")
        if changed:
            log.warning("these keys were changed; they take effect at the next start", keys=changed)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
