"""The arithmetic of capacity on one node. Written to be read beside the Lua; never ships.

Vocabulary, all of it about one node and its last accepted report:

    roster      ids that the report lists             load     what it says is allocated, paused included
    told        ids whose sandbox is known: confirm, RecordAssignment, create event, `sandbox_id` of a schedule
    W           reservations that are open, unnamed (no told or provisional id) and older than the report
    explained   listed ids that are told, or told to be forks
    baseline    listed ids that were unexplained when no unnamed explicit reservation was open, or when the
                instance first reported (and again whenever nothing is unexplained); `baseline_load` is
                load − Σ explained sizes at that time, at least 0. A baseline id that becomes told leaves, with
                its size; one that is listed no more leaves without, since nobody knows it; none left: 0

Everything below holds per dimension. A dimension whose size nobody stated is 0.

    believed  =  observed + held
    observed  =  load − Σ size of ids that are in the roster, deleted by an event, of told size, and not paused
    held      =  Σ size of open reservations, without those whose told id is in the roster
                 − discount(W of confirming callers) − counted(W of the others)

Confirming callers (`explicit`):

    k         =  listed ids that are neither explained nor baseline
    doubted   =  reservations that ended without a told name and may still own one of these ids (see below),
                 plus the W of the other lifecycle
    L         =  load − Σ sizes of explained ids − baseline_load
    exact     =  doubted = 0, and k ≤ |W|, and every explained listed id and every member of W states its size,
                 and k smallest of W ≤ L ≤ k largest of W
    discount  =  L when exact, else max(0, min(L, the (k − doubted) smallest of W))

Callers that never confirm (`heartbeat`), from reports that list at least one id:

    counts    =  create_successes + create_fails
    sure      =  max(entered before + ids newly listed, counts)
    again     =  shown before + ids newly listed
    shown     =  min(counts + starting, max(again, sure + growth of counts)); what no roster lists, because it came
                 and went between two reports, shows in this alone
    entered   =  max(sure, min(shown, max(again, sure + growth of create_fails))); the first report of an instance
                 starts it and `shown` at counts + starting.
                 A resume passes through "starting" and lists no new id. So a process that has paused a sandbox (a
                 report or an event says so) is believed `sure` alone; of others, what "starting" shows counts as far as
                 as many creates failed since the report before, or two reports in a row show it.
    credit   +=  growth of entered;  −= 1 for each reservation of either lifecycle that ends or is settled, and for
                 each fork event, unless the child is listed already and the credit is at its floor.
                 Only a report whose roster is installed counts: one without it, between two that have one, would have
                 its successes counted once more as ids newly listed. The first installed roster of an instance sets it
                 to −recent. After a report it is brought into [−recent, open reservations]: above, nobody here placed
                 it; below, it speaks of creates that never entered. recent counts what ended otherwise than by
                 counters, and the forks that were told, since the report before (these may have entered after the
                 node sampled this one), and every end whose doubt has not begun to clear.
    available =  credit − open reservations made before the report that are not in W of this lifecycle
    counted   =  the `available` smallest of W;  when available ≥ |W| after a report, all of W are settled

    This is safe when a create begins before its deadline or never: the deadline must be longer than the longest
    pull. After failed pulls the credit stays too low until fewer reservations than that are young, so the deadline
    should not be much longer either. Counters say nothing of what a replaced process started.

Create events name (provisionally) the first due reservation of exactly their size whose caller never confirms, if
all that fit have one size and no reservation of that size ended here without a name (the event may be late and mean
that one). What an event or RecordAssignment tells of exists: the deadline of the reservation that has its name
starts anew, as with a confirm, and absence is judged as for a confirmed one. Events never name a confirming caller's:
two of one size may be swapped, and when the true owner is cancelled the other would count as started. Such an event
changes nothing, and its id stays unexplained until the confirm. A name that is shown all the same must not count:
neither its listing nor its delete event says anything of that reservation. (Taking wrong names back when an owner
ends was searched too: capacity is given twice.)

Memory, CPUs and the count of reservations are dimensions alike; in the count every size is 1.

Doubt: a reservation that ends without a told name is doubted until two more reports were accepted, when the caller
knew the node's answer. When nobody knows how its create ended (deadline; cancel without the node's answer), it is
doubted until its create cannot begin any more (cancelled: its deadline; expired: another of its TTL; never confirmed:
its deadline), and after that until two reports in a row came without unexplained ids. What counters settled is
doubted as if unknown. A confirm that names it ends the doubt.
A report whose caller has hung up is installed without its roster: its load is believed, nothing is taken off by a
roster that is not of the same report, and it proves nothing of absence, entries or doubts.
While a create that was cancelled or is due can still begin, the id that its caller gave it stays told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Size = tuple[int, ...]


@dataclass(frozen=True)
class Rules:
    """Which rules hold. The defaults are the design; the others are earlier ones, for the search to refute."""

    unnamed: str = "bounded"  # "full": held until named; "smallest": k smallest fitting growth; "bounded"
    counted: str = "entered"  # "growth": oldest first by successes and growth (0.1); "entered"
    absence: str = "two reports"  # "grace": any report after binding_grace (0.1); "one": upstream; "two reports"
    hang_up_proves_nothing: bool = True
    delete_lowers: bool = True
    delete_remembered: bool = True
    entries_need_a_roster: bool = True
    starting: str = "bounded"  # "never": what was never listed counts only once all others run; "always"; "bounded"
    empty_rosters_tell_entries: bool = True  # False: where no id is listed counters are read as in 0.1
    replaced_stay_replaced: bool = True
    doubt: bool = True
    doubt_until_over: bool = True
    moves_guarded: bool = True
    events_name_explicit: bool = False  # True: a create event names a confirming caller's reservation too (0.1)
    put_back: str = "revisions"  # "nothing" (0.1); "revisions"


NEXT = Rules()
FIRST_VERSION = Rules(
    unnamed="full",
    counted="growth",
    absence="grace",
    hang_up_proves_nothing=False,
    delete_lowers=False,
    delete_remembered=False,
    replaced_stay_replaced=False,
    doubt=False,
    doubt_until_over=False,
    moves_guarded=False,
    events_name_explicit=True,
    put_back="nothing",
)


def add(left: Size, right: Size) -> Size:
    return tuple(a + b for a, b in zip(left, right, strict=True))


def subtract(left: Size, right: Size) -> Size:
    return tuple(a - b for a, b in zip(left, right, strict=True))


def total(sizes: Sequence[Size], zero: Size) -> Size:
    for size in sizes:
        zero = add(zero, size)
    return zero


def smallest(sizes: Sequence[Size], count: int, dimension: int) -> int:
    """Σ of the `count` smallest in one dimension."""
    return sum(sorted(size[dimension] for size in sizes)[: max(0, count)])


def largest(sizes: Sequence[Size], count: int, dimension: int) -> int:
    return sum(sorted((size[dimension] for size in sizes), reverse=True)[: max(0, count)])


@dataclass(frozen=True)
class Unexplained:
    """What a report shows beyond the told. `stated` per dimension: every explained id states its size."""

    ids: int
    load: Size
    stated: tuple[bool, ...]


def discount(waiting: Sequence[Size], unexplained: Unexplained, doubted: int) -> Size:
    """The part of W (`waiting`) that the observed load already holds; never too much."""
    return tuple(_discount_of(waiting, unexplained, doubted, d) for d in range(len(unexplained.load)))


def _discount_of(waiting: Sequence[Size], unexplained: Unexplained, doubted: int, d: int) -> int:
    ids, load = unexplained.ids, unexplained.load[d]
    stated = unexplained.stated[d] and all(size[d] > 0 for size in waiting)
    exact = doubted == 0 and ids <= len(waiting) and stated
    if exact and smallest(waiting, ids, d) <= load <= largest(waiting, ids, d):
        return load
    return max(0, min(load, smallest(waiting, ids - doubted, d)))


def counted(waiting: Sequence[Size], available: int, dimensions: int) -> Size:
    """What callers that never confirm need not hold any more: the smallest that surely entered."""
    return tuple(smallest(waiting, available, d) for d in range(dimensions))
