"""A strategy is one row of a table; what follows from it is asked of that row, never of the name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from scheduler.connection.scripts import find_folder
from scheduler.domain.placement import Strategy
from scheduler.domain.settings import GroupPlacement
from tests.support.servers import RedisServer

LUA = find_folder()
TABLE = LUA / "include" / "strategies.lua"
POOLS = LUA / "include" / "pools.lua"
PACKAGE = Path(__file__).resolve().parents[2] / "scheduler"
# Where requests enter the domain, and where a tool chooses one for its own purpose.
EDGE = PACKAGE / "domain" / "placement.py"


def lines_of(folder: Path, pattern: str, *without: Path) -> Iterator[tuple[Path, str]]:
    for path in folder.rglob(pattern):
        if path not in without:
            yield from ((path, line) for line in path.read_text(encoding="utf-8").splitlines())


def test_no_script_asks_for_a_strategy_by_its_name() -> None:
    names = "|".join(strategy.value for strategy in Strategy)
    # A rotation is named after the strategy that turns it.
    asked = re.compile(rf"(?:[=~]=\s*|\bor\s+|\band\s+)['\"](?:{names})['\"]|['\"](?:{names})['\"]\s*[=~]=")
    found = [(path.name, line) for path, line in lines_of(LUA, "*.lua", TABLE) if asked.search(line)]
    assert not found
    assert asked.search(TABLE.read_text(encoding="utf-8")), "this test finds nothing any more"


def test_no_code_asks_for_a_strategy_by_its_name() -> None:
    asked = re.compile(r"(?:==|!=|\bis|\bis not|\bin)\s*[({\[]?\s*Strategy\.[A-Z]")
    assert not [(path.name, line) for path, line in lines_of(PACKAGE, "*.py", EDGE) if asked.search(line)]
    assert asked.search(EDGE.read_text(encoding="utf-8")), "this test finds nothing any more"


def test_no_script_but_the_table_of_pools_asks_for_a_pool_by_its_letter() -> None:
    asked = re.compile(r"\bpool\w*\)?\s*[=~]=\s*['\"][A-Za-z]['\"]")
    found = [(path.name, line) for path, line in lines_of(LUA, "*.lua", POOLS) if asked.search(line)]
    assert not found


def test_the_table_has_every_strategy_of_the_domain_and_its_traits(real_server: RedisServer) -> None:
    row = TABLE.read_text(encoding="utf-8") + (
        "local traits = strategy_traits(ARGV[1])\n"
        "if not traits then return nil end\n"
        "return { traits.by, traits.admits and 1 or 0, rotation_of_groups(ARGV[1]) and 1 or 0 }"
    )
    with real_server.client() as client:
        for strategy in Strategy:
            by, admits, opens_groups = client.eval(row, 0, strategy.value)
            assert (by == "group", admits == 1) == (strategy.forms_groups, strategy.admits), strategy
            assert (opens_groups == 1) == (strategy.value in list(GroupPlacement)), strategy
        assert client.eval(row, 0, "fastest") is None
