"""The comparison with version 0.1 measures placements of both versions, on a fleet that both took."""

from __future__ import annotations

import re

import pytest

from tests.lab.beside_old import compare
from tests.support.servers import RedisServer


async def test_both_versions_take_the_fleet_and_place_on_it(
    real_server: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    await compare(real_server.address, nodes=6, classes=2, rounds=1, calls=10, with_old=True)
    figures = re.findall(r"^ +6 nodes +2 classes  (.*?) {2,}([\d.]+) +([\d.]+)$", capsys.readouterr().out, re.MULTILINE)
    sizes = ["1 size", "16 sizes in turn", "1,000 random sizes"]
    assert [name for name, *_ in figures] == [*sizes, "64 in a batch", "refused, all full"]
    assert all(float(old) > 0 and float(new) > 0 for _, old, new in figures)
