"""Discovery against a server that lists and watches as Kubernetes does, and misbehaves as it does."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from structlog.testing import capture_logs

from scheduler.config import KubernetesSettings
from scheduler.discovery.kubernetes import DiscoveryTimes, KubernetesDiscovery, in_cluster_client
from scheduler.discovery.reflector import ReflectorTimes
from scheduler.domain.node import DiscoveryState, NodeAddress
from scheduler.errors import ConfigurationError, StoreUnavailable
from scheduler.ledger.configured import ConfiguredBy
from scheduler.ledger.ledger import Ledger
from scheduler.service import build_services
from tests.discovery.stub_api import PODS, SLICES, StubApi, endpoint, endpoint_slice, pod, served
from tests.support.clock import VirtualClock

# Found, not imported: only the test process that runs these needs its hundreds of modules.
if importlib.util.find_spec("kubernetes_asyncio") is None:
    pytest.skip("the kubernetes extra is not installed", allow_module_level=True)

PROMPT = ReflectorTimes(retry_seconds=0.01, retry_seconds_max=0.05)


class Cluster:
    """The stub server, a ledger, and any number of replicas that discover."""

    def __init__(self, api: StubApi, address: str, ledger: Ledger) -> None:
        self.api = api
        self.address = address
        self.ledger = ledger
        self.seconds = 0.0
        self._stack = AsyncExitStack()

    async def replica(self, name: str = "r1", *, times: dict[str, Any] | None = None, **settings: Any) -> Any:
        from kubernetes_asyncio.client import ApiClient, Configuration

        discovery = KubernetesDiscovery(
            KubernetesSettings(namespace="prod", service_name="nodes", port=8000, **settings),
            build_services(self.ledger).nodes,
            self.ledger.leases,
            name,
            times=DiscoveryTimes(
                **({"settle_seconds": 0.0, "renew_seconds": 0.02, "reflector": PROMPT} | (times or {}))
            ),
            connect=lambda: ApiClient(Configuration(host=self.address)),
            clock=lambda: self.seconds,
        )
        task = asyncio.create_task(discovery.run(), name=name)
        self._stack.push_async_callback(ended, task)
        return discovery, task

    async def listed(self) -> dict[str, tuple[str, str]]:
        nodes = await self.ledger.nodes.list()
        return {node.node_id: (node.discovery.value, node.endpoint) for node in nodes}

    async def lists(self, **expected: str) -> None:
        """Waits until exactly these ids are listed, in these states."""

        async def as_expected() -> bool:
            return {node_id: state for node_id, (state, _) in (await self.listed()).items()} == expected

        await eventually(as_expected)

    async def close(self) -> None:
        await self._stack.aclose()


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(90):
        while not await holds():  # noqa: ASYNC110  what is waited for lies in a server and a ledger
            await asyncio.sleep(0.01)


@pytest.fixture
async def cluster(ledger: Ledger) -> AsyncIterator[Cluster]:
    api = StubApi()
    async with served(api) as address:
        started = Cluster(api, address, ledger)
        try:
            yield started
        finally:
            await started.close()


def two_nodes(api: StubApi) -> None:
    api.put(SLICES, endpoint_slice("s1", endpoint("p1", "10.0.0.1"), endpoint("p2", "10.0.0.2")))


async def test_nodes_come_move_drain_and_go_with_their_slices(cluster: Cluster) -> None:
    two_nodes(cluster.api)
    await cluster.replica()
    await cluster.lists(p1="active", p2="active")
    assert (await cluster.listed())["p1"] == ("active", "http://10.0.0.1:8000")
    cluster.api.put(
        SLICES, endpoint_slice("s1", endpoint("p1", "10.0.0.9"), endpoint("p2", "10.0.0.2", terminating=True))
    )
    await cluster.lists(p1="active", p2="lingering")
    assert (await cluster.listed())["p1"] == ("active", "http://10.0.0.9:8000")
    cluster.api.put(SLICES, endpoint_slice("s2", endpoint("p3", "10.0.0.3")))
    cluster.api.delete(SLICES, "s1")
    await cluster.lists(p3="active")


async def test_named_labels_of_pods_and_their_zone_are_labels_of_the_nodes(cluster: Cluster, ledger: Ledger) -> None:
    first = {**endpoint("p1", "10.0.0.1"), "zone": "z1"}
    cluster.api.put(SLICES, endpoint_slice("s1", first, endpoint("p2", "10.0.0.2")))
    cluster.api.put(PODS, pod("p1", gpu="h100", other="x"))
    cluster.api.put(PODS, pod("p2", gpu="not a label"))
    await cluster.replica(node_labels=("gpu", "topology.kubernetes.io/zone"))

    async def labelled(node_id: str, labels: dict[str, str]) -> None:
        async def so() -> bool:
            return {node.node_id: dict(node.labels) for node in await ledger.nodes.list()}.get(node_id) == labels

        await eventually(so)

    await labelled("p1", {"gpu": "h100", "topology.kubernetes.io/zone": "z1"})
    await labelled("p2", {})
    cluster.api.put(PODS, pod("p1", other="x"))
    await labelled("p1", {"topology.kubernetes.io/zone": "z1"})


async def test_only_slices_of_the_service_are_asked_for(cluster: Cluster) -> None:
    two_nodes(cluster.api)
    await cluster.replica()
    await cluster.lists(p1="active", p2="active")
    assert {query["labelSelector"] for kind, query in cluster.api.calls if kind == SLICES} == {
        "kubernetes.io/service-name=nodes"
    }
    assert not cluster.api.lists(PODS), "pods are nobody's business without a selector"


async def test_pods_that_match_the_selectors_drain_or_vanish_and_come_back(cluster: Cluster) -> None:
    two_nodes(cluster.api)
    cluster.api.put(PODS, pod("p1", drain="yes"))
    await cluster.replica(no_schedule_pod_selector="drain=yes", ignore_pod_selector="ignore=yes")
    await cluster.lists(p1="lingering", p2="active")
    cluster.api.put(PODS, pod("p2", ignore="yes"))
    await cluster.lists(p1="lingering")
    cluster.api.delete(PODS, "p1")
    cluster.api.delete(PODS, "p2")
    await cluster.lists(p1="active", p2="active")


async def test_a_dropped_connection_is_watched_on_from_the_last_version(cluster: Cluster) -> None:
    two_nodes(cluster.api)
    discovery, _ = await cluster.replica()
    await cluster.lists(p1="active", p2="active")
    cluster.api.bookmark()
    bookmarked = str(cluster.api.version)

    async def told() -> bool:
        return bool(discovery._reflectors[0]._version == bookmarked)

    await eventually(told)
    cluster.api.cut()

    async def seen() -> bool:
        return bookmarked in cluster.api.watches(SLICES)

    await eventually(seen)
    cluster.api.put(SLICES, endpoint_slice("s2", endpoint("p3", "10.0.0.3")))
    await cluster.lists(p1="active", p2="active", p3="active")
    assert cluster.api.lists(SLICES) == 1, "what a bookmark told need not be listed again"


@pytest.mark.parametrize("as_event", [False, True], ids=["as status", "as event"])
async def test_gone_is_answered_by_a_fresh_list(cluster: Cluster, as_event: bool) -> None:
    cluster.api.gone_as_event = as_event
    two_nodes(cluster.api)
    await cluster.replica()
    await cluster.lists(p1="active", p2="active")
    # Away while p2 goes, and what happened meanwhile is forgotten there.
    cluster.api.put(SLICES, endpoint_slice("s1", endpoint("p1", "10.0.0.1")))
    cluster.api.compact()
    cluster.api.cut()
    await cluster.lists(p1="active")


async def test_a_failing_server_is_tried_again_and_changes_nothing(cluster: Cluster) -> None:
    two_nodes(cluster.api)
    await cluster.replica()
    await cluster.lists(p1="active", p2="active")
    cluster.api.refuse(500, 503, 429, 500, 401, 500)
    cluster.api.cut()

    async def survived() -> bool:
        return not cluster.api.refusals

    await eventually(survived)
    assert set(await cluster.listed()) == {"p1", "p2"}
    cluster.api.put(SLICES, endpoint_slice("s2", endpoint("p3", "10.0.0.3")))
    await cluster.lists(p1="active", p2="active", p3="active")


async def test_resync_lists_again_whatever_the_watch_reported(cluster: Cluster) -> None:
    two_nodes(cluster.api)
    await cluster.replica(times={"reflector": ReflectorTimes(resync_seconds=0.05, retry_seconds=0.01)})

    async def listed_twice() -> bool:
        return cluster.api.lists(SLICES) >= 2

    await eventually(listed_twice)
    await cluster.lists(p1="active", p2="active")


async def test_an_empty_list_is_believed_only_after_a_while(cluster: Cluster) -> None:
    two_nodes(cluster.api)
    discovery, _ = await cluster.replica()
    await cluster.lists(p1="active", p2="active")
    cluster.api.delete(SLICES, "s1")

    async def seen_empty() -> bool:
        # Since then the time counts that it stays empty.
        return discovery._empty_since is not None

    await eventually(seen_empty)
    cluster.seconds += 29
    await discovery.step()
    assert set(await cluster.listed()) == {"p1", "p2"}, "a gap between slices wipes out nothing"
    cluster.seconds += 2
    await cluster.lists()


async def test_a_gap_starts_anew_when_a_node_shows_in_between(cluster: Cluster) -> None:
    two_nodes(cluster.api)
    discovery, _ = await cluster.replica()
    await cluster.lists(p1="active", p2="active")
    for _ in range(2):
        cluster.api.delete(SLICES, "s1")
        await eventually(lambda: _is(discovery, empty=True))
        await discovery.step()
        cluster.seconds += 20
        two_nodes(cluster.api)
        await eventually(lambda: _is(discovery, empty=False))
        await discovery.step()
        assert set(await cluster.listed()) == {"p1", "p2"}


async def _is(discovery: KubernetesDiscovery, *, empty: bool) -> bool:
    found = discovery.found()
    return found is not None and found.empty is empty


async def test_configured_nodes_stay_beside_the_discovered(cluster: Cluster, ledger: Ledger) -> None:
    two_nodes(cluster.api)
    configured = (NodeAddress("fixed", "http://fixed:8000"), NodeAddress("p1", "http://elsewhere:1"))
    await ledger.nodes.configure(configured, ConfiguredBy("another replica", 0))
    await ledger.nodes.set("stranger", "http://stranger:1", DiscoveryState.ACTIVE)
    await cluster.replica()
    await cluster.lists(fixed="active", p1="active", p2="active")
    assert (await cluster.listed())["p1"] == ("active", "http://10.0.0.1:8000")
    await ledger.nodes.configure((), ConfiguredBy("another replica", 1))
    assert "fixed" not in await cluster.listed()


async def test_one_replica_writes_and_another_takes_over(cluster: Cluster, clock: VirtualClock) -> None:
    two_nodes(cluster.api)
    first, first_task = await cluster.replica("r1")
    await cluster.lists(p1="active", p2="active")
    second, _ = await cluster.replica("r2")
    await eventually(lambda: _is(second, empty=False))
    await second.step()
    assert (first.holds_lease, second.holds_lease) == (True, False)
    # The first lets go in order: the second need not wait for the lease to run out.
    await ended(first_task)
    cluster.api.put(SLICES, endpoint_slice("s2", endpoint("p3", "10.0.0.3")))
    await cluster.lists(p1="active", p2="active", p3="active")
    assert second.holds_lease


async def test_a_lease_of_a_holder_that_died_runs_out(ledger: Ledger, clock: VirtualClock) -> None:
    assert await ledger.leases.hold("work", "r1", 10_000)
    assert await ledger.leases.hold("work", "r1", 10_000), "its holder renews it"
    clock.advance(9_999)
    assert not await ledger.leases.hold("work", "r2", 10_000)
    clock.advance(1)
    assert await ledger.leases.hold("work", "r2", 10_000)
    assert not await ledger.leases.hold("work", "r1", 10_000), "waking up, the first one learns that it lost it"
    await ledger.leases.release("work", "r1")
    assert await ledger.leases.hold("work", "r2", 10_000), "what one does not hold one cannot let go"
    await ledger.leases.release("work", "r2")
    assert await ledger.leases.hold("work", "r1", 10_000)


async def test_what_somebody_else_changed_in_the_ledger_is_put_right(cluster: Cluster, ledger: Ledger) -> None:
    two_nodes(cluster.api)
    await cluster.replica()
    await cluster.lists(p1="active", p2="active")
    await ledger.nodes.remove("p2")
    cluster.seconds += 31
    await cluster.lists(p1="active", p2="active")


def test_a_bad_selector_stops_the_start_up(ledger: Ledger) -> None:
    settings = KubernetesSettings("prod", "nodes", 8000, ignore_pod_selector="a in b")
    with pytest.raises(ConfigurationError, match="ignore_pod_selector"):
        KubernetesDiscovery(settings, build_services(ledger).nodes, ledger.leases, "r1")


def test_outside_of_a_cluster_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigurationError, match="this is no pod"):
        in_cluster_client()


async def test_a_ledger_that_is_away_is_logged_once_and_once_more_when_it_is_back(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_nodes(cluster.api)
    discovery, _ = await cluster.replica()
    await cluster.lists(p1="active", p2="active")
    hold, asked = cluster.ledger.leases.hold, 0

    async def refuse(*_: Any) -> bool:
        nonlocal asked
        asked += 1
        raise StoreUnavailable("gone")

    async def asked_often() -> bool:
        return asked > 5

    async def is_back() -> bool:
        # The log line comes last, after the list was written.
        return bool(discovery.holds_lease) and discovery._failures == 0

    with capture_logs() as lines:
        monkeypatch.setattr(cluster.ledger.leases, "hold", refuse)
        await eventually(asked_often)
        monkeypatch.setattr(cluster.ledger.leases, "hold", hold)
        await eventually(is_back)
    told = [line["event"] for line in lines if line["event"].startswith("discovered nodes")]
    assert told == ["discovered nodes not written; trying again", "discovered nodes can be written again"]
