"""The common CPU template of several: what is kept, in which spelling, and what cannot be read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.service.cpu_config import UnreadableCpuConfig, intersect

Template = dict[str, Any]


def template(caps: Any = (), cpuid: Any = (), msrs: Any = ()) -> str:
    """`cpuid`: (leaf, subleaf, flags, {register: bitmap}); `msrs`: (addr, bitmap)."""
    return json.dumps(
        {
            "kvm_capabilities": list(caps),
            "cpuid_modifiers": [
                {
                    "leaf": leaf,
                    "subleaf": subleaf,
                    "flags": flags,
                    "modifiers": [{"register": name, "bitmap": bitmap} for name, bitmap in registers.items()],
                }
                for leaf, subleaf, flags, registers in cpuid
            ],
            "msr_modifiers": [{"addr": addr, "bitmap": bitmap} for addr, bitmap in msrs],
        }
    )


def common(*texts: str) -> Template:
    result: Template = json.loads(intersect(texts))
    return result


def test_nothing_in_nothing_out() -> None:
    assert intersect([]) == ""


def test_the_contracts_example() -> None:
    one = template(
        ["200", "134"],
        [("0x7", "0", 0, {"ebx": "0b11111010"}), ("0xb", "0", 1, {"eax": "0b1"})],
        [("0x10A", "0b1110")],
    )
    other = template(
        ["134"],
        [("0x07", "0x0", 0, {"ebx": "0b01101110", "ecx": "0b1"}), ("0xB", "0", 1, {"eax": "0b1"})],
        [("0x10a", "0b0111")],
    )
    assert common(one, other) == {
        "kvm_capabilities": ["134"],
        "cpuid_modifiers": [
            {
                "leaf": "0x7",
                "subleaf": "0",
                "flags": 0,
                "modifiers": [{"register": "ebx", "bitmap": "0b" + "0" * 24 + "01101010"}],
            }
        ],
        "msr_modifiers": [{"addr": "0x10A", "bitmap": "0b" + "0" * 60 + "0110"}],
    }


def test_members_come_in_one_order_and_empty_lists_are_lists() -> None:
    assert intersect(["{}"]) == '{"kvm_capabilities":[],"cpuid_modifiers":[],"msr_modifiers":[]}'
    assert intersect(['{"msr_modifiers": null, "unknown": {"x": 1}}']) == intersect(["{}"])


@pytest.mark.parametrize("leaf", ["0xb", "0x0B", "0x1f", "1F"])
def test_topology_leaves_go_even_when_only_one_node_speaks(leaf: str) -> None:
    assert common(template(cpuid=[(leaf, "0x0", 0, {"eax": "0b1"})]))["cpuid_modifiers"] == []


def test_flags_are_part_of_what_an_entry_is() -> None:
    one = template(cpuid=[("0x1", "0x0", 0, {"eax": "0b1"}), ("0x1", "0x0", 1, {"eax": "0b1"})])
    other = template(cpuid=[("0x1", "0x0", 1, {"eax": "0b1"})])
    assert [entry["flags"] for entry in common(one, other)["cpuid_modifiers"]] == [1]


def test_an_entry_without_common_registers_goes() -> None:
    one = template(cpuid=[("0x1", "0x0", 0, {"eax": "0b1"})])
    other = template(cpuid=[("0x1", "0x0", 0, {"ecx": "0b1"})])
    assert common(one, other)["cpuid_modifiers"] == []
    assert common(template(cpuid=[("0x1", "0x0", 0, {})]))["cpuid_modifiers"] == []


def test_order_and_spelling_are_the_first_ones() -> None:
    one = template(cpuid=[("0x80", "0x0", 0, {"eax": "0b1"}), ("0x1", "0x00", 0, {"eax": "0b1"})])
    other = template(cpuid=[("0x1", "0x0", 0, {"eax": "0b1"}), ("0x80", "0x0", 0, {"eax": "0b1"})])
    assert [entry["leaf"] for entry in common(one, other)["cpuid_modifiers"]] == ["0x80", "0x1"]
    assert common(one, other)["cpuid_modifiers"][1]["subleaf"] == "0x00"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{not json",
        "[]",
        "null",
        "[" * 100_000,
        '{"kvm_capabilities": [1]}',
        '{"kvm_capabilities": {}}',
        '{"cpuid_modifiers": [1]}',
        '{"cpuid_modifiers": [{"leaf": 1, "subleaf": "0x0", "flags": 0, "modifiers": []}]}',
        '{"cpuid_modifiers": [{"leaf": "0x1", "subleaf": "0x0", "flags": 0.5, "modifiers": []}]}',
        '{"cpuid_modifiers": [{"leaf": "0x1", "subleaf": "0x0", "flags": true, "modifiers": []}]}',
        template(cpuid=[("zz", "0x0", 0, {"eax": "0b1"})]),
        template(cpuid=[("0x1", "", 0, {"eax": "0b1"})]),
        template(cpuid=[("0x1", "0x0", 0, {"eax": "0b12"})]),
        template(cpuid=[("0x1", "0x0", 0, {"eax": "1"})]),
        template(cpuid=[("0x1", "0x0", 0, {"eax": "0b"})]),
        template(cpuid=[("0x1", "0x0", 0, {"eax": "0b1" + "0" * 32})]),
        template(msrs=[("0x10", "0b1" + "0" * 64)]),
        template(msrs=[("-1", "0b1")]),
    ],
)
def test_one_text_that_cannot_be_read_fails_the_whole(text: str) -> None:
    good = template(["134"])
    for texts in ([text], [good, text], [text, good]):
        with pytest.raises(UnreadableCpuConfig):
            intersect(texts)


_BITMAPS = st.integers(0, 2**32 - 1).map(lambda value: f"0b{value:b}")
_TEXTS = st.builds(
    template,
    st.lists(st.sampled_from(["9", "134", "200"])),
    st.lists(
        st.tuples(
            st.sampled_from(["0x1", "0x01", "0X7", "0xb"]),
            st.sampled_from(["0x0", "1"]),
            st.sampled_from([0, 1]),
            st.dictionaries(st.sampled_from(["eax", "ebx"]), _BITMAPS),
        ),
        max_size=4,
    ),
    st.lists(st.tuples(st.sampled_from(["0x10a", "0x10A", "0x3a"]), _BITMAPS), max_size=3),
)


@given(st.lists(_TEXTS, min_size=1, max_size=4))
def test_a_text_said_twice_changes_nothing(texts: list[str]) -> None:
    """This is why only one holder of each distinct text need be read."""
    assert intersect(texts) == intersect([*texts, *texts[::-1]])


@given(_TEXTS, _TEXTS)
def test_what_is_common_is_in_both(one: str, other: str) -> None:
    both = common(one, other)
    assert both == common(intersect([one, other]), one, other)
    assert set(both["kvm_capabilities"]) <= set(json.loads(other)["kvm_capabilities"])
