"""The scripts follow the model: a sample of its stories told to both ledgers, compared after each call."""

from __future__ import annotations

import itertools

import pytest

from tests.support.accounting.bounds import SEARCHES
from tests.support.accounting.follow import SETTINGS, follow, walk
from tests.support.accounting.world import Features
from tests.support.backends import Backend, put_settings
from tests.support.clock import VirtualClock

FOLLOWED = tuple(
    features
    for features in SEARCHES
    if features.sequences and not features.spaced and all(all(size) for size in features.sizes)
)
_domains = itertools.count()


async def tell(backend: Backend, features: Features, seeds: range) -> None:
    for seed in seeds:
        clock = VirtualClock()
        ledger = await backend.open(domain=f"story-{next(_domains)}", clock=clock)
        try:
            await put_settings(ledger, SETTINGS)
            await follow(features, ledger, clock, walk(features, seed, steps=30))
        finally:
            await ledger.close()


@pytest.mark.parametrize("features", FOLLOWED, ids=str)
async def test_both_ledgers_hold_and_believe_what_the_model_does(backend: Backend, features: Features) -> None:
    stories = 20 if features.restart else 6
    await tell(backend, features, range(stories if backend.name == "real" else 2))
