"""Computes the CPU template that all nodes of a cluster support, so that a snapshot may move between them.

`intersect` keeps what every node offers: capabilities by name, CPUID entries by (leaf, subleaf, flags) with each
register's bitmap ANDed, MSRs by address likewise. Order and spelling follow the first text; a text equal in content
to an earlier one changes nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CPUID_BITS = 32
MSR_BITS = 64

# Topology leaves describe the host itself and cannot be common.
DROPPED_LEAVES = frozenset({0xB, 0x1F})

_HEX = re.compile(r"(?:0[xX])?([0-9a-fA-F]{1,16})")
_BITMAP = re.compile(r"0b([01]+)")

CpuidIdentity = tuple[int, int, int]


class UnreadableCpuConfig(ValueError):
    """A text that is not a CPU template; the message says where."""


@dataclass(slots=True)
class _CpuidEntry:
    """`registers` maps a register to its bitmap, in the order they were listed."""

    leaf: str
    subleaf: str
    flags: int
    registers: dict[str, int]


@dataclass(slots=True)
class _Msr:
    address: str
    bitmap: int


@dataclass(slots=True)
class _Template:
    capabilities: set[str]
    cpuid: dict[CpuidIdentity, _CpuidEntry]
    msrs: dict[int, _Msr]


def intersect(texts: Sequence[str]) -> str:
    """The common template as compact JSON; "" for no texts.

    Raises UnreadableCpuConfig (a ValueError) when one cannot be read: a template computed from some of the nodes
    could name features that the others lack."""
    if not texts:
        return ""
    common, *others = (_read(text) for text in texts)
    for other in others:
        _narrow(common, other)
    return _written(common)


def _narrow(common: _Template, other: _Template) -> None:
    common.capabilities &= other.capabilities
    for identity in list(common.cpuid):
        theirs = other.cpuid.get(identity)
        if theirs is None:
            del common.cpuid[identity]
            continue
        entry = common.cpuid[identity]
        entry.registers = {
            register: bitmap & theirs.registers[register]
            for register, bitmap in entry.registers.items()
            if register in theirs.registers
        }
    for address in list(common.msrs):
        their_msr = other.msrs.get(address)
        if their_msr is None:
            del common.msrs[address]
        else:
            common.msrs[address].bitmap &= their_msr.bitmap


def _written(template: _Template) -> str:
    return json.dumps(
        {
            "kvm_capabilities": sorted(template.capabilities),
            "cpuid_modifiers": [
                {
                    "leaf": entry.leaf,
                    "subleaf": entry.subleaf,
                    "flags": entry.flags,
                    "modifiers": [
                        {"register": register, "bitmap": f"0b{bitmap:0{CPUID_BITS}b}"}
                        for register, bitmap in entry.registers.items()
                    ],
                }
                for (leaf, _, _), entry in template.cpuid.items()
                if leaf not in DROPPED_LEAVES and entry.registers
            ],
            "msr_modifiers": [
                {"addr": msr.address, "bitmap": f"0b{msr.bitmap:0{MSR_BITS}b}"} for msr in template.msrs.values()
            ],
        },
        separators=(",", ":"),
        ensure_ascii=False,
    )


# ── reading ──────────────────────────────────────────────────────────────────


def _read(text: str) -> _Template:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableCpuConfig(f"not JSON: {error}") from error
    if not isinstance(document, dict):
        raise UnreadableCpuConfig("not a JSON object")
    template = _Template(set(), {}, {})
    for index, name in enumerate(_list(document, "kvm_capabilities")):
        if not isinstance(name, str):
            raise UnreadableCpuConfig(f"kvm_capabilities.{index} is no text")
        template.capabilities.add(name)
    for index, modifier in enumerate(_list(document, "cpuid_modifiers")):
        _add_cpuid(template, modifier, f"cpuid_modifiers.{index}")
    for index, modifier in enumerate(_list(document, "msr_modifiers")):
        _add_msr(template, modifier, f"msr_modifiers.{index}")
    return template


def _add_cpuid(template: _Template, modifier: Any, where: str) -> None:
    """Entries that a text lists twice are ANDed, so that equal texts give equal templates."""
    fields = _object(modifier, where)
    leaf, subleaf = _text(fields, "leaf", where), _text(fields, "subleaf", where)
    flags = fields.get("flags", 0)
    if type(flags) is not int:
        raise UnreadableCpuConfig(f"{where}.flags is no integer")
    identity = (_hex(leaf, f"{where}.leaf"), _hex(subleaf, f"{where}.subleaf"), flags)
    entry = template.cpuid.setdefault(identity, _CpuidEntry(leaf, subleaf, flags, {}))
    for index, register in enumerate(_list(fields, "modifiers", where)):
        place = f"{where}.modifiers.{index}"
        about = _object(register, place)
        name = _text(about, "register", place)
        bitmap = _bitmap(_text(about, "bitmap", place), CPUID_BITS, f"{place}.bitmap")
        entry.registers[name] = entry.registers.get(name, bitmap) & bitmap


def _add_msr(template: _Template, modifier: Any, where: str) -> None:
    fields = _object(modifier, where)
    address = _text(fields, "addr", where)
    bitmap = _bitmap(_text(fields, "bitmap", where), MSR_BITS, f"{where}.bitmap")
    msr = template.msrs.setdefault(_hex(address, f"{where}.addr"), _Msr(address, bitmap))
    msr.bitmap &= bitmap


def _typed(kind: type, expected: str) -> Callable[[Any, str], Any]:
    def check(value: Any, where: str) -> Any:
        if not isinstance(value, kind):
            raise UnreadableCpuConfig(f"{where} is no {expected}")
        return value

    return check


_object: Callable[[Any, str], Mapping[str, Any]] = _typed(dict, "object")


def _text(fields: Mapping[str, Any], name: str, where: str) -> str:
    value: str = _typed(str, "text")(fields.get(name), f"{where}.{name}")
    return value


def _list(fields: Mapping[str, Any], name: str, where: str = "") -> Sequence[Any]:
    """Absent and null count as empty, as Go writes empty lists."""
    value: list[Any] = _typed(list, "list")(
        [] if fields.get(name) is None else fields[name], f"{where}.{name}".strip(".")
    )
    return value


def _hex(text: str, where: str) -> int:
    matched = _HEX.fullmatch(text)
    if matched is None:
        raise UnreadableCpuConfig(f"{where} is no hexadecimal number")
    return int(matched[1], 16)


def _bitmap(text: str, bits: int, where: str) -> int:
    matched = _BITMAP.fullmatch(text)
    value = int(matched[1], 2) if matched else 1 << bits
    if value >> bits:
        raise UnreadableCpuConfig(f"{where} is no bitmap of at most {bits} bits")
    return value
