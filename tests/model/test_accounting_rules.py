"""The rules of accounting on single stories; `test_accounting_search` looks for the stories by itself."""

from __future__ import annotations

from tests.support.accounting.ledger import (
    HEARTBEAT,
    PENDING,
    SETTLED,
    Ledger,
    believed,
    cancel,
    confirm,
    held,
    schedule,
)
from tests.support.accounting.reports import Report, accept, created, deleted, forked
from tests.support.accounting.rules import NEXT


def of_sizes(*sizes: int, lifecycle: str = "explicit") -> Ledger:
    """r1, r2, … made after a first, empty report."""
    ledger = accept(Ledger((0,), load=(0,), baseline_load=(0,)), NEXT, report(1))
    for number, size in enumerate(sizes, 1):
        made = schedule(ledger, f"r{number}", (size,), lifecycle)
        assert made is not None
        ledger = made
    return ledger


def report(sequence: int, *listed: str, load: int = 0, starting: int = 0, successes: int = 0) -> Report:
    return Report("i1", sequence, frozenset(listed), (load,), starting, successes)


def test_booting_sandboxes_count_once_before_anybody_names_them() -> None:
    ledger = accept(of_sizes(2, 2, 2, 2), NEXT, report(2, "a", "b", "c", "d", load=8, starting=4))
    assert believed(ledger, NEXT) == (8,)
    assert held(ledger, NEXT) == (0,)


def test_of_different_sizes_the_exact_load_is_taken_off_and_what_is_left_stays_held() -> None:
    ledger = accept(of_sizes(1, 2, 3), NEXT, report(2, "a", load=2, starting=1))
    assert held(ledger, NEXT) == (4,)


def test_a_confirm_keeps_what_is_believed() -> None:
    ledger = accept(of_sizes(1, 3), NEXT, report(2, "a", load=3, starting=1))
    assert believed(ledger, NEXT) == (4,)
    confirmed = confirm(ledger, NEXT, "r2", "a")
    assert confirmed is not None
    assert believed(confirmed, NEXT) == (4,)
    assert confirmed.reservation("r2").state == SETTLED


def test_an_end_that_may_own_the_listed_id_leaves_the_others_held() -> None:
    ledger = accept(of_sizes(2, 2), NEXT, report(2, "a", load=2, starting=1))
    assert held(cancel(ledger, "r1", known=False), NEXT) == (2,)


def test_unstated_sizes_are_never_taken_for_exact() -> None:
    ledger = accept(of_sizes(0, 3), NEXT, report(2, "a", load=3, starting=1))
    assert held(ledger, NEXT) == (3,)


def test_entered_reservations_of_silent_callers_hold_only_the_largest() -> None:
    ledger = accept(of_sizes(1, 3, lifecycle=HEARTBEAT), NEXT, report(2, "a", load=3, starting=1))
    assert held(ledger, NEXT) == (3,)
    assert ledger.reservation("r1").state == PENDING
    ledger = accept(ledger, NEXT, report(3, "a", "b", load=4, starting=1, successes=1))
    assert {r.state for r in ledger.reservations} == {SETTLED}
    assert believed(ledger, NEXT) == (4,)


def test_a_resume_releases_nothing() -> None:
    ledger = accept(of_sizes(2, lifecycle=HEARTBEAT), NEXT, report(2, "a", load=2, successes=1))
    made = schedule(ledger, "r2", (2,), HEARTBEAT)
    assert made is not None
    resumed = accept(made, NEXT, report(3, "a", load=2, starting=1, successes=1))
    assert held(resumed, NEXT) == (2,)


def test_a_fork_that_was_told_is_nobodys_create() -> None:
    ledger = forked(of_sizes(2, 2), "child", (2,))
    assert held(accept(ledger, NEXT, report(2, "child", load=2)), NEXT) == (4,)


def test_a_delete_lowers_only_what_the_installed_roster_lists() -> None:
    told = confirm(of_sizes(2), NEXT, "r1", "a")
    assert told is not None
    assert believed(deleted(told, NEXT, "a"), NEXT) == (0,)
    listed = accept(told, NEXT, report(2, "a", load=2, successes=1))
    assert believed(deleted(listed, NEXT, "a"), NEXT) == (0,)


def test_create_after_delete_of_one_id_settles() -> None:
    ledger = created(deleted(of_sizes(4, lifecycle=HEARTBEAT), NEXT, "a"), NEXT, "a", (4,))
    assert ledger.reservation("r1").state == SETTLED
    assert held(ledger, NEXT) == (0,)
