"""A group's budget is charged at placement; what became of the placement undoes and redoes the charge, once."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.domain.placement import Hint, HintKind, Strategy
from scheduler.domain.reservation import Lifecycle, Reservation
from scheduler.domain.settings import GroupSettings
from tests.lifecycle.cluster import REPORT_TTL_MS, TTL_MS, Cluster

pytestmark = pytest.mark.ledger_settings(
    strategy=Strategy.GROUPED_ROUND_ROBIN, groups=GroupSettings(max_sandbox_count=3, max_cpu_count=100)
)
HINT = Hint(HintKind.COLD_SANDBOX, 2, 512, images=("app",))


async def place(cluster: Cluster, **request: Any) -> Reservation:
    return await cluster.place(hint=HINT, **request)


async def charged(cluster: Cluster) -> tuple[int, int, int] | None:
    """Sandboxes, CPUs and MiB of the one open group; None when there is none."""
    total, groups, _ = await cluster.services.groups.list()
    assert total == len(groups) <= 1
    return (groups[0].sandbox_count, groups[0].cpu_count, groups[0].memory_mb) if groups else None


async def test_cancel_gives_the_charge_back_once(cluster: Cluster) -> None:
    await cluster.add()
    first, _ = await place(cluster), await place(cluster)
    assert await charged(cluster) == (2, 4, 1024)
    for _ in range(2):
        await cluster.cancel(first)
        assert await charged(cluster) == (1, 2, 512)


@pytest.mark.parametrize(("lifecycle", "after"), [(Lifecycle.EXPLICIT, (0, 0, 0)), (Lifecycle.HEARTBEAT, (1, 2, 512))])
async def test_expiry_gives_back_only_what_somebody_would_have_confirmed(
    cluster: Cluster, lifecycle: Lifecycle, after: tuple[int, int, int]
) -> None:
    await cluster.add()
    await place(cluster, lifecycle=lifecycle)
    cluster.wait(TTL_MS)
    await cluster.sweep()
    assert await charged(cluster) == after


async def test_a_late_confirm_charges_again_and_never_twice(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await place(cluster)
    cluster.wait(TTL_MS)
    await cluster.sweep()
    assert await charged(cluster) == (0, 0, 0)
    for _ in range(2):
        await cluster.confirm(reservation)
        assert await charged(cluster) == (1, 2, 512)


async def test_a_late_confirm_of_the_heartbeat_lifecycle_was_charged_all_along(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await place(cluster, lifecycle=Lifecycle.HEARTBEAT)
    cluster.wait(TTL_MS)
    await cluster.confirm(reservation)
    assert await charged(cluster) == (1, 2, 512)


async def test_a_charge_that_reaches_a_limit_closes_the_group(cluster: Cluster) -> None:
    await cluster.add()
    late = await place(cluster)
    cluster.wait(TTL_MS)
    await cluster.report()
    await cluster.sweep()
    await place(cluster)
    await place(cluster)
    assert await charged(cluster) == (2, 4, 1024)
    await cluster.confirm(late)
    assert await charged(cluster) is None


async def test_a_group_that_is_closed_takes_nothing_back(cluster: Cluster) -> None:
    await cluster.add()
    first = [await place(cluster) for _ in range(3)]
    assert await charged(cluster) is None
    await place(cluster)
    await cluster.cancel(first[0])
    assert await charged(cluster) == (1, 2, 512), "the group of the same key is another one by now"


async def test_confirm_and_settlement_change_no_charge(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await place(cluster)
    await cluster.confirm(reservation)
    await cluster.report("a", ("s1",))
    assert await charged(cluster) == (1, 2, 512)


async def test_a_removal_gives_back_what_it_expires(cluster: Cluster) -> None:
    await cluster.add()
    await place(cluster)
    await cluster.services.nodes.remove("a")
    cluster.wait(REPORT_TTL_MS)
    await cluster.sweep()
    assert await charged(cluster) == (0, 0, 0)
