"""Every short life of callers, sandboxes and reports: the rules keep their promises, the earlier ones break them.

`make test` looks at some thousand states of each search; `make soak` at a hundred times as many. `-s` prints the
bounds and the stories.
"""

from __future__ import annotations

import pytest

from tests.support.accounting.bounds import FAULTS, SEARCHES, Fault
from tests.support.accounting.rules import NEXT
from tests.support.accounting.search import search
from tests.support.accounting.world import Features

BRIEF, LONG = 2_000, 400_000
STORIES = 60_000


@pytest.mark.parametrize("features", SEARCHES, ids=str)
def test_the_rules_hold_in_every_short_story(features: Features) -> None:
    _holds(features, BRIEF)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("features", SEARCHES, ids=str)
def test_the_rules_hold_in_every_longer_story(features: Features) -> None:
    _holds(features, LONG)


def _holds(features: Features, states: int) -> None:
    found = search(features, NEXT, states)
    print(found)
    assert found.fault is None, str(found)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.names)
def test_an_earlier_rule_is_caught_by_its_shortest_story(fault: Fault) -> None:
    found = search(fault.features, fault.rules, STORIES)
    print(found)
    assert found.fault is not None, str(found)
    assert found.fault.startswith(fault.breaks), str(found)
    assert found.steps[-1].startswith(fault.last_step), str(found)
