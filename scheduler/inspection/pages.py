"""One thing at length, for people: a node, a reservation, what a check found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from scheduler.api.views import node_view
from scheduler.domain.wording import counted
from scheduler.inspection.one_node import NodeLook
from scheduler.inspection.story import UNSETTLED, Story
from scheduler.operating.pages import node_page as plain_node_page
from scheduler.operating.words import age, amounts, instant, size

if TYPE_CHECKING:
    from scheduler.inspection.recount import Report


def node_page(look: NodeLook, now_ms: int) -> Iterator[str]:
    """As the HTTP API's, by effective capacity, and what the ledger keeps about it."""
    capacity = {"cpu_capacity": look.capacity.cpu_count, "memory_capacity_bytes": look.capacity.memory_bytes}
    yield from plain_node_page(node_view(look.node) | capacity, now_ms)
    if look.limit_exceeded:
        yield f"  over limit   {look.limit_exceeded}"
    yield f"  sandboxes    {look.listed} in its last roster, {look.awaited} awaited"
    if look.acknowledged:
        yield f"  unnamed      {counted(look.acknowledged, 'reservation')} that counters settled and no event has named"
    yield f"  open         {counted(look.open_count, 'reservation')}, counted as pending:"
    for reservation in look.open:
        held = f"{counted(reservation.held_cpu_count, 'CPU')}, {size(reservation.held_memory_bytes)}"
        yield (
            f"    {reservation.reservation_id}  {reservation.state.value}, {held}, "
            f"{age(now_ms - reservation.created_at_ms)} old, "
            f"{age(reservation.expires_at_ms - now_ms)} left{_sandbox(reservation.sandbox_id)}"
        )


def _sandbox(sandbox_id: str | None) -> str:
    return f", sandbox {sandbox_id}" if sandbox_id else ""


def story_page(story: Story, now_ms: int) -> Iterator[str]:
    reservation, fields = story.reservation, story.fields
    memory = size(reservation.memory_bytes) if reservation.memory_bytes else "memory not stated"
    cpus = counted(reservation.cpu_count, "CPU") if reservation.cpu_count else "? CPUs"
    stated = ", ".join([cpus, memory, *amounts(reservation.resources)])
    orphaned = ", orphaned" if reservation.orphaned else ""
    yield f"reservation {reservation.reservation_id}: {reservation.state.value}{orphaned}"
    yield f"  asked for    {stated}, lifecycle {reservation.lifecycle.value}" + _template(fields.get("template_id"))
    if fields.get("spread"):
        yield f"  spread       counts for the key {fields['spread']}"
    if reservation.state in UNSETTLED:
        held = (
            f"{counted(reservation.held_cpu_count, 'CPU')}, {size(reservation.held_memory_bytes)}, "
            f"{counted(reservation.held_sandbox_count, 'sandbox', 'sandboxes')} on node {reservation.node_id}"
        )
        yield f"  holds        {held}, {age(reservation.expires_at_ms - now_ms)} left"
    for moment in story.moments:
        yield f"  {instant(moment.at_ms)}  {moment.what}"
    if story.group is not None:
        group = story.group
        state = "counted" if group.counted else "given back"
        yield (
            f"  group        {group.key}: {counted(group.cpu_count, 'CPU')} and {group.memory_mb} MiB, {state}; "
            f"that group is {'still open' if group.open else 'closed'}"
        )
    if reservation.sandbox_id:
        bound = f"bound to node {story.binding_node_id}" if story.binding_node_id else "not bound"
        source = "told by a caller" if reservation.sandbox_told else "suggested by an event"
        yield f"  sandbox      {reservation.sandbox_id} ({source}), {bound} now"


def _template(template_id: str | None) -> str:
    return f", template {template_id}" if template_id else ""


_ONE_OF = {"classes": "class"}


def check_page(report: Report) -> Iterator[str]:
    looked = ", ".join(counted(count, _ONE_OF.get(what, what[:-1]), what) for what, count in report.looked_at.items())
    yield f"looked at {looked}"
    if report.ok:
        yield "all of it adds up"
    for violation in report.violations:
        yield f"  {violation}"
    if not report.ok:
        things = counted(len(report.violations), "thing does", "things do")
        yield f"{things} not add up; each was found twice"
    for note in report.notes:
        yield f"note: {note}"
