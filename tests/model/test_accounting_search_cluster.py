"""What one node's search leaves out: an id on two nodes, and a lost ledger that two replicas put back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.accounting import moves, putting_back
from tests.support.accounting.putting_back import PutBack
from tests.support.accounting.rules import NEXT


def test_a_roster_never_takes_a_told_binding_from_where_the_sandbox_runs() -> None:
    fault, story, states = moves.explore(NEXT, reports=2)
    print(f"two nodes, 2 reports each: {states} states")
    assert fault is None, _told(fault, story)


def test_unguarded_moves_are_caught() -> None:
    fault, story, _ = moves.explore(replace(NEXT, moves_guarded=False), reports=2)
    print(_told(fault, story))
    assert fault == "the binding left n2, where it runs"
    assert story[-1] == "the report of n1 arrives"


def test_a_report_whose_caller_hung_up_moves_no_binding() -> None:
    fault, story, _ = moves.explore(replace(NEXT, hang_up_proves_nothing=False), reports=2)
    print(_told(fault, story))
    assert fault == "the binding left n2, where it runs"
    assert story[-2:] == ["n2 is silent for report_ttl", "the report of n1 arrives"]


def test_whatever_order_two_replicas_put_back_in_nothing_is_lost_or_revived() -> None:
    fault, story, states = putting_back.explore(PutBack())
    print(f"two replicas, two schedules, one loss, one death: all, {states} states")
    assert fault is None, _told(fault, story)


@pytest.mark.parametrize(
    ("how", "fault", "last_step"),
    [
        (PutBack(at_all=False), "r1 is open, and the ledger says nothing", "the ledger is lost"),
        (
            PutBack(newest_wins=False),
            "r1 is confirmed, and the ledger says open",
            "B puts back what it remembers",
        ),
        (PutBack(ends_remembered=False), "r1 has ended and is open again", "B puts back what it remembers"),
        (PutBack(placements_wait=False), "capacity is given twice: r1 and r2", "A answers schedule r2"),
        (PutBack(changes_wait=False), "capacity is given twice: r1 and r2", "A answers confirm r1"),
    ],
    ids=["A14: nothing is put back", "first wins", "ends forgotten", "placements go on", "confirms go on"],
)
def test_every_part_of_putting_back_is_needed(how: PutBack, fault: str, last_step: str) -> None:
    found, story, _ = putting_back.explore(how)
    print(_told(found, story))
    assert found == fault
    assert story[-1] == last_step


def _told(fault: str | None, story: list[str]) -> str:
    return "\n".join([*(f"  {number}. {step}" for number, step in enumerate(story, 1)), f"  => {fault}"])
