"""What stands in for the ledger is called as the ledger is."""

from __future__ import annotations

import inspect

import pytest

from scheduler.store.ledger import Ledger
from tests.support.fake_ledger import FakeLedger, FakePart


def parameters(method: object) -> list[tuple[str, bool]]:
    """Their names, and which of them may be left out."""
    assert callable(method)
    return [(found.name, found.default is not found.empty) for found in inspect.signature(method).parameters.values()]


PARTS = [name for name, part in vars(FakeLedger()).items() if isinstance(part, FakePart)]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("backend", ["embedded"], indirect=True)
async def test_every_method_of_the_fake_ledger_is_one_of_the_ledger_with_its_parameters(
    part: str, ledger: Ledger
) -> None:
    real, fake = getattr(ledger, part), getattr(FakeLedger(), part)
    methods = [name for name, _ in inspect.getmembers(fake, inspect.ismethod) if not name.startswith("_")]
    assert methods
    for name in methods:
        assert parameters(getattr(fake, name)) == parameters(getattr(real, name, None)), f"{part}.{name}"
