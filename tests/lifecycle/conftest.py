"""One cluster a test, on the embedded ledger and on a real server, and sound at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from scheduler.ledger.ledger import Ledger
from scheduler.service import Services
from tests.lifecycle.cluster import Cluster
from tests.support.clock import VirtualClock
from tests.support.recount import assert_ledger_is_sound


@pytest.fixture
async def cluster(services: Services, ledger: Ledger, clock: VirtualClock) -> AsyncIterator[Cluster]:
    """No node yet. Whatever a test does, the ledger must agree with a recount of itself in the end."""
    yield Cluster(services, clock, ledger)
    await assert_ledger_is_sound(ledger)
