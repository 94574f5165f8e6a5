"""The life of one replica process.

start   bind every listener, open the ledger (it may become reachable later), answer requests
run     run the background tasks until asked to stop
drain   report not ready and keep answering, so that balancers switch first
stop    accept nothing new, finish requests in flight, leave the ledger
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import secrets
import signal
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

from scheduler import __version__
from scheduler.cancellation import end_tasks
from scheduler.config import Configuration, Settings
from scheduler.errors import SchedulerError
from scheduler.observability.logging import configure_logging, get_logger
from scheduler.observability.tracing import Tracing, open_tracing
from scheduler.replica import upstream
from scheduler.replica.background import BackgroundTask, refreshing, run_repeatedly, sweeping
from scheduler.replica.listeners import Listener, open_listeners
from scheduler.replica.membership import KEEPALIVE_INTERVAL_MS, Membership
from scheduler.replica.reload import ConfiguredLevel, Reloader, Source

if TYPE_CHECKING:
    from scheduler.discovery.kubernetes import KubernetesDiscovery
    from scheduler.ledger.ledger import Ledger
    from scheduler.service import Services

log = get_logger(__name__)

_LEAVE_SECONDS = 2.0


class Replica:
    """Call `start`, then `run` until `ask_to_stop`, then `stop`. A `start` that raises has released everything."""

    def __init__(self, settings: Settings, sources: Sequence[Source] = ()) -> None:
        """`sources`: further files to read again when they change, beside the listeners' own."""
        self.settings = settings
        self._sources = tuple(sources)
        self._reloader: Reloader | None = None
        self.replica_id = new_replica_id(settings.replica.replica_id)
        self.listeners: list[Listener] = []
        self._background_tasks: list[asyncio.Task[None]] = []
        self._stop_asked = asyncio.Event()
        self._stop_now = asyncio.Event()
        self._ledger: Ledger | None = None
        self._services: Services | None = None
        self._tracing: Tracing | None = None
        self._membership: Membership | None = None
        self._discovery: KubernetesDiscovery | None = None

    async def start(self) -> None:
        """Returns when every listener answers, whether or not the ledger can be reached yet."""
        from scheduler.configured_store import store_options
        from scheduler.domain.replica import OwnSettings
        from scheduler.ledger.ledger import open_ledger
        from scheduler.observability.metrics import Metrics
        from scheduler.service import build_services

        settings = self.settings
        self._tracing = open_tracing(__version__) if settings.tracing.enabled else None
        ledger = self._ledger = await open_ledger(
            settings.store.redis_addr, domain=settings.store.domain, options=store_options(settings.store)
        )
        try:
            services = self._services = build_services(
                ledger,
                metrics=Metrics(self._tracing),
                lenient_hints=settings.hints.lenient,
                calls_logged_per_second=settings.logging.calls_per_second,
                decisions_logged=settings.logging.decisions,
                own_settings=OwnSettings(self.replica_id, settings.ledger, settings.ledger_sources),
            )
            self._discovery = self._kubernetes_discovery(ledger, services)
            self.listeners, of_listeners = open_listeners(services, settings)
            self._reloader = Reloader([*self._sources, *of_listeners], services.metrics)
            if not settings.replica.query_only:
                ledger.rebuild.memory.limit = settings.replica.remember
                membership = Membership(ledger, services, settings.ledger, settings.discovery, self.replica_id)
                await self._try_to_join(membership)
                self._membership = membership
            await services.overview.begin()
            for listener in self.listeners:
                await listener.start()
        except BaseException:
            await self._release(grace_seconds=0)
            raise
        self._start_background_tasks(ledger, services)
        self._log_listeners(ledger)

    def ask_to_reload(self) -> None:
        """Called on SIGHUP: read every file again, now."""
        if self._reloader is not None:
            self._reloader.asked.set()

    def ask_to_stop(self) -> None:
        """Called on SIGTERM and SIGINT. A second call skips all waiting."""
        if self._stop_asked.is_set():
            self._stop_now.set()
        self._stop_asked.set()

    async def run(self) -> None:
        """Until asked to stop; raises the error of a background task that ended: none ends by itself."""
        asked = asyncio.create_task(self._stop_asked.wait())
        try:
            done, _ = await asyncio.wait([asked, *self._background_tasks], return_when=asyncio.FIRST_COMPLETED)
            for ended in done - {asked}:
                ended.result()
        finally:
            asked.cancel()

    async def stop(self) -> None:
        """Stop in order: probes first, then callers, then the ledger."""
        replica = self.settings.replica
        log.info("stopping", drain_ms=replica.drain_ms, grace_ms=replica.grace_ms)
        if self._services is not None:
            self._services.readiness.drain()
        for listener in self.listeners:
            await listener.drain()
        await self._wait_unless_stopped_now(replica.drain_ms / 1000)
        await self._release(0 if self._stop_now.is_set() else replica.grace_ms / 1000)
        log.info("stopped", replica_id=self.replica_id)

    async def _release(self, grace_seconds: float) -> None:
        await asyncio.gather(*(listener.stop(grace_seconds) for listener in self.listeners))
        await end_tasks(self._background_tasks)
        if self._ledger is not None:
            await self._leave(self._ledger)
        if self._tracing is not None:
            await self._tracing.close()

    def _log_listeners(self, ledger: Ledger) -> None:
        """One line with every listener's address and who may call it; a warning for one that is open to all."""
        addresses: dict[str, str] = {}
        for listener in self.listeners:
            addresses |= {listener.name.lower(): listener.address, f"{listener.name.lower()}_callers": listener.callers}
        log.info(
            "listening",
            replica_id=self.replica_id,
            version=__version__,
            ledger=str(ledger.client.address),
            query_only=self.settings.replica.query_only,
            **addresses,
        )
        http = self.settings.http
        if not self.settings.replica.query_only and http.api_keys_file is None and not http.listen.is_loopback:
            log.warning("HTTP listens beyond loopback without API keys", listen=str(http.listen))

    async def _try_to_join(self, membership: Membership) -> None:
        """Join a reachable ledger before the listeners start, so that the first request finds the replica ready."""
        try:
            await membership.step()
        except SchedulerError as error:
            log.warning("the ledger is not ready yet; trying on", code=error.code, detail=error.full_detail)

    def _start_background_tasks(self, ledger: Ledger, services: Services) -> None:
        tasks = [
            BackgroundTask("checking readiness", 1_000, services.overview.look),
            BackgroundTask("reading figures", 1_000, services.overview.refresh_when_due),
        ]
        if self._reloader is not None:
            tasks.append(BackgroundTask("watching files", 1_000, self._reloader.step, wake=self._reloader.asked))
        membership = self._membership
        if membership is not None:
            tasks += [
                BackgroundTask(
                    "membership",
                    KEEPALIVE_INTERVAL_MS,
                    membership.step,
                    retry_ms_max=3_000,
                    wake=ledger.client.guard.check_requested,
                ),
                BackgroundTask("remembering discovery", 2_000, membership.remember_discovery),
                BackgroundTask("sweeping", 500, sweeping(ledger)),
                BackgroundTask("refreshing rows", 250, refreshing(ledger)),
                BackgroundTask("writing decisions", 10_000, services.decisions.flush, wake=services.decisions.due),
            ]
            if ledger.upstream_bindings is not None:
                refresh = upstream.refreshing(ledger.upstream_bindings, ledger.leases, self.replica_id)
                tasks.append(BackgroundTask("AgentENV's binding keys", upstream.INTERVAL_MS, refresh))
        self._background_tasks = [asyncio.create_task(run_repeatedly(task), name=task.name) for task in tasks]
        if self._discovery is not None:
            self._background_tasks.append(asyncio.create_task(self._discovery.run(), name="Kubernetes discovery"))

    def _kubernetes_discovery(self, ledger: Ledger, services: Services) -> KubernetesDiscovery | None:
        """None in the other modes. Raises ConfigurationError for an invalid selector."""
        from scheduler.discovery.kubernetes import KubernetesDiscovery

        discovery = self.settings.discovery
        if discovery.kubernetes is None or self.settings.replica.query_only:
            return None
        return KubernetesDiscovery(discovery.kubernetes, services.nodes, ledger.leases, self.replica_id)

    async def _wait_unless_stopped_now(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop_now.wait()

    async def _leave(self, ledger: Ledger) -> None:
        try:
            async with asyncio.timeout(_LEAVE_SECONDS):
                if self._services is not None and self._membership is not None:
                    await self._services.decisions.flush()
                    await self._membership.leave()
        except (SchedulerError, TimeoutError):
            log.info("the ledger does not answer; other replicas wait for this one's keepalive to expire")
        await ledger.close()


def new_replica_id(name: str | None = None) -> str:
    """Readable and unique: the configured name, or host name and process id, and a random part. After a loss each
    process is waited for under its own id, so two that are configured with one name must not share it."""
    if name is None:
        host = "".join(character for character in socket.gethostname() if "!" <= character <= "~")[:64]
        name = f"{host or 'replica'}-{os.getpid()}"
    return f"{name}-{secrets.token_hex(4)}"


async def serve(configuration: Configuration) -> None:
    """Run one replica until SIGTERM or SIGINT. SIGHUP makes it read its files again."""
    replica = Replica(configuration.settings, [ConfiguredLevel(configuration).source()])
    loop = asyncio.get_running_loop()
    for stop_signal in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):  # Windows' loops cannot; Ctrl-C then cancels this task
            loop.add_signal_handler(stop_signal, replica.ask_to_stop)
    if hangup := getattr(signal, "SIGHUP", None):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(hangup, replica.ask_to_reload)
    await replica.start()
    _collect_seldom()
    try:
        await replica.run()
    finally:
        await replica.stop()


def run(configuration: Configuration) -> None:
    """Run one replica in this process until it is asked to stop. Raises ConfigurationError when it cannot start."""
    settings = configuration.settings
    configure_logging(settings.logging.level.value, settings.logging.format.value)
    for warning in configuration.warnings:
        log.warning("configuration", problem=warning)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve(configuration))


def _collect_seldom() -> None:
    """Let the collector of circles pass over what the start made, and over requests under way: these leave nearly
    nothing to it, and with Python's own threshold it takes a tenth of a busy replica's time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.Loop
