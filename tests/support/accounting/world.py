"""What really happens: sandboxes, their node, calls under way. The ledger sees only what it is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tests.support.accounting.ledger import EXPLICIT, Ledger
from tests.support.accounting.reports import Report
from tests.support.accounting.rules import Size, add

# One create, from the answer of the scheduler to the end of its sandbox. ASKED: the node pulls its image, no field
# of a report shows it. DROPPED: it never became a sandbox. FAILED: it did not boot.
UNASKED, ASKED, BOOTING, RUNNING, ENDED, FAILED, DROPPED = range(7)
LIVE = (BOOTING, RUNNING)


@dataclass(frozen=True)
class Features:
    """What may happen in a search, and how often. `reports` are sampled in all, `air` of them under way at once."""

    sizes: tuple[Size, ...]
    lifecycles: tuple[str, ...] = ()
    reports: int = 3
    air: int = 1
    confirms: bool = True
    boots_fail: bool = False
    pulls_fail: bool = False
    ends: bool = False
    create_events: str = ""  # when the node tells of a create: once it "boots", or once it "runs"
    delete_events: bool = False
    events_lost: bool = False
    fork: Size = ()
    fork_told: bool = False
    pauses: bool = False
    pauses_told: bool = False  # by events as well; a report that is sampled meanwhile shows them anyway
    pauses_seen: bool = True  # False: a process may resume what it has paused before anything tells of its first pause
    callers_give_up: bool = False
    deadlines: bool = False
    restart: str = ""  # "ends": the sandboxes die with their process; "keeps": they go on under the new one
    unregisters: bool = False  # a process that ends with its sandboxes may say so
    named: int = 0  # how many callers, from the first, name their sandbox in the schedule
    assigned: bool = False  # RecordAssignment may tell any running sandbox
    sequences: bool = True  # False: reports carry none, and may come twice
    spaced: bool = False  # time passes: reports may come in bursts or half an interval apart
    hang_ups_seen: bool = True

    def lifecycle(self, index: int) -> str:
        return self.lifecycles[index] if self.lifecycles else EXPLICIT

    def __str__(self) -> str:
        default = Features(sizes=())
        said = [f"sizes {'/'.join(','.join(map(str, size)) for size in self.sizes)}"]
        for name, value in vars(self).items():
            if name != "sizes" and value != getattr(default, name):
                said.append(name if value is True else f"{name} {value}")
        return ", ".join(said)


class World(NamedTuple):
    """`air`: reports under way, oldest first. `events`: told by the node and not arrived yet."""

    phases: tuple[int, ...]
    ledger: Ledger
    air: tuple[Report, ...] = ()
    events: frozenset[tuple[str, str]] = frozenset()
    fork: int = UNASKED
    fork_was_told: bool = False
    fork_counted: int = 0  # the successes that count the child
    fork_misled: bool = False  # a report showed the child before anybody told of it
    paused: frozenset[str] = frozenset()
    resuming: frozenset[str] = frozenset()
    process: int = 1
    sampled: int = 0
    process_sampled: int = 0
    successes: int = 0
    fails: int = 0
    acknowledged: int = -1
    now: int = 0


def zero(features: Features) -> Size:
    return (0,) * len(features.sizes[0])


def beginning(features: Features) -> World:
    """One node that has reported once, with nothing on it."""
    nothing = zero(features)
    ledger = Ledger(
        nothing,
        instance="i1",
        load=nothing,
        baseline_load=nothing,
        interval=2 if features.spaced else 0,
        grace=0 if features.sequences else 3,
    )
    return World((UNASKED,) * len(features.sizes), ledger)


def sandbox(index: int) -> str:
    return f"s{index + 1}"


def reservation(index: int) -> str:
    return f"r{index + 1}"


CHILD = "child"


def live(world: World) -> list[str]:
    """Every sandbox that the node's store has now."""
    found = [sandbox(i) for i, phase in enumerate(world.phases) if phase in LIVE]
    return [*found, CHILD] if world.fork == RUNNING else found


def size_of(features: Features, name: str) -> Size:
    return features.fork if name == CHILD else features.sizes[int(name[1:]) - 1]


def real_load(features: Features, world: World) -> Size:
    """What the node allocates now, paused sandboxes included: the ledger adds both figures of a report."""
    load = zero(features)
    for name in live(world):
        load = add(load, size_of(features, name))
    return load


def sample(features: Features, world: World, sequence: int) -> Report:
    return Report(
        instance=f"i{world.process}",
        sequence=sequence if features.sequences else 0,
        roster=frozenset(live(world)),
        load=real_load(features, world),
        starting=sum(phase == BOOTING for phase in world.phases) + len(world.resuming),
        successes=world.successes,
        fails=world.fails,
        paused=len(world.paused),
        acknowledged=world.acknowledged,
    )
