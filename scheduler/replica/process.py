"""The life of one replica.

start   bind every door, open the ledger (it may come later), answer
run     keep membership and upkeep going until told to stop
drain   say "not ready" and keep answering, so that balancers look elsewhere first
stop    take nothing new, finish what is in flight, leave the ledger
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
from typing import TYPE_CHECKING

from scheduler import __version__
from scheduler.config import Configuration, Settings, StoreSettings
from scheduler.errors import ConfigurationError, SchedulerError
from scheduler.observability.logging import configure_logging, get_logger
from scheduler.replica.listeners import Listener, bind, grpc_listener, http_listener, metrics_listener
from scheduler.replica.membership import Membership
from scheduler.replica.upkeep import Chore, keep_doing, refreshing, sweeping

if TYPE_CHECKING:
    from scheduler.service import Services
    from scheduler.store.ledger import Ledger
    from scheduler.store.options import StoreOptions

log = get_logger(__name__)

_FAREWELL_SECONDS = 2.0


class Replica:
    """`start`, then `run` until `ask_to_stop`, then `stop`. Everything it holds is let go by `stop`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.replica_id = settings.replica.replica_id or new_replica_id()
        self.listeners: list[Listener] = []
        self._chores: list[asyncio.Task[None]] = []
        self._stop_asked = asyncio.Event()
        self._hurry_asked = asyncio.Event()
        self._ledger: Ledger | None = None
        self._services: Services | None = None
        self._membership: Membership | None = None

    async def start(self) -> None:
        """Returns when every door is open, whether or not the ledger can be reached yet."""
        from scheduler.service import build_services
        from scheduler.store.ledger import open_ledger

        settings = self.settings
        sockets = self._bind()
        try:
            self._ledger = await open_ledger(
                settings.store.redis_addr, domain=settings.store.domain, options=store_options(settings.store)
            )
            self._services = build_services(self._ledger, lenient_hints=settings.hints.lenient)
            self._open_doors(self._services, sockets)
        except BaseException:
            for sock in sockets.values():
                sock.close()
            raise
        if not settings.replica.query_only:
            self._membership = Membership(
                self._ledger, self._services, settings.ledger, settings.discovery, self.replica_id
            )
            await self._try_to_join(self._membership)
        for listener in self.listeners:
            await listener.start()
        self._start_chores(self._ledger)
        log.info(
            "listening",
            replica_id=self.replica_id,
            version=__version__,
            ledger=str(self._ledger.client.address),
            query_only=settings.replica.query_only,
            **{listener.name.lower(): listener.address for listener in self.listeners},
        )
        self._warn_about_open_doors()

    def ask_to_stop(self) -> None:
        """From a signal. Asked again, it no longer waits for anything."""
        if self._stop_asked.is_set():
            self._hurry_asked.set()
        self._stop_asked.set()

    async def run(self) -> None:
        """Until asked to stop; raises what ended a chore, which never ends by itself."""
        asked = asyncio.create_task(self._stop_asked.wait())
        try:
            done, _ = await asyncio.wait([asked, *self._chores], return_when=asyncio.FIRST_COMPLETED)
            for ended in done - {asked}:
                ended.result()
        finally:
            asked.cancel()

    async def stop(self) -> None:
        """Leave in order: probes first, then callers, then the ledger."""
        replica = self.settings.replica
        log.info("stopping", drain_ms=replica.drain_ms, grace_ms=replica.grace_ms)
        if self._services is not None:
            self._services.readiness.drain()
        for listener in self.listeners:
            await listener.drain()
        await self._wait_unless_hurried(replica.drain_ms / 1000)
        grace_seconds = 0.0 if self._hurry_asked.is_set() else replica.grace_ms / 1000
        await asyncio.gather(*(listener.stop(grace_seconds) for listener in self.listeners))
        for chore in self._chores:
            chore.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)
        await self._leave()
        log.info("stopped", replica_id=self.replica_id)

    def _bind(self) -> dict[str, socket.socket]:
        sockets: dict[str, socket.socket] = {}
        try:
            if not self.settings.replica.query_only:
                sockets["http"] = bind(self.settings.http.listen, "http.port")
            if self.settings.metrics.enabled:
                sockets["metrics"] = bind(self.settings.metrics.listen, "metrics_listen_addr")
        except ConfigurationError:
            for sock in sockets.values():
                sock.close()
            raise
        return sockets

    def _open_doors(self, services: Services, sockets: dict[str, socket.socket]) -> None:
        from scheduler.api.http import create_app

        if "http" in sockets:
            app = create_app(services)
            self.listeners.append(http_listener(app, self.settings.http, sockets["http"]))
        if self.settings.grpc.enabled:
            self.listeners.append(
                grpc_listener(services, self.settings.grpc, query_only=self.settings.replica.query_only)
            )
        if "metrics" in sockets:
            self.listeners.append(metrics_listener(services, sockets["metrics"]))

    async def _try_to_join(self, membership: Membership) -> None:
        """A ledger that is there is joined before the doors open, so that the first request finds it ready."""
        try:
            await membership.step()
        except SchedulerError as error:
            log.warning("the ledger is not ready yet; trying on", code=error.code, detail=error.detail)

    def _start_chores(self, ledger: Ledger) -> None:
        membership = self._membership
        if membership is None:
            return
        chores = (
            Chore("membership", 1_000, membership.step, retry_ms_max=3_000),
            Chore("remembering discovery", 2_000, membership.remember_discovery),
            Chore("sweeping", 500, sweeping(ledger)),
            Chore("refreshing rows", 250, refreshing(ledger)),
        )
        self._chores = [asyncio.create_task(keep_doing(chore), name=chore.name) for chore in chores]

    async def _wait_unless_hurried(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._hurry_asked.wait(), seconds)

    async def _leave(self) -> None:
        if self._ledger is None:
            return
        try:
            async with asyncio.timeout(_FAREWELL_SECONDS):
                if self._membership is not None:
                    await self._membership.leave()
        except (SchedulerError, TimeoutError):
            log.info("left without a word: the ledger does not answer")
        await self._ledger.close()

    def _warn_about_open_doors(self) -> None:
        """Which doors only the network guards is never left to be guessed."""
        settings = self.settings
        guarded = settings.grpc.tls is not None and settings.grpc.tls.client_ca_file is not None
        if settings.grpc.enabled and not guarded:
            log.warning(
                "gRPC asks no caller who it is: without mTLS the network alone guards this port",
                listen=str(settings.grpc.listen),
                loopback_only=settings.grpc.listen.is_loopback,
            )
        if (
            not settings.replica.query_only
            and settings.http.api_keys_file is None
            and not settings.http.listen.is_loopback
        ):
            log.warning(
                "HTTP asks no caller who it is: without API keys the network alone guards this port",
                listen=str(settings.http.listen),
            )


