"""Reading a sandbox API request as AgentENV's gateway does, and leniently."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scheduler.domain.placement import Hint, HintKind
from scheduler.service.hints import BODY_BYTES_MAX, HintService

SHARED_CASES = Path(__file__).parents[3].parent / "shared" / "cases" / "hints.json"
COLD = "/sandboxes-cold"
NOTHING = Hint(HintKind.COLD_SANDBOX)
hints = HintService()


def strictly(body: str, path: str = COLD) -> Hint:
    """What the gateway would read."""
    hint = hints.read("POST", path, body, strict=True).hint
    assert hint is not None
    return hint


def leniently(body: str, path: str = COLD) -> tuple[Hint, int]:
    """The lenient hint, and of how many things it warned."""
    reading = hints.read("POST", path, body)
    assert reading.hint is not None
    return reading.hint, len(reading.warnings)


@pytest.mark.skipif(not SHARED_CASES.exists(), reason="the shared conformance cases are not beside this checkout")
def test_the_shared_cases_come_out_as_stated() -> None:
    for case in json.loads(SHARED_CASES.read_text("utf-8"))["cases"]:
        for step in case["steps"]:
            body = step["body"]
            if isinstance(body, dict):
                body = body["prefix"] + body["fill"] * body["fill_count"] + body["suffix"]
            hint = hints.read(step["method"], step["path"], body, strict=True).hint
            expected = step["expect_hint"]
            found = None if hint is None else _as_case(hint)
            assert (found is None) == (expected is None), case["name"]
            if found is not None:
                assert {name: found[name] for name in expected} == expected, case["name"]


def _as_case(hint: Hint) -> dict[str, Any]:
    return {
        "kind": {HintKind.COLD_SANDBOX: "cold", HintKind.SANDBOX: "template"}[hint.kind],
        "cpu": hint.cpu_count,
        "memory_mb": hint.memory_mb,
        "images": list(hint.images),
        "template_id": hint.template_id,
        "metadata": dict(hint.metadata),
    }


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("POST", "/sandboxes-cold", HintKind.COLD_SANDBOX),
        ("POST", "/sandboxes-cold///", HintKind.COLD_SANDBOX),
        ("POST", "/sandboxes", HintKind.SANDBOX),
        ("POST", "/sandboxes/", HintKind.SANDBOX),
        ("POST", "/sandboxes?team=1", HintKind.SANDBOX),
        ("post", "/sandboxes", None),
        ("PUT", "/sandboxes", None),
        ("GET", "/sandboxes-cold", None),
        ("POST", "//sandboxes", None),
        ("POST", "/v2/sandboxes", None),
        ("POST", "/sandboxes/s1/fork", None),
        ("POST", "/Sandboxes", None),
        ("POST", "sandboxes", None),
        ("POST", "/", None),
        ("POST", "", None),
    ],
)
def test_method_and_path_alone_decide_the_kind(method: str, path: str, kind: HintKind | None) -> None:
    for body in ("", "nonsense", "{}"):
        hint = hints.read(method, path, body).hint
        assert (None if hint is None else hint.kind) == kind


def test_images_are_the_root_image_then_the_drives_in_order_without_empty_ones() -> None:
    body = {
        "attachedDrives": [
            {"source": {"image": "d1"}},
            {"source": {"image": ""}},
            {"source": {}},
            {},
            None,
            {"source": None},
            {"source": {"image": None}},
            {"source": {"image": "d2", "size": 3}, "readOnly": True},
        ],
        "image": "root",
    }
    assert strictly(json.dumps(body)).images == ("root", "d1", "d2")
    assert strictly('{"image": "", "attachedDrives": [{"source": {"image": "d"}}]}').images == ("d",)


def test_values_are_not_trimmed() -> None:
    assert strictly('{"image": " i ", "metadata": {" k ": " v "}}') == Hint(
        HintKind.COLD_SANDBOX, images=(" i ",), metadata={" k ": " v "}
    )


@pytest.mark.parametrize("literal", ["4294967295", "0", "007"[2:]])
def test_whole_numbers_within_32_bits_are_cpu_counts(literal: str) -> None:
    assert strictly(f'{{"cpuCount": {literal}}}').cpu_count == int(literal)


def test_memory_may_use_64_bits() -> None:
    assert strictly(f'{{"memoryMB": {2**64 - 1}}}').memory_mb == 2**64 - 1
    assert strictly(f'{{"image": "i", "memoryMB": {2**64}}}') == NOTHING


@pytest.mark.parametrize(
    "member",
    [
        '"cpuCount": -1',
        '"cpuCount": -0',
        '"cpuCount": 2.5',
        '"cpuCount": 2.0',
        '"cpuCount": 1e1',
        '"cpuCount": 4294967296',
        '"cpuCount": "2"',
        '"cpuCount": true',
        '"cpuCount": []',
        '"memoryMB": -5',
        '"memoryMB": 1e3',
        '"memoryMB": 1' + "0" * 5_000,
        '"image": 7',
        '"image": ["i"]',
        '"metadata": []',
        '"metadata": "text"',
        '"metadata": {"n": 1}',
        '"metadata": {"n": {}}',
        '"attachedDrives": {}',
        '"attachedDrives": "d"',
        '"attachedDrives": [1]',
        '"attachedDrives": [{"source": "d"}]',
        '"attachedDrives": [{"source": {"image": 1}}]',
    ],
)
def test_one_wrong_member_empties_the_strict_hint_and_loses_only_itself_leniently(member: str) -> None:
    body = f'{{"image": "kept", {member}, "metadata": {{"k": "v"}}}}'
    assert strictly(body) == NOTHING
    hint, warnings = leniently(body)
    assert hint.images == ("kept",)
    assert hint.metadata["k"] == "v"
    assert (hint.cpu_count, hint.memory_mb) == (0, 0)
    assert warnings == 1


@pytest.mark.parametrize(
    "body",
    [
        "{",
        '{"image": "i"} x',
        '{"image": "i"}{}',
        '{"image": "i",}',
        "{'image': 'i'}",
        '{"image": "i", "x": NaN}',
        '{"image": "i", "x": Infinity}',
        '{"image": "i", "x": 01}',
        '{"image": "i", "x": "\t"}',
        '{"image": "i", "x": "\\x"}',
        '\ufeff{"image": "i"}',
        "[]",
        '"text"',
        "7",
        "true",
        " ",
        "[" * 60_000,
    ],
)
def test_what_is_not_one_json_object_empties_both_readings(body: str) -> None:
    assert strictly(body) == NOTHING
    assert leniently(body) == (NOTHING, 1)


@pytest.mark.parametrize("body", ["", "null", " {} ", '\n{"unknown": {"cpuCount": "x"}}\t'])
def test_nothing_said_is_nothing_wrong(body: str) -> None:
    assert strictly(body) == NOTHING
    assert leniently(body) == (NOTHING, 0)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"IMAGE": "i", "cpucount": 2, "MEMORYmb": 3}', Hint(HintKind.COLD_SANDBOX, 2, 3, ("i",))),
        # Two letters beyond ASCII fold to one within: the long s and the Kelvin sign.
        ('{"attachedDrive\u017f": [{"\u017fource": {"image": "d"}}]}', Hint(HintKind.COLD_SANDBOX, images=("d",))),
        ('{"\\u0069mage": "i"}', Hint(HintKind.COLD_SANDBOX, images=("i",))),
        ('{"im\u0131ge": "i"}', NOTHING),
    ],
)
def test_member_names_match_without_regard_to_case(body: str, expected: Hint) -> None:
    assert strictly(body) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"cpuCount": 1, "CPUCOUNT": 2}', Hint(HintKind.COLD_SANDBOX, 2)),
        ('{"cpuCount": 1, "cpuCount": null}', Hint(HintKind.COLD_SANDBOX, 1)),
        ('{"image": "a", "image": "b"}', Hint(HintKind.COLD_SANDBOX, images=("b",))),
        (
            '{"metadata": {"a": "1"}, "metadata": {"b": "2"}}',
            Hint(HintKind.COLD_SANDBOX, metadata={"a": "1", "b": "2"}),
        ),
        ('{"metadata": {"a": "1"}, "metadata": null}', NOTHING),
        ('{"metadata": {"a": null, "b": "1", "b": "2"}}', Hint(HintKind.COLD_SANDBOX, metadata={"a": "", "b": "2"})),
        (
            '{"attachedDrives": [{"source": {"image": "a"}}, {"source": {"image": "b"}}], "attachedDrives": [{}]}',
            Hint(HintKind.COLD_SANDBOX, images=("a",)),
        ),
        ('{"attachedDrives": [{"source": {"image": "a"}}], "attachedDrives": null}', NOTHING),
        ('{"image": null, "cpuCount": null, "metadata": null, "attachedDrives": null}', NOTHING),
    ],
)
def test_repeated_members_and_null_are_read_as_go_reads_them(body: str, expected: Hint) -> None:
    assert strictly(body) == expected
    assert leniently(body) == (expected, 0)


def test_half_a_surrogate_pair_becomes_the_replacement_character() -> None:
    body = '{"image": "\\ud83d\\ude00 \\ud800", "metadata": {"\\udc00": "v"}}'
    assert strictly(body) == Hint(HintKind.COLD_SANDBOX, images=("\U0001f600 \ufffd",), metadata={"\ufffd": "v"})


def test_a_template_request_is_read_for_template_and_metadata_alone() -> None:
    body = '{"templateID": "base", "metadata": {"k": "v"}, "cpuCount": -1, "image": 7}'
    assert strictly(body, "/sandboxes") == Hint(HintKind.SANDBOX, template_id="base", metadata={"k": "v"})
    wrong = '{"templateID": 7, "metadata": {"k": "v"}}'
    assert strictly(wrong, "/sandboxes") == Hint(HintKind.SANDBOX)
    assert leniently(wrong, "/sandboxes") == (Hint(HintKind.SANDBOX, metadata={"k": "v"}), 1)


@pytest.mark.parametrize(("size", "read"), [(BODY_BYTES_MAX, True), (BODY_BYTES_MAX + 1, False)])
@pytest.mark.parametrize("filler", ["a", "ü"])
def test_a_body_is_read_up_to_its_bound_counted_in_bytes(size: int, read: bool, filler: str) -> None:
    frame = '{"image":"i","pad":""}'
    room = size - len(frame)
    padding = filler * (room // len(filler.encode()))
    padding += "a" * (room - len(padding.encode()))
    body = frame.replace('""', f'"{padding}"')
    assert len(body.encode()) == size
    for strict in (True, False):
        reading = hints.read("POST", COLD, body, strict)
        assert reading.hint is not None
        assert reading.hint.images == (("i",) if read else ())
        assert bool(reading.warnings) is not read


def test_a_body_given_as_a_value_is_the_text_a_client_would_have_sent() -> None:
    assert HintService.body_text({"image": "ü", "cpuCount": 2}) == '{"image":"ü","cpuCount":2}'
    assert strictly(HintService.body_text({"cpuCount": 2.0})) == NOTHING


def test_the_service_decides_how_to_read_when_the_caller_does_not() -> None:
    body = '{"image": "i", "cpuCount": -1}'
    strict = HintService(lenient=False).read("POST", COLD, body).hint
    lenient = HintService(lenient=False).read("POST", COLD, body, strict=False).hint
    assert strict == NOTHING
    assert lenient == Hint(HintKind.COLD_SANDBOX, images=("i",))
