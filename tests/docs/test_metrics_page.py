"""docs/metrics.md lists every metric that the code exposes, with its type and labels, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields

from scheduler.connection.client import StoreStatistics
from scheduler.observability.ledger_figures import LedgerFigures
from scheduler.observability.metrics import BUCKETS_SECONDS
from scheduler.service import Services, build_services
from tests.docs.commands import ROOT
from tests.support.embedded import unopened_ledger

ROW = re.compile(
    r"^\| `(?P<name>[a-z_]+)` \| (?P<type>[a-z]+) \|(?P<labels>[^|]*)\| (?P<meaning>[^|]+) \|$", re.MULTILINE
)


@dataclass(frozen=True)
class Family:
    """As it is scraped: a counter's name ends in `_total`."""

    name: str
    type: str
    labels: tuple[str, ...]


def services() -> Services:
    built = build_services(unopened_ledger())
    built.metrics.show(LedgerFigures(settings_revision=1))
    return built


def in_code() -> Iterator[Family]:
    for collector in services().metrics.registry._collector_to_names:
        for family in collector.collect():
            # A family that is made for a reading carries its labels itself; a counting one leaves them with its maker.
            labels = getattr(family, "_labelnames", None) or getattr(collector, "_labelnames", ())
            name = f"{family.name}_total" if family.type == "counter" else family.name
            yield Family(name, family.type, tuple(labels))


def in_docs() -> Iterator[Family]:
    for row in ROW.finditer((ROOT / "docs/metrics.md").read_text(encoding="utf-8")):
        assert row["meaning"].strip()
        yield Family(row["name"], row["type"], tuple(re.findall(r"`([a-z_]+)`", row["labels"])))


def test_the_page_lists_exactly_what_the_code_exposes() -> None:
    code, documented = sorted(in_code(), key=lambda each: each.name), sorted(in_docs(), key=lambda each: each.name)
    assert len(code) > 30
    assert documented == code


def test_every_name_on_the_page_is_a_metric() -> None:
    names = {family.name for family in in_code()}
    names |= {f"{family.name}_{part}" for family in in_code() for part in ("bucket", "count", "sum")}
    for path in (*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"):
        # The client's package is no metric.
        found = set(re.findall(r"\bagentenv_scheduler_(?!client\b)[a-z_]+", path.read_text(encoding="utf-8")))
        assert found <= names, f"{path.name} names metrics that do not exist"


def test_the_buckets_on_the_page_are_the_codes() -> None:
    text = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    assert " ".join(f"{bound:g}" for bound in BUCKETS_SECONDS) in text.replace("\n", " ")


def test_everything_a_client_of_the_ledger_counts_is_exported() -> None:
    statistics = StoreStatistics(**{each.name: 1000 + number for number, each in enumerate(fields(StoreStatistics))})
    built = services()
    built.metrics.watch_store("ledger", statistics)
    page = built.metrics.page().decode()
    for number, each in enumerate(fields(StoreStatistics)):
        assert f'{{client="ledger"}} {1000 + number}.0' in page, f"{each.name} is not exported"


def test_no_series_says_when_a_counter_was_made() -> None:
    built = services()
    built.metrics.count_replay("confirm")
    page = built.metrics.page().decode()
    assert 'agentenv_scheduler_replays_total{call="confirm"} 1.0' in page
    assert "_created" not in page
