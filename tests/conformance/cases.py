"""The case files and the list of deliberate deviations, read once."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CASES = HERE / "cases"
MAY_DEVIATE = frozenset({"known_weakness", "upstream_behaviour"})


@dataclass(frozen=True)
class Case:
    area: str
    name: str
    config: Mapping[str, Any]
    steps: tuple[Mapping[str, Any], ...]
    tags: frozenset[str]

    @property
    def id(self) -> str:
        return f"{self.area}/{self.name}"

    @property
    def faulty(self) -> bool:
        """Whether a step takes the store away."""
        return any(step["op"] == "fault" for step in self.steps)

    @property
    def heavy(self) -> bool:
        """Thousands of placements: run through one driver only."""
        return any(step.get("count", 0) > 1000 for step in self.steps if step["op"].startswith("schedule"))


def load_cases(directory: Path = CASES) -> tuple[Case, ...]:
    """Every case of every file. An area may be spread over files; names are unique in an area."""
    cases: dict[str, Case] = {}
    for path in sorted(directory.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        assert document["schema_version"] == 1, path
        for entry in document["cases"]:
            case = Case(
                area=document["area"],
                name=entry["name"],
                config=entry["config"],
                steps=tuple(entry["steps"]),
                tags=frozenset(entry.get("tags", ())),
            )
            assert case.id not in cases, f"{path.name}: {case.id} exists already"
            cases[case.id] = case
    return tuple(cases.values())


def load_deviations(path: Path = HERE / "deviations.toml") -> dict[str, str]:
    """Case id → why we do otherwise."""
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("deviation", [])
    deviations = {f"{entry['area']}/{entry['case']}": entry["reason"] for entry in entries}
    assert len(deviations) == len(entries), "a case is listed twice"
    return deviations
