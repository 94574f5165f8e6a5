"""Writes placement requests as the scripts take them; fingerprints, ids from idempotency keys, names of groups."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, astuple
from hashlib import blake2b
from typing import Any

import msgpack

from scheduler.domain import labels, resources
from scheduler.domain.placement import BatchRequest, HintKind, ScheduleRequest, Spread
from scheduler.domain.text import clean_id, trim

GROUP_KEY_BYTES_MAX = 1024
SPREAD_KEY_BYTES_MAX = 64
_LATER_MEMBERS = ("require", "resources")


def group_key(request: ScheduleRequest) -> str:
    """`image:<first image>` or `template:<id>`, trimmed; "" when the request belongs to no group."""
    hint = request.hint
    if hint is None:
        return ""
    if hint.kind is HintKind.COLD_SANDBOX:
        name, prefix = (hint.images[0] if hint.images else ""), "image:"
    else:
        name, prefix = hint.template_id, "template:"
    trimmed = trim(name)
    key = prefix + trimmed
    return key if trimmed and len(key.encode()) <= GROUP_KEY_BYTES_MAX else ""


def made_of(request: ScheduleRequest) -> tuple[str, str]:
    """The template of a request, and the group that what it is made of belongs to; "" when there is none."""
    template_id = "" if request.hint is None else request.hint.template_id
    # A text that can be no template's id names a group at most, and is not kept.
    return (clean_id(template_id) or "" if template_id else "", group_key(request))


def fingerprint(request: ScheduleRequest) -> str:
    """Equal for equal requests: a repeated Idempotency-Key must come with the same one."""
    hint = request.hint
    content: list[Any] = [
        request.lifecycle.value,
        request.reservation_ttl_ms,
        sorted(request.exclude_nodes),
        request.sandbox_id,
    ]
    if hint is not None:
        content += (hint.kind.value, hint.cpu_count, hint.memory_mb, hint.images, hint.template_id, hint.locality)
        content.append(sorted(hint.metadata.items()))
        # Requests without these keep the fingerprint they had before there were any.
        content += [(name, sorted(value.items())) for name in _LATER_MEMBERS if (value := getattr(hint, name))]
        if hint.spread is not None:
            content.append(("spread", *astuple(hint.spread)))
    return blake2b(msgpack.packb(content), digest_size=16).hexdigest()


def former_fingerprint(request: ScheduleRequest) -> str:
    """The same as versions before 0.2 wrote it; a key that came with it may be repeated as long as it is readable."""
    hint = None
    if request.hint is not None:
        hint = {**asdict(request.hint), "metadata": dict(request.hint.metadata)}
        hint = {name: value for name, value in hint.items() if value or name not in (*_LATER_MEMBERS, "spread")}
    content: list[Any] = [hint, request.lifecycle, request.reservation_ttl_ms, sorted(request.exclude_nodes)]
    if request.sandbox_id is not None:
        content.append(request.sandbox_id)
    return blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()


def batch_fingerprint(batch: BatchRequest) -> str:
    """Equal for equal batches."""
    each = {id(request): "" for request in batch.requests}
    for request in batch.requests:
        each[id(request)] = each[id(request)] or fingerprint(request)
    content = [batch.all_or_none, *(each[id(request)] for request in batch.requests)]
    return blake2b(json.dumps(content).encode(), digest_size=16).hexdigest()


def batch_id(caller: str, idempotency_key: str) -> str:
    """The same caller and key name the same batch on every replica; never the id of a single reservation."""
    name = f"{len(caller)}:{caller}{idempotency_key}".encode()
    return "b" + blake2b(name, digest_size=16).hexdigest()


def batch_arguments(batch: BatchRequest, base_id: str, entropy: int) -> list[str | int]:
    """The requests in the order of lua/schedule_batch: the different ones once, then each creation with its ids."""
    numbers: dict[int, int] = {}
    forms: list[str | int] = []
    creations: list[str | int] = []
    for index, request in enumerate(batch.requests):
        if id(request) not in numbers:
            numbers[id(request)] = len(numbers) + 1
            form = request_arguments(request, entropy)
            forms += (len(form), *form)
        creations += (f"{base_id}-{index}", request.sandbox_id or "", numbers[id(request)])
    return [len(numbers), *forms, len(batch.requests), *creations]


def keyed_reservation_id(caller: str, idempotency_key: str) -> str:
    """The same caller and key give the same reservation id on every replica."""
    name = f"{len(caller)}:{caller}{idempotency_key}".encode()
    return "k" + blake2b(name, digest_size=16).hexdigest()


def request_arguments(request: ScheduleRequest, entropy: int) -> list[str | int]:
    """A request in the order of lua/include/request."""
    hint = request.hint
    excluded = list(dict.fromkeys(request.exclude_nodes)) if request.exclude_nodes else []
    if hint is None:
        return ["ordinary", 0, 0, "", "", entropy, "", "", "", len(excluded), *excluded]
    kind = "cold" if hint.kind is HintKind.COLD_SANDBOX else "template"
    locality = list(dict.fromkeys(trim(key) for key in hint.locality if trim(key))) if hint.locality else []
    return [
        kind, hint.cpu_count, hint.memory_mb, *made_of(request), entropy,
        labels.written(hint.require), resources.written(hint.resources), _spread(hint.spread), len(excluded),
        *excluded, *locality,
    ]  # fmt: skip


def ordinary_arguments(form: Sequence[str | int]) -> tuple[str | int, ...]:
    """Of request_arguments what lua/schedule_sandboxes takes of an ordinary creation."""
    return (*form[:5], int(len(form) > 10))


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return ""
    bound, most = ("skew", spread.skew) if spread.max is None else ("max", spread.max)
    return f"{bound},{most},{spread.over},{spread_key(spread.key)}"


def spread_key(key: str) -> str:
    """The key as the ledger has it: records of sandboxes carry it, so a long one is replaced by a digest."""
    name = key.encode()
    return key if len(name) <= SPREAD_KEY_BYTES_MAX else "#" + blake2b(name, digest_size=16).hexdigest()
