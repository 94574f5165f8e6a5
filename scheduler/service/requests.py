"""Validates what gateways ask: placement requests and their hints."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

from scheduler.domain.limits import (
    BATCH_MAX,
    EXCLUDED_NODES_MAX,
    LOCALITY_KEYS_MAX,
    SAFE_INTEGER_MAX,
    SANDBOX_CPU_MAX,
    SANDBOX_MEMORY_BYTES_MAX,
    SANDBOX_MEMORY_MB_MAX,
    TEXT_BYTES_MAX,
)
from scheduler.domain.placement import BatchRequest, Hint, ScheduleRequest
from scheduler.domain.resources import DISK
from scheduler.errors import FieldError, InvalidRequest, SizeOutOfBounds
from scheduler.service.checks import (
    clean_id,
    clean_idempotency_key,
    clean_require,
    clean_resources,
    clean_spread,
    clean_text,
    clean_ttl_ms,
    encodable,
    refuse,
    trim,
    whole_number,
)

_CANONICAL_TEMPLATE_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def clean_schedule_request(request: ScheduleRequest) -> ScheduleRequest:
    """The request with trimmed ids and every number checked.

    Without a hint nothing is reserved, so an idempotency key or sandbox id is dropped."""
    if len(request.exclude_nodes) > EXCLUDED_NODES_MAX:
        raise refuse("exclude_nodes", request.exclude_nodes, f"at most {EXCLUDED_NODES_MAX} node ids")
    if request.reservation_ttl_ms is not None:
        clean_ttl_ms("reservation_ttl", request.reservation_ttl_ms)
    if request.hint is not None and request.idempotency_key is not None:
        clean_idempotency_key("Idempotency-Key", request.idempotency_key)
    clean_text("request_id", request.request_id)
    hint = None if request.hint is None else clean_hint(request.hint)
    exclude_nodes: tuple[str, ...] = ()
    if request.exclude_nodes:
        excluded = (clean_id(f"exclude_nodes.{index}", node_id) for index, node_id in enumerate(request.exclude_nodes))
        exclude_nodes = tuple(dict.fromkeys(excluded))
    caller = clean_id("caller", request.caller)
    sandbox_id = None
    if hint is not None and request.sandbox_id is not None:
        sandbox_id = clean_id("sandbox_id", request.sandbox_id)
    cleaned = (hint, exclude_nodes, caller, sandbox_id)
    if hint is not None and cleaned == (request.hint, request.exclude_nodes, request.caller, request.sandbox_id):
        return request  # nearly always: copying a request costs more than checking it
    return replace(
        request,
        hint=hint,
        exclude_nodes=exclude_nodes,
        idempotency_key=None if hint is None else request.idempotency_key,
        caller=caller,
        sandbox_id=sandbox_id,
    )


def clean_batch_request(batch: BatchRequest) -> BatchRequest:
    """The batch with every request checked; all of them are creations, and no two have the same sandbox id."""
    if not 1 <= len(batch.requests) <= BATCH_MAX:
        raise refuse("requests", f"{len(batch.requests)} creations", f"1 to {BATCH_MAX} creations")
    if batch.idempotency_key is not None:
        clean_idempotency_key("Idempotency-Key", batch.idempotency_key)
    requests: list[ScheduleRequest] = []
    for index, request in enumerate(batch.requests):
        if request.hint is None:
            raise refuse(f"requests.{index}.hint", None, "a hint: a batch creates sandboxes")
        # Most are alike: what was cleaned once is not cleaned again.
        alike = index > 0 and request == batch.requests[index - 1]
        requests.append(requests[-1] if alike else clean_schedule_request(request))
    named = [request.sandbox_id for request in requests if request.sandbox_id is not None]
    twice = next((name for name, count in Counter(named).items() if count > 1), None)
    if twice is not None:
        raise refuse("requests", f"sandbox_id {twice!r} twice", "different sandbox ids")
    return replace(batch, requests=tuple(requests))


def clean_hint(hint: Hint) -> Hint:
    """Sizes are checked and locality keys cleaned. Images, template id and metadata stay unchanged: groups are named
    by their exact text, and a key too long for a group makes no group."""
    sandbox_size("hint.cpu_count", hint.cpu_count, SANDBOX_CPU_MAX)
    sandbox_size("hint.memory_mb", hint.memory_mb, SANDBOX_MEMORY_MB_MAX)
    for text in (*hint.images, hint.template_id, *hint.metadata, *hint.metadata.values()):
        encodable("hint", text)
    locality = clean_locality(hint.locality) if hint.locality else template_artifacts(hint.template_id)
    if hint.resources:
        clean_resources("hint.resources", hint.resources)
        for name, amount in hint.resources.items():
            most = SANDBOX_MEMORY_BYTES_MAX if name == DISK else SAFE_INTEGER_MAX
            whole_number(f"hint.resources.{name}", amount, most)
    require = clean_require("hint.require", hint.require) if hint.require else hint.require
    spread = None if hint.spread is None else clean_spread("hint.spread", hint.spread)
    if locality == hint.locality and require == hint.require and spread == hint.spread:
        return hint
    return replace(hint, locality=locality, require=require, spread=spread)


def sandbox_size(field: str, value: int, most: int) -> int:
    """Raises SizeOutOfBounds, which scheduler.v1 answers with another status, for a size no sandbox may have."""
    try:
        return whole_number(field, value, most)
    except InvalidRequest as error:
        raise SizeOutOfBounds(error.detail, [FieldError(**each) for each in error.facts["errors"]]) from None


def template_artifacts(template_id: str) -> tuple[str, ...]:
    """The artifacts a node needs to start this template, when its id is a canonical snapshot id.

    AgentENV's nodes publish them under these keys; an alias names no artifact."""
    if not _CANONICAL_TEMPLATE_ID.fullmatch(template_id):
        return ()
    prefix = f"snapshot/v1/artifacts/{template_id}"
    return (f"{prefix}/vm_state.bin", f"{prefix}/firecracker-manifest.json")


def clean_locality(keys: tuple[str, ...]) -> tuple[str, ...]:
    """At most 32 keys, trimmed, without blanks and duplicates."""
    if len(keys) > LOCALITY_KEYS_MAX:
        error = FieldError("hint.locality", f"a list of {len(keys)}", f"at most {LOCALITY_KEYS_MAX} keys")
        raise InvalidRequest("too many locality requirements", [error])
    trimmed = dict.fromkeys(trim(key) for key in keys)
    return tuple(clean_text("hint.locality", key, most_bytes=TEXT_BYTES_MAX) for key in trimmed if key)
