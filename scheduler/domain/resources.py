"""Resources beside CPUs and memory: `disk`, in bytes, and any name that the settings list. They admit and do not rank.

Nothing else knows one of them by its name: a further one takes configuration alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

RESOURCES_MAX = 8
DISK = "disk"

# What stands beside resources in reasons and figures cannot be the name of one.
TAKEN_NAMES = ("cpu", "memory", "capacity", "cpu_count", "memory_bytes", "spread")

Amounts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ResourceLoad:
    """What a node has of a resource, and how much of it sandboxes use; `total` -1: not known. `pending`: what
    reservations hold."""

    total: int
    allocated: int = 0
    pending: int = 0


def written(amounts: Amounts) -> str:
    """Amounts as the scripts take them: `name=amount;name=amount`, by name."""
    return ";".join(f"{name}={amount}" for name, amount in sorted(amounts.items())) if amounts else ""


def read(text: str) -> dict[str, int]:
    """The amounts of such a text."""
    return {name: int(amount) for name, _, amount in (part.partition("=") for part in text.split(";")) if name}


def written_loads(loads: Mapping[str, ResourceLoad]) -> str:
    """What a node reports: `name=total:allocated;…`, by name."""
    return ";".join(f"{name}={load.total}:{load.allocated}" for name, load in sorted(loads.items()))


def read_loads(text: str) -> dict[str, ResourceLoad]:
    """What a node's row says: `;name=total:load:pending…`."""
    parts = (part.partition("=") for part in text.split(";"))
    return {name: ResourceLoad(*map(int, numbers.split(":"))) for name, _, numbers in parts if name}


def of_disks(disks: Iterable[tuple[str, int, int]]) -> ResourceLoad | None:
    """All disks of a node together, from the device, size and use of each mount; a device that is mounted twice counts
    once. None: it reports none."""
    sizes: dict[str, tuple[int, int]] = {}
    for place, (device, total, used) in enumerate(disks):
        sizes.setdefault(device or f"{place}", (total, used))
    if not any(total for total, _ in sizes.values()):
        return None
    return ResourceLoad(sum(total for total, _ in sizes.values()), sum(used for _, used in sizes.values()))
