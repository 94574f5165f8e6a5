"""What is searched, and what the earlier rules must be caught at. Bounds are numbers of states, never time."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.support.accounting.invariants import COUNTED_TWICE, DELETED_COUNTED, DELETED_HELD, GIVEN_TWICE, NOT_LET_GO
from tests.support.accounting.ledger import EXPLICIT, HEARTBEAT
from tests.support.accounting.rules import NEXT, Rules, Size
from tests.support.accounting.world import Features

SILENT = (HEARTBEAT, HEARTBEAT)
MIXED = (EXPLICIT, HEARTBEAT)


def cpus(*sizes: int) -> tuple[Size, ...]:
    return tuple((size,) for size in sizes)


SEARCHES = (
    # Callers that confirm.
    Features(cpus(1, 3), boots_fail=True, ends=True),
    Features(cpus(3, 1, 2), boots_fail=True),
    Features(cpus(2, 1), boots_fail=True, pulls_fail=True, callers_give_up=True, deadlines=True),
    Features(cpus(2, 1), ends=True, deadlines=True),
    Features(cpus(2, 1), boots_fail=True, callers_give_up=True, air=2),
    Features(cpus(2, 1), boots_fail=True, ends=True, air=2, reports=4),
    Features(cpus(2, 2), create_events="boots", delete_events=True, events_lost=True, boots_fail=True, ends=True),
    Features(cpus(2, 1), create_events="runs", delete_events=True, ends=True, callers_give_up=True),
    Features(cpus(2, 1), pauses=True),
    Features(cpus(1, 2), fork=(2,), fork_told=True, ends=True, delete_events=True),
    Features(cpus(1, 2), fork=(1,), assigned=True, ends=True),
    Features(((1, 2), (2, 1)), boots_fail=True),  # memory beside CPUs
    Features(((0, 1), (2, 1)), boots_fail=True),  # a size that nobody stated
    Features(cpus(1, 2), named=1, boots_fail=True, pulls_fail=True, callers_give_up=True, deadlines=True),
    Features(cpus(2, 1), named=2, boots_fail=True, ends=True, air=2),
    # Callers that never do.
    Features(cpus(3, 1), lifecycles=SILENT, boots_fail=True, pulls_fail=True, ends=True),
    Features(cpus(3, 1), lifecycles=SILENT, boots_fail=True, deadlines=True, air=2),
    Features(((1, 3), (2, 1)), lifecycles=SILENT, boots_fail=True, air=2),
    Features(cpus(2, 2), lifecycles=SILENT, create_events="boots", boots_fail=True, pulls_fail=True, deadlines=True),
    Features(cpus(2, 2), lifecycles=SILENT, create_events="runs", delete_events=True, events_lost=True, ends=True),
    Features(cpus(2, 1), lifecycles=SILENT, pauses=True),
    Features(cpus(3, 1), lifecycles=SILENT, pauses=True, boots_fail=True),
    Features(cpus(1, 1, 1), lifecycles=(*SILENT, HEARTBEAT), boots_fail=True, ends=True),
    Features(cpus(1, 2), lifecycles=SILENT, pauses=True, pauses_told=True, events_lost=True, boots_fail=True),
    Features(cpus(2, 1), lifecycles=SILENT, assigned=True),
    Features(cpus(2, 1), lifecycles=SILENT, fork=(1,), fork_told=True),
    Features(cpus(1, 2), lifecycles=SILENT, named=1, boots_fail=True, pulls_fail=True, deadlines=True),
    # Both on one node.
    Features(cpus(2, 1), lifecycles=MIXED, boots_fail=True, pulls_fail=True, callers_give_up=True, deadlines=True),
    Features(cpus(1, 2), lifecycles=(HEARTBEAT, EXPLICIT), boots_fail=True, ends=True, air=2),
    Features(cpus(1, 1), lifecycles=MIXED, create_events="boots", delete_events=True, ends=True, callers_give_up=True),
    # Processes, copies, bursts.
    Features(cpus(2, 2), restart="ends", unregisters=True, air=2, deadlines=True),
    Features(cpus(2,), restart="keeps", air=2, ends=True),
    Features(cpus(3, 1), lifecycles=SILENT, restart="ends", unregisters=True, air=2),
    Features(cpus(2, 2), lifecycles=SILENT, restart="keeps", air=2),
    Features(cpus(2, 1), sequences=False, spaced=True, ends=True),
    Features(cpus(2, 1), spaced=True, air=2, ends=True),
)  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """An earlier rule, where it is caught, and how the shortest story ends. `names` is its number in the list of
    faults of the first version, or what the search itself has found."""

    names: str
    rules: Rules
    features: Features
    breaks: str
    last_step: str


FAULTS = (
    Fault(
        "A1: a booting sandbox counts twice",
        replace(NEXT, unnamed="full"),
        Features(cpus(2,)),
        COUNTED_TWICE,
        "report i1/1 arrives",
    ),
    Fault(
        "A1, never confirmed: growth without a success settles nothing",
        replace(NEXT, counted="growth"),
        Features(cpus(2,), lifecycles=(HEARTBEAT,)),
        NOT_LET_GO,
        "the node starts s1, which boots",
    ),
    Fault(
        "A2: a report from before the create proves the sandbox gone",
        replace(NEXT, absence="grace"),
        Features(cpus(2,)),
        GIVEN_TWICE,
        "report i1/1 arrives",
    ),
    Fault(
        "A4: what a delete event ended is held until the next report",
        replace(NEXT, delete_lowers=False),
        Features(cpus(2,), ends=True, delete_events=True),
        DELETED_COUNTED,
        "delete event of s1 arrives",
    ),
    Fault(
        "A5: a replaced process is believed",
        replace(NEXT, replaced_stay_replaced=False),
        Features(cpus(2,), restart="keeps", air=2),
        GIVEN_TWICE,
        "report i1/1 arrives",
    ),
    Fault(
        "A8: create after delete is held until its deadline",
        replace(NEXT, delete_remembered=False),
        Features(cpus(2,), lifecycles=(HEARTBEAT,), create_events="runs", delete_events=True, ends=True),
        DELETED_HELD,
        "create event of s1 arrives",
    ),
    Fault(
        "a report of a call that the node gave up proves a sandbox gone",
        replace(NEXT, hang_up_proves_nothing=False),
        Features(cpus(2,), air=2),
        GIVEN_TWICE,
        "report i1/2 arrives",
    ),
    Fault(
        "a report without its roster counts entries, and the next roster counts them again",
        replace(NEXT, entries_need_a_roster=False),
        Features(cpus(2, 2), lifecycles=SILENT, air=2),
        GIVEN_TWICE,
        "report",
    ),
    Fault(
        "a create that failed before a roster listed it is held while another boots",
        replace(NEXT, starting="never"),
        Features(cpus(2, 1), lifecycles=SILENT, boots_fail=True),
        NOT_LET_GO,
        "the node starts s2, which boots",
    ),
    Fault(
        "a resume is taken for a create",
        replace(NEXT, starting="always"),
        Features(cpus(2, 2), lifecycles=SILENT, pauses=True),
        GIVEN_TWICE,
        "report",
    ),
    Fault(
        "nothing tells of a process's first pause, and a create fails while it resumes",
        NEXT,
        Features(cpus(2, 2), lifecycles=SILENT, pauses=True, pauses_seen=False, boots_fail=True),
        GIVEN_TWICE,
        "report",
    ),
    Fault(
        "hang-ups are not seen, and two late reports come half an interval apart",
        NEXT,
        Features(cpus(2,), air=2, spaced=True, hang_ups_seen=False),
        GIVEN_TWICE,
        "report i1/2 arrives",
    ),
    Fault(
        "an id of a cancelled create is taken for another's",
        replace(NEXT, doubt=False),
        Features(cpus(2, 1), callers_give_up=True),
        GIVEN_TWICE,
        "",
    ),
    Fault(
        "a create that its caller gave up begins after two clean reports",
        replace(NEXT, doubt_until_over=False),
        Features(cpus(2, 2), callers_give_up=True),
        GIVEN_TWICE,
        "",
    ),
    Fault(
        "a create event names the wrong one of two confirming callers",
        replace(NEXT, events_name_explicit=True),
        Features(cpus(2, 2), create_events="runs", callers_give_up=True),
        GIVEN_TWICE,
        "",
    ),
)  # fmt: skip
