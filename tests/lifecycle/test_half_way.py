"""Every single command of every script fails once: nothing acknowledged loses its hold, nothing stays held.

Each flow is run again and again, stopped at its first command, its second, and so on until it comes through. After
every stop its caller repeats the call; then all that was acknowledged must fit on the nodes together with whatever
else can still be placed. After one report of each node and `inspect repair` the ledger adds up.
"""

from __future__ import annotations

import pytest

from scheduler.domain.placement import Strategy
from scheduler.domain.reservation import Reservation
from scheduler.ledger.configured import ConfiguredBy
from tests.conftest import OpenLedger
from tests.lifecycle.cluster import address, event
from tests.lifecycle.half_way import Flow, Story, stop_everywhere
from tests.support.backends import Backend
from tests.support.clock import VirtualClock


async def placed(story: Story) -> None:
    await story.place("first")


async def confirmed(story: Story) -> None:
    await story.cluster.confirm(await story.place("first"))


async def due(story: Story) -> None:
    await story.place("first", reservation_ttl_ms=1_000)
    story.cluster.wait(1_000)


async def expired(story: Story) -> None:
    await due(story)
    await story.cluster.sweep()


async def listed(story: Story) -> None:
    reservation = await story.place("first")
    await story.cluster.confirm(reservation)
    story.running[reservation.node_id] = ("s1",)
    story.reported_cpus[reservation.node_id] = 2


def first(story: Story) -> Reservation:
    return next(iter(story.acknowledged.values()))


async def remove_and_bring_back(story: Story) -> None:
    node_id = first(story).node_id
    await story.ledger.nodes.remove(node_id)
    await story.cluster.discover(node_id)


async def configured(story: Story) -> None:
    await placed(story)
    await story.ledger.nodes.configure([address(first(story).node_id)], ConfiguredBy("replica", 1))


async def leave_the_file_and_return(story: Story) -> None:
    await story.ledger.nodes.configure((), ConfiguredBy("replica", 2))
    await story.ledger.nodes.configure([address(first(story).node_id)], ConfiguredBy("replica", 2))


FLOWS = [
    Flow("schedule", "schedule_sandbox", lambda story: story.place("acted")),
    Flow("schedule a second", "schedule_sandbox", lambda story: story.place("acted"), placed),
    Flow("schedule in turn", "schedule_sandbox", lambda story: story.place("acted"), placed, Strategy.ROUND_ROBIN),
    Flow("schedule by chance", "schedule_sandbox", lambda story: story.place("acted"), placed, Strategy.RANDOM),
    Flow(
        "schedule in a group", "schedule_sandbox", lambda story: story.place("acted"), placed,
        Strategy.GROUPED_ROUND_ROBIN,
    ),
    Flow("schedule what is due", "schedule_sandbox", lambda story: story.place("acted"), due),
    Flow("confirm", "confirm_reservation", lambda story: story.cluster.confirm(first(story)), placed),
    Flow("confirm late", "confirm_reservation", lambda story: story.cluster.confirm(first(story)), expired),
    Flow("confirm what is due", "confirm_reservation", lambda story: story.cluster.confirm(first(story)), due),
    Flow("cancel", "cancel_reservation", lambda story: story.cluster.cancel(first(story)), placed),
    Flow("renew", "renew_reservation", lambda story: story.cluster.renew(first(story)), placed),
    Flow("sweep", "sweep_ledger", lambda story: story.cluster.sweep(), due),
    Flow("report", "record_heartbeat", lambda story: story.report(), placed),
    Flow("report a sandbox", "record_heartbeat", lambda story: story.report(), listed),
    Flow(
        "tell of a create", "record_events",
        lambda story: story.cluster.tell(first(story).node_id, event("create", "s1", 2, 64)), placed,
    ),
    Flow(
        "tell of a delete", "record_events",
        lambda story: story.cluster.tell(first(story).node_id, event("delete", "s1")), confirmed,
    ),
    Flow("record a binding", "record_binding", lambda story: story.cluster.record("s2"), placed),
    Flow("a node leaves and returns", "set_nodes", remove_and_bring_back, placed, reports_first=True),
    Flow(
        "a node leaves the file and returns", "configure_nodes", leave_the_file_and_return, configured,
        reports_first=True,
    ),
    Flow("read the nodes", "read_nodes", lambda story: story.ledger.nodes.list(), due),
]  # fmt: skip


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
async def test_every_command_may_fail_once(
    flow: Flow, open_ledger_on: OpenLedger, backend: Backend, clock: VirtualClock
) -> None:
    # The embedded ledger takes its time to compile; there every seventh command tells the same, of callers that are
    # never heard of again.
    if backend.name == "real":
        await stop_everywhere(flow, open_ledger_on, backend, clock)
    else:
        await stop_everywhere(flow, open_ledger_on, backend, clock, step=7, callers=(False,))
