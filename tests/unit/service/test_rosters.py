"""A roster is looked at as a whole first; what that cannot tell is looked at one by one, with the same result."""

from __future__ import annotations

import pytest

from scheduler.domain.limits import ID_BYTES_MAX
from scheduler.domain.text import are_plain_ids
from scheduler.service.checks import clean_roster

ODD = ("", " ", "a\nb", "a\n", "\n", " padded ", "ü", "x" * (ID_BYTES_MAX + 1), "\ud800", "a\x00b", "a b")


@pytest.mark.parametrize("odd", ODD)
def test_one_odd_id_is_cleaned_or_dropped_and_the_rest_stays(odd: str) -> None:
    alone = clean_roster([odd])
    assert not are_plain_ids(("s1", odd, "s2"))
    assert clean_roster(["s1", odd, "s2", "s1"]) == ("s1", *alone, "s2")


def test_plain_ids_stay_as_they_are_and_each_is_there_once() -> None:
    assert clean_roster(()) == ()
    assert clean_roster(("s2", "s1", "s2")) == ("s2", "s1")
    assert are_plain_ids(("x" * ID_BYTES_MAX, "s1"))
