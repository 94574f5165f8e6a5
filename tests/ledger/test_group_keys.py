"""What a request's group is called: its first image or its template, trimmed as AgentENV trims."""

from __future__ import annotations

import pytest

from scheduler.domain.placement import Hint, HintKind, ScheduleRequest
from scheduler.ledger.request_codec import group_key, request_arguments


def image(name: str) -> str:
    return group_key(ScheduleRequest(hint=Hint(HintKind.COLD_SANDBOX, images=(name,))))


@pytest.mark.parametrize("padding", [" ", "\t\n", "\x85", "\xa0", "\u2028", "\u3000"])
def test_white_space_around_a_name_is_no_part_of_it(padding: str) -> None:
    assert image(f"{padding}x{padding}") == "image:x"


@pytest.mark.parametrize("character", ["\x1c", "\x1f", "\u200b"])
def test_what_is_no_white_space_is_part_of_the_name(character: str) -> None:
    assert image(f"{character}x") == f"image:{character}x"
    template = ScheduleRequest(hint=Hint(HintKind.SANDBOX, template_id=f"{character}x"))
    # The group has its exact name; a template has one without control characters.
    kept = f"{character}x" if character == "\u200b" else ""
    assert request_arguments(template, 0)[3:5] == [kept, f"template:{character}x"]


def test_a_key_of_1024_bytes_groups_and_a_longer_one_does_not() -> None:
    assert len(image("é" * 509).encode()) == 1024
    assert image("é" * 509 + "x") == ""
