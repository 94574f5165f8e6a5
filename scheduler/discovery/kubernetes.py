"""Discovers nodes from the EndpointSlices of one Kubernetes Service.

Every replica watches, so that each can take over; the one that holds the lease in the ledger writes the complete
list when it changed, and at intervals regardless. An empty list is accepted only after a while, so that a gap
between slices cannot remove every node.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from scheduler.cancellation import end_tasks
from scheduler.discovery.endpoints import DiscoveredNodes, KubernetesObject, discover
from scheduler.discovery.reflector import Reflector, ReflectorTimes
from scheduler.discovery.selectors import checked_selector
from scheduler.domain.labels import fit_labels
from scheduler.errors import ConfigurationError, SchedulerError
from scheduler.observability.logging import get_logger

if TYPE_CHECKING:
    from kubernetes_asyncio.client import ApiClient

    from scheduler.config import KubernetesSettings
    from scheduler.ledger.leases import LeaseStore
    from scheduler.service.nodes import NodeService

log = get_logger(__name__)

LEASE = "kubernetes_discovery"
ZONE_LABEL = "topology.kubernetes.io/zone"


@dataclass(frozen=True, slots=True)
class DiscoveryTimes:
    """`empty_seconds`: how long a list must stay empty before it is accepted. `rewrite_seconds`: how often an
    unchanged list is written again, in case somebody changed the ledger."""

    settle_seconds: float = 0.1
    empty_seconds: float = 30.0
    rewrite_seconds: float = 30.0
    lease_ttl_ms: int = 10_000
    renew_seconds: float = 3.0
    reflector: ReflectorTimes = field(default_factory=ReflectorTimes)


class KubernetesDiscovery:
    """`run` does everything until cancelled. `connect` returns the API client; tests pass their own."""

    def __init__(
        self,
        settings: KubernetesSettings,
        nodes: NodeService,
        leases: LeaseStore,
        replica_id: str,
        *,
        times: DiscoveryTimes | None = None,
        connect: Callable[[], ApiClient] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._ignore = checked_selector("discovery.kubernetes.ignore_pod_selector", settings.ignore_pod_selector)
        self._no_schedule = checked_selector(
            "discovery.kubernetes.no_schedule_pod_selector", settings.no_schedule_pod_selector
        )
        self._nodes = nodes
        self._leases = leases
        self._replica_id = replica_id
        self._times = times or DiscoveryTimes()
        self._connect = connect or in_cluster_client
        self._clock = clock
        self._changed = asyncio.Event()
        self._reflectors: list[Reflector] = []
        self._written: DiscoveredNodes | None = None
        self._written_at = 0.0
        self._empty_since: float | None = None
        self._failures = 0
        self.holds_lease = False

    async def run(self) -> None:
        """Run until cancelled. Outside of a cluster this is logged once, and the replica continues without
        discovery."""
        try:
            client = self._connect()
        except ConfigurationError as error:
            log.error("no discovery", detail=error.full_detail)
            await asyncio.Event().wait()
            return
        async with client, self._watching(client):
            try:
                while True:
                    await self._wait_for_change()
                    await self.step()
            finally:
                await self._release_lease()

    async def step(self) -> None:
        """Take or renew the lease, and write the list when it is due."""
        try:
            held = await self._leases.hold(LEASE, self._replica_id, self._times.lease_ttl_ms)
            if held and not self.holds_lease:
                log.info("this replica writes the discovered nodes", replica_id=self._replica_id)
                self._written = None
            self.holds_lease = held
            if held:
                await self._write()
        except SchedulerError as error:
            # It is unknown whether the lease is still held, so the list counts as not written.
            self.holds_lease, self._written = False, None
            self._failures += 1
            if self._failures == 1:
                log.warning("discovered nodes not written; trying again", code=error.code, detail=error.full_detail)
        else:
            if self._failures:
                log.info("discovered nodes can be written again", failures=self._failures)
            self._failures = 0

    def found(self) -> DiscoveredNodes | None:
        """The nodes that Kubernetes lists now; None until every list has been read once."""
        if not self._reflectors or not all(reflector.synced for reflector in self._reflectors):
            return None
        slices, *pods = self._reflectors
        found = {reflector.name: reflector.objects for reflector in pods}
        return discover(
            slices.objects.values(),
            port=self._settings.port,
            scheme=self._settings.scheme,
            ignored=found.get("ignored pods", {}),
            no_schedule=found.get("no-schedule pods", {}),
            labels_of=partial(self._labels_of, found.get("pods", {})),
        )

    def _labels_of(self, pods: Mapping[str, KubernetesObject], name: str, zone: str | None) -> Mapping[str, str] | None:
        """Nothing is told of labels where none are asked for."""
        if not self._settings.node_labels:
            return None
        known = dict((pods.get(name, {}).get("metadata") or {}).get("labels") or {})
        if zone:
            known[ZONE_LABEL] = zone
        return fit_labels({label: known[label] for label in self._settings.node_labels if label in known})

    async def _write(self) -> None:
        found = self.found()
        if found is None or not self._is_accepted(found):
            return
        now = self._clock()
        if found == self._written and now - self._written_at < self._times.rewrite_seconds:
            return
        await self._nodes.replace(found.active, found.lingering, of_kubernetes=True)
        self._written, self._written_at = found, now

    def _is_accepted(self, found: DiscoveredNodes) -> bool:
        if not found.empty:
            self._empty_since = None
            return True
        now = self._clock()
        if self._empty_since is None:
            self._empty_since = now
            log.warning("Kubernetes lists no node at all; waiting", seconds=self._times.empty_seconds)
        return now - self._empty_since >= self._times.empty_seconds

    async def _wait_for_change(self) -> None:
        """Until something changes or the lease must be renewed; waits a little longer for bursts of changes."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._times.renew_seconds):
                await self._changed.wait()
        if self._changed.is_set():
            await asyncio.sleep(self._times.settle_seconds)
        self._changed.clear()

    @asynccontextmanager
    async def _watching(self, client: ApiClient) -> AsyncIterator[None]:
        self._reflectors = self._make_reflectors(client)
        tasks = [asyncio.create_task(reflector.run(), name=reflector.name) for reflector in self._reflectors]
        try:
            yield
        finally:
            await end_tasks(tasks)

    def _make_reflectors(self, client: ApiClient) -> list[Reflector]:
        from kubernetes_asyncio.client import CoreV1Api, DiscoveryV1Api

        namespace = self._settings.namespace
        of_service = f"kubernetes.io/service-name={self._settings.service_name}"
        list_slices: Any = DiscoveryV1Api(client).list_namespaced_endpoint_slice
        list_pods: Any = CoreV1Api(client).list_namespaced_pod
        wanted = [("endpoint slices", list_slices, of_service)]
        if self._ignore:
            wanted.append(("ignored pods", list_pods, self._ignore))
        if self._no_schedule:
            wanted.append(("no-schedule pods", list_pods, self._no_schedule))
        if set(self._settings.node_labels) - {ZONE_LABEL}:
            wanted.append(("pods", list_pods, ""))
        return [
            Reflector(
                name,
                call,
                {"namespace": namespace, "label_selector": selector},
                self._changed.set,
                self._times.reflector,
            )
            for name, call, selector in wanted
        ]

    async def _release_lease(self) -> None:
        if self.holds_lease:
            self.holds_lease = False
            try:
                await self._leases.release(LEASE, self._replica_id)
            except SchedulerError as error:
                log.info("the lease was not released and will expire", detail=error.full_detail)


def in_cluster_client() -> ApiClient:
    """A client with the pod's service account. Raises ConfigurationError outside of a cluster, or without the extra."""
    try:
        from kubernetes_asyncio.client import ApiClient, Configuration
        from kubernetes_asyncio.config import ConfigException, load_incluster_config
    except ImportError as error:
        raise ConfigurationError(
            'discovery.mode is kubernetes, which needs the extra: pip install "agentenv-scheduler[kubernetes]"'
        ) from error
    configuration = Configuration()
    try:
        load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]  # ships half annotated
    except ConfigException as error:
        raise ConfigurationError(f"discovery.mode is kubernetes, but this is no pod: {error}") from error
    return ApiClient(configuration)
