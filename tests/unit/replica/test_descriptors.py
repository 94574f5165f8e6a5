"""How the descriptors of a process are shared out among its ports."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.config import Settings
from scheduler.config.groups import GrpcSettings, HttpSettings, MetricsSettings, ReplicaSettings, StoreSettings
from scheduler.replica.descriptors import port_limits

# 64 are kept back, 64 go to the metrics.
ROOM = 2_000


def shared(http: int | None = None, grpc: int | None = None, room: int = ROOM, **groups: object) -> tuple[int, int]:
    settings = replace(
        Settings(),
        http=HttpSettings(connections_max=http),
        grpc=GrpcSettings(connections_max=grpc),
        **groups,  # type: ignore[arg-type]  # named by the test
    )
    limits = port_limits(settings, descriptors=room + 128)
    return limits.http.connections_max, limits.grpc_connections_max


@pytest.mark.parametrize(
    ("http", "grpc", "shares"),
    [
        (None, None, (1_000, 1_000)),
        (300, None, (300, 1_700)),
        (None, 300, (1_700, 300)),
        (300, 400, (300, 400)),
        (5_000, 400, (1_600, 400)),
        (5_000, 5_000, (1_000, 1_000)),
    ],
)
def test_neither_listener_pushes_the_other_below_half(
    http: int | None, grpc: int | None, shares: tuple[int, int]
) -> None:
    assert shared(http, grpc) == shares


def test_with_descriptors_for_both_each_has_ten_thousand() -> None:
    assert shared(room=100_000) == (10_000, 10_000)


def test_the_ledger_and_the_metrics_come_first() -> None:
    assert shared(store=StoreSettings(redis_addr="a:1", pool_size=200)) == (900, 900)
    assert shared(metrics=MetricsSettings(enabled=False)) == (1_032, 1_032)


def test_a_listener_that_is_off_leaves_its_share() -> None:
    assert shared(replica=ReplicaSettings(query_only=True)) == (0, ROOM)
    settings = replace(Settings(), grpc=GrpcSettings(enabled=False))
    assert port_limits(settings, descriptors=ROOM + 128).http.connections_max == ROOM


def test_a_handful_of_descriptors_still_lets_somebody_in() -> None:
    assert shared(room=0) == (32, 32)
