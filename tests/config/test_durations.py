"""Go's durations, as whole milliseconds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.domain.duration import format_duration, parse_duration_ms


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("30s", 30_000),
        ("1m30s", 90_000),
        ("500ms", 500),
        ("1h", 3_600_000),
        ("1.5h", 5_400_000),
        (".5s", 500),
        ("2.s", 2_000),
        ("0", 0),
        ("0s", 0),
        ("-30s", -30_000),
        ("+30s", 30_000),
        (" 30s ", 30_000),
        ("1h2m3s4ms", 3_723_004),
        ("1s1s", 2_000),
    ],
)
def test_go_forms_are_understood(text: str, expected_ms: int) -> None:
    assert parse_duration_ms(text) == expected_ms


@pytest.mark.parametrize("text", ["1us", "1µs", "1μs", "1ns", "0.4ms"])
def test_what_is_shorter_than_a_millisecond_is_not_rounded_to_nothing(text: str) -> None:
    assert parse_duration_ms(text) == 1


@pytest.mark.parametrize(
    "text", ["", " ", "30", "s", "30 s", "30S", "1d", "1,5s", "--1s", "٣s", "1e3s", "9" * 70 + "s"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a duration such as"):
        parse_duration_ms(text)


def test_a_duration_beyond_what_the_ledger_counts_is_refused() -> None:
    with pytest.raises(ValueError, match="a duration such as"):
        parse_duration_ms("99999999999999h")


@given(st.integers(min_value=-(10**12), max_value=10**12))
def test_what_is_written_reads_back_as_the_same(duration_ms: int) -> None:
    assert parse_duration_ms(format_duration(duration_ms)) == duration_ms
