"""Every case, through every driver, on the embedded and on a real server."""

from __future__ import annotations

import importlib
import json
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


def _parameter(case: Case) -> ParameterSet:
    return pytest.param(case, id=case.id, marks=[pytest.mark.slow, pytest.mark.timeout(900)] if case.heavy else [])


@pytest.mark.parametrize("driver_name", DRIVERS)
@pytest.mark.parametrize("case", [_parameter(case) for case in ALL_CASES])
async def test_case_comes_out_as_stated(case: Case, driver_name: str, backend: Backend) -> None:
    if case.heavy and driver_name != "services":
        pytest.skip("thousands of placements: the wire adds nothing but time")
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
