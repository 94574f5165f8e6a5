"""Every case, through every driver on a real server, and through the services on the embedded ledger.

A wire never learns which ledger is behind the services, so each is tried on one of them."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from tests.conformance.cases import CASES, MAY_DEVIATE, Case, load_cases, load_deviations
from tests.conformance.driver import Driver
from tests.conformance.runner import CaseFailed, Runner
from tests.conformance.world import World, case_settings
from tests.support.backends import Backend

# Where each wire's driver lives: a module with a class that is built from a World.
DRIVERS = {
    "services": ("tests.conformance.drivers.services_driver", "ServicesDriver"),
    "http": ("tests.conformance.drivers.http_driver", "HttpDriver"),
    "grpc": ("tests.conformance.drivers.grpc_driver", "GrpcDriver"),
}
COMBINATIONS = [("services", "embedded"), *((driver, "real") for driver in DRIVERS)]
ALL_CASES = load_cases()
DEVIATIONS = load_deviations()
SHARED_CASES = Path(__file__).parents[3] / "shared" / "cases"


async def run_case(case: Case, driver_name: str, backend: Backend) -> None:
    module, class_name = DRIVERS[driver_name]
    try:
        settings = case_settings(case.area, case.name, case.config)
    except ValueError as refusal:
        raise CaseFailed(f"{case.id}: its configuration is refused: {refusal}") from refusal
    world = await World.create(backend, settings, with_switch=case.faulty)
    try:
        driver: Driver = getattr(importlib.import_module(module), class_name)(world)
        await driver.start()
        try:
            await Runner(case, driver, world).run()
        finally:
            await driver.close()
    finally:
        await world.close()


def _parameters() -> Iterator[ParameterSet]:
    for case in ALL_CASES:
        marks = [pytest.mark.slow, pytest.mark.timeout(900)] if case.heavy else []
        for driver_name, ledger in COMBINATIONS:
            # Thousands of placements: the wire adds nothing but time, and the embedded ledger takes too much of it.
            if not case.heavy or (driver_name, ledger) == ("services", "real"):
                yield pytest.param(ledger, case, driver_name, id=f"{ledger}-{case.id}-{driver_name}", marks=marks)


@pytest.mark.parametrize(("backend", "case", "driver_name"), [*_parameters()], indirect=["backend"])
async def test_case_comes_out_as_stated(case: Case, driver_name: str, backend: Backend) -> None:
    if case.id not in DEVIATIONS:
        await run_case(case, driver_name, backend)
        return
    with pytest.raises(CaseFailed):  # listed as deviating, so it must deviate
        await run_case(case, driver_name, backend)


@pytest.mark.parametrize("case_id", DEVIATIONS)
def test_a_deviation_is_allowed_and_says_why(case_id: str) -> None:
    case = next((case for case in ALL_CASES if case.id == case_id), None)
    assert case is not None, f"{case_id} is no case"
    assert case.tags & MAY_DEVIATE, f"{case_id} carries no tag that allows a deviation"
    assert len(DEVIATIONS[case_id]) > 40, "a reason is a sentence"


@pytest.mark.skipif(not SHARED_CASES.is_dir(), reason="the shared cases are not beside this checkout")
def test_the_shared_cases_are_taken_over_unchanged() -> None:
    for path in sorted(SHARED_CASES.glob("*.json")):
        ours = json.loads((CASES / path.name).read_text(encoding="utf-8"))
        assert ours == json.loads(path.read_text(encoding="utf-8")), path.name