def new_replica_id() -> str:
    """Readable, and never twice: the host, the process, and chance."""
    host = "".join(character for character in socket.gethostname() if "!" <= character <= "~")[:64]
    return f"{host or 'replica'}-{os.getpid()}-{secrets.token_hex(3)}"


def store_options(store: StoreSettings) -> StoreOptions:
    """The store's own options, from its group of the configuration."""
    from scheduler.store.options import StoreOptions

    return StoreOptions(
        pool_size=store.pool_size,
        connect_timeout_ms=store.connect_timeout_ms,
        operation_timeout_ms=store.operation_timeout_ms,
        attempt_timeout_ms=store.attempt_timeout_ms,
        wait_replicas=store.wait_replicas,
        read_addr=store.redis_read_addr,
        tls_ca_file=_text(store.tls_ca_file),
        tls_cert_file=_text(store.tls_cert_file),
        tls_key_file=_text(store.tls_key_file),
        tls_check_hostname=store.tls_check_hostname,
    )


def _text(path: os.PathLike[str] | None) -> str | None:
    return None if path is None else os.fspath(path)


async def serve(settings: Settings) -> None:
    """One replica from start to stop, stopped by SIGTERM or SIGINT."""
    replica = Replica(settings)
    loop = asyncio.get_running_loop()
    for stop_signal in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):  # Windows' loops cannot; Ctrl-C then cancels this task
            loop.add_signal_handler(stop_signal, replica.ask_to_stop)
    try:
        await replica.start()
        await replica.run()
    finally:
        await replica.stop()


def run(configuration: Configuration) -> None:
    """Run one replica in this process until it is told to stop. Raises ConfigurationError when it cannot start."""
    settings = configuration.settings
    configure_logging(settings.logging.level.value, settings.logging.format.value)
    for warning in configuration.warnings:
        log.warning("configuration", problem=warning)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve(settings))


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    """uvloop where it installs."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.Loop
