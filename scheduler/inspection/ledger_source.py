"""What an operator asks, answered straight from Redis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from scheduler.api.views import (
    act_view,
    address_view,
    decision_entry_view,
    node_view,
    replica_view,
    reservation_result_view,
    reservation_view,
    settings_view,
    summary_view,
    warm_node_view,
)
from scheduler.domain.journal import DecisionQuery
from scheduler.domain.limits import PAGE_MAX
from scheduler.domain.node import DiscoveryState
from scheduler.domain.reservation import Reservation, ReservationState
from scheduler.inspection.one_node import Capacity, capacities, look_at_node
from scheduler.ledger.agreement import settings_in_force
from scheduler.ledger.journals import Journal
from scheduler.ledger.ledger import Ledger
from scheduler.operating.source import Page, Row, Wanted

# Who acts, in the audit log: a command that reached Redis, and no key says whose.
ACTOR = "inspect"


class LedgerSource:
    """A `scheduler.operating.source.Source`; tells more of nodes and reservations than the HTTP API does."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    async def now_ms(self) -> int:
        return await self.ledger.time.now_ms()

    async def nodes(self) -> list[Row]:
        found = await self.ledger.nodes.list()
        held = await capacities(self.ledger, [node.node_id for node in found])
        return [node_view(node) | capacity_view(held[node.node_id]) for node in found]

    async def node(self, node_id: str) -> Row:
        return node_view(await self.ledger.nodes.get(node_id))

    async def node_page(self, node_id: str) -> Page:
        from scheduler.inspection.pages import node_page

        found = await look_at_node(self.ledger, node_id)
        plain = {
            "node": node_view(found.node),
            **capacity_view(found.capacity),
            "limit_exceeded": found.limit_exceeded,
            "sandboxes_listed": found.listed,
            "sandboxes_awaited": found.awaited,
            "acknowledged": found.acknowledged,
            "open_count": found.open_count,
            "open": [full_reservation_view(reservation) for reservation in found.open],
        }
        return Page(node_page(found, await self.now_ms()), plain)

    async def set_node(self, node_id: str, endpoint: str, state: str) -> None:
        await self.ledger.nodes.set(node_id, endpoint, DiscoveryState(state))
        await self._note("node.put", node_id, endpoint=endpoint, state=state)

    async def cordon(self, node_id: str, service_instance_id: str, *, cordoned: bool) -> None:
        if await self.ledger.nodes.cordons.set(node_id, service_instance_id, cordoned=cordoned):
            act = "node.cordon" if cordoned else "node.uncordon"
            await self._note(act, node_id, service_instance_id=service_instance_id)

    async def remove_node(self, node_id: str) -> None:
        await self.ledger.nodes.remove(node_id)
        await self._note("node.remove", node_id)

    async def reservations(self, wanted: Wanted, limit: int, cursor: str | None) -> tuple[Sequence[Row], str | None]:
        state = None if wanted.state is None else ReservationState(wanted.state)
        found, cursor = await self.ledger.reservations.list(wanted.node_id, state, limit, cursor)
        return [full_reservation_view(reservation) for reservation in found], cursor

    async def reservation_page(self, reservation_id: str) -> Page:
        from scheduler.inspection.pages import story_page
        from scheduler.inspection.story import tell_story

        story = await tell_story(self.ledger, reservation_id)
        plain = {
            "reservation": full_reservation_view(story.reservation),
            "strategy": story.fields.get("strategy"),
            "template_id": story.fields.get("template_id"),
            "degraded": story.fields.get("degraded") == "1",
            "report_generation": story.fields.get("report_generation"),
            "moments": [asdict(moment) for moment in story.moments],
            "group": None if story.group is None else asdict(story.group),
            "binding_node_id": story.binding_node_id,
        }
        return Page(story_page(story, await self.now_ms()), plain)

    async def cancel(self, reservation_id: str, reason: str) -> Row:
        result = await self.ledger.reservations.cancel(reservation_id, reason)
        if result.cancelled:
            node_id = result.reservation.node_id
            await self._note("reservation.cancel", reservation_id, node_id=node_id, reason=reason)
        return reservation_result_view(result)

    async def _note(self, act: str, subject: str, **details: str) -> None:
        """An act that took effect, for the audit log."""
        facts = {"actor": ACTOR, "act": act, "subject": subject, "details": details}
        await self.ledger.journals.append(Journal.AUDIT, [(0, facts)])

    async def where(self, sandbox_id: str) -> Row:
        binding = await self.ledger.bindings.lookup(sandbox_id)
        return {"sandbox_id": sandbox_id, "node": address_view(binding.node)}

    async def replicas(self) -> list[Row]:
        return [replica_view(sign) for sign in await self.ledger.settings.replicas(await self.now_ms())]

    async def decisions(self, query: DecisionQuery, limit: int) -> list[Row]:
        found, _ = await self.ledger.journals.page(Journal.DECISIONS, limit, None, query.wants)
        return [decision_entry_view(entry) for entry in found]

    async def acts(self, limit: int) -> list[Row]:
        found, _ = await self.ledger.journals.page(Journal.AUDIT, limit, None, lambda _: True)
        return [act_view(entry) for entry in found]

    async def warm_keys(self, key: str, node_id: str, limit: int) -> list[Row]:
        found: list[Row] = []
        cursor: str | None = ""
        while cursor is not None and len(found) < limit:
            most = min(PAGE_MAX, limit - len(found))
            page, cursor = await self.ledger.warm_keys.list(key, node_id, most, cursor)
            found += map(warm_node_view, page)
        return found

    async def settings(self) -> Row:
        return settings_view(await settings_in_force(self.ledger))

    async def summary(self) -> Row:
        return summary_view(await self.ledger.summary.read())


def capacity_view(capacity: Capacity) -> dict[str, int | None]:
    return {"cpu_capacity": capacity.cpu_count, "memory_capacity_bytes": capacity.memory_bytes}


def full_reservation_view(reservation: Reservation) -> dict[str, Any]:
    """The reservation as the HTTP API shows it, and what only an operator needs."""
    return reservation_view(reservation) | {
        "caller": reservation.caller,
        "request_id": reservation.request_id,
        "sandbox_told": reservation.sandbox_told,
        "orphaned": reservation.orphaned,
        "held": {
            "cpu_count": reservation.held_cpu_count,
            "memory_bytes": reservation.held_memory_bytes,
            "sandbox_count": reservation.held_sandbox_count,
        },
    }
