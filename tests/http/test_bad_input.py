"""Everything a caller can get wrong, each with the answer that says so. Nothing reaches the ledger."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, get_args

import httpx
import msgpack
import pytest
from pydantic import TypeAdapter

from scheduler.api.http import HttpOptions
from scheduler.api.http.fields import Body, duration_ms
from scheduler.api.http.media import decode
from scheduler.errors import InvalidRequest
from scheduler.ledger.ledger import Ledger
from scheduler.service import build_services
from tests.http.conftest import open_client
from tests.support.embedded import sent_to

JSON = {"Content-Type": "application/json"}
MSGPACK = {"Content-Type": "application/msgpack"}


def assert_field_error(answer: httpx.Response, field: str) -> None:
    assert answer.status_code == 422
    problem = answer.json()
    assert problem["code"] == "invalid_request"
    (error,) = [error for error in problem["errors"] if error["field"] == field]
    assert set(error) == {"field", "found", "allowed"}
    assert error["allowed"]


def bodies(model: type[Body] = Body) -> list[type[Body]]:
    return [each for below in model.__subclasses__() for each in (below, *bodies(below))]


# What members that must be there may hold.
NEEDED: dict[str, Any] = {
    "kind": "", "hint": {"kind": "sandbox"}, "method": "POST", "path": "/sandboxes", "ttl": "1s", "total": 1,
    "endpoint": "http://a:1", "event_type": "create", "events": [], "cpu_count": 1, "memory_mb": 1,
}  # fmt: skip


@pytest.mark.parametrize("model", bodies(), ids=lambda model: model.__name__)
@pytest.mark.parametrize("packed", [False, True])
def test_null_is_absent_wherever_a_member_may_be_absent(model: type[Body], packed: bool) -> None:
    def read(members: dict[str, Any]) -> Body:
        body = msgpack.packb(members) if packed else json.dumps(members).encode()
        read: Body = decode(TypeAdapter(model), body, packed)
        return read

    fields = model.model_fields
    needed = {name: NEEDED.get(name, "x") for name, field in fields.items() if field.is_required()}
    if "kind" in needed:
        (needed["kind"],) = get_args(fields["kind"].annotation)
    plain = read(needed)
    assert read({**needed, **dict.fromkeys(fields.keys() - needed.keys())}) == plain
    for name in needed:
        with pytest.raises(InvalidRequest) as refused:
            read({**needed, name: None})
        assert refused.value.facts["errors"][0]["field"] == name


@pytest.mark.parametrize(
    ("hint", "field"),
    [
        ({"cpu_count": -1}, "hint.cpu_count"),
        ({"cpu_count": 2**16 + 1}, "hint.cpu_count"),
        ({"cpu_count": "2"}, "hint.cpu_count"),
        ({"cpu_count": True}, "hint.cpu_count"),
        ({"cpu_count": 2.5}, "hint.cpu_count"),
        ({"cpu_count": [2]}, "hint.cpu_count"),
        ({"memory_mb": 2**24 + 1}, "hint.memory_mb"),  # 2**44 bytes are the most
        ({"memory_mb": 10**30}, "hint.memory_mb"),
        ({"images": "i"}, "hint.images"),
        ({"images": [1]}, "hint.images.0"),
        ({"metadata": {"n": 1}}, "hint.metadata.n"),
        ({"metadata": []}, "hint.metadata"),
        ({"gpu": 1}, "hint.gpu"),
        ({"template_id": "t"}, "hint.template_id"),
        ({"kind": "warm"}, "hint.kind"),
        ({"metadata": {"sandbox": 1}}, "hint.metadata.sandbox"),
        ({"sandbox": 1}, "hint.sandbox"),
        ({"kind": None}, "hint.kind"),
        ({"locality": [str(number) for number in range(33)]}, "hint.locality"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
async def test_a_bad_hint_names_its_field(
    embedded_api: httpx.AsyncClient, embedded_ledger: Ledger, hint: dict[str, Any], field: str, packed: bool
) -> None:
    body = {"hint": {"kind": "cold_sandbox", **hint}}
    if packed and hint.get("memory_mb") == 10**30:
        pytest.skip("MessagePack has no such number")
    if packed:
        headers = {**MSGPACK, "Accept": "application/json"}
        answer = await embedded_api.post("/v1/schedule", content=msgpack.packb(body), headers=headers)
    else:
        answer = await embedded_api.post("/v1/schedule", json=body)
    assert_field_error(answer, field)
    assert sent_to(embedded_ledger) == 0


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity", "1e400", "2.5", "-1.0", "4294967296.0"])
async def test_numbers_that_are_no_whole_numbers_are_refused(embedded_api: httpx.AsyncClient, token: str) -> None:
    body = f'{{"hint": {{"kind": "cold_sandbox", "cpu_count": {token}}}}}'
    answer = await embedded_api.post("/v1/schedule", content=body, headers=JSON)
    assert answer.status_code in {400, 422}


@pytest.mark.parametrize("token", ["2", "2.0", "0.2e1", "20e-1"])
async def test_json_has_one_kind_of_number(embedded_api: httpx.AsyncClient, token: str) -> None:
    await embedded_api.put("/v1/nodes/a", json={"endpoint": "http://a:1"})
    body = f'{{"hint": {{"kind": "cold_sandbox", "cpu_count": {token}}}}}'
    answer = await embedded_api.post("/v1/schedule", content=body, headers=JSON)
    assert answer.json()["reservation"]["cpu_count"] == 2


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"exclude_nodes": [f"n{number}" for number in range(65)]}, "exclude_nodes"),
        ({"exclude_nodes": [""]}, "exclude_nodes.0"),
        ({"exclude_nodes": ["a", "b\nc"]}, "exclude_nodes.1"),
        ({"exclude_nodes": "a"}, "exclude_nodes"),
        ({"reservation_ttl": "0s"}, "reservation_ttl"),
        ({"reservation_ttl": "-1s"}, "reservation_ttl"),
        ({"reservation_ttl": "24h0m0.001s"}, "reservation_ttl"),
        ({"reservation_ttl": "90"}, "reservation_ttl"),
        ({"reservation_ttl": "1m30"}, "reservation_ttl"),
        ({"reservation_ttl": 90}, "reservation_ttl"),
        ({"lifecycle": "forever"}, "lifecycle"),
        ({"hints": {}}, "hints"),
        ({"hint": {"kind": "sandbox", "spread": {"key": "k"}}}, "hint.spread"),
        ({"hint": {"kind": "sandbox", "spread": {"key": "k", "max": 1, "skew": 1}}}, "hint.spread"),
        ({"hint": {"kind": "sandbox", "spread": {"max": 1}}}, "hint.spread.key"),
        ({"hint": {"kind": "sandbox", "spread": {"key": "a\tb", "max": 1}}}, "hint.spread.key"),
        ({"hint": {"kind": "sandbox", "spread": {"key": "k", "max": 0}}}, "hint.spread.max"),
        ({"hint": {"kind": "sandbox", "spread": {"key": "k", "skew": "1"}}}, "hint.spread.skew"),
        ({"hint": {"kind": "sandbox", "spread": {"key": "k", "max": 1, "over": "a b"}}}, "hint.spread.over"),
        ({"request": {"method": "POST"}}, "request.path"),
        ({"request": {"method": "POST", "path": "/sandboxes", "strict": 1}}, "request.strict"),
    ],
)
async def test_a_bad_schedule_body_names_its_field(
    embedded_api: httpx.AsyncClient, body: dict[str, Any], field: str
) -> None:
    assert_field_error(await embedded_api.post("/v1/schedule", json=body), field)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (
            {"hint": {"kind": "warm", "cpu_count": 1}},
            {"field": "hint.kind", "found": "warm", "allowed": "one of 'cold_sandbox', 'sandbox'"},
        ),
        (
            {"hint": {"cpu_count": 1}},
            {"field": "hint.kind", "found": None, "allowed": "present: this field is required"},
        ),
        (
            {"hint": {"kind": "sandbox", "require": {"zone": 5}}},
            {"field": "hint.require.zone", "found": 5, "allowed": "text, or a list of texts"},
        ),
        (
            {"reservation_ttl": 90},
            {"field": "reservation_ttl", "found": 90, "allowed": "a duration such as 30s, 1m30s or 500ms"},
        ),
        (
            {"reservation_ttl": "0s"},
            {"field": "reservation_ttl", "found": "0s", "allowed": "a duration above 0 and at most 24h"},
        ),
        (
            {"reservation_ttl": "25h"},
            {"field": "reservation_ttl", "found": "25h", "allowed": "a duration above 0 and at most 24h"},
        ),
    ],
)
async def test_an_error_shows_what_was_sent_and_what_could_be(
    embedded_api: httpx.AsyncClient, body: dict[str, Any], error: dict[str, Any]
) -> None:
    assert (await embedded_api.post("/v1/schedule", json=body)).json()["errors"] == [error]


@pytest.mark.parametrize("body", [{}, {"exclude_nodes": [f"n{number}" for number in range(64)]}])
@pytest.mark.parametrize("ttl", ["24h", "1ms", "1.5h"])
async def test_the_bounds_themselves_are_allowed(
    embedded_api: httpx.AsyncClient, body: dict[str, Any], ttl: str
) -> None:
    await embedded_api.put("/v1/nodes/a", json={"endpoint": "http://a:1"})
    hint = {"kind": "cold_sandbox", "cpu_count": 2**16, "memory_mb": 2**24}
    answer = await embedded_api.post("/v1/schedule", json={**body, "hint": hint, "reservation_ttl": ttl})
    assert answer.status_code == 200


@pytest.mark.parametrize("ttl", ["1ns", "0.1us", "0.9ms"])
async def test_a_lifetime_under_a_millisecond_is_refused_not_rounded(embedded_api: httpx.AsyncClient, ttl: str) -> None:
    answer = await embedded_api.post("/v1/schedule", json={"hint": {"kind": "sandbox"}, "reservation_ttl": ttl})
    assert_field_error(answer, "reservation_ttl")
    assert_field_error(await embedded_api.post("/v1/reservations/r/renew", json={"ttl": ttl}), "ttl")


async def test_a_header_that_is_given_twice_is_refused(embedded_api: httpx.AsyncClient) -> None:
    body = {"hint": {"kind": "sandbox"}}
    for name, value in (("Idempotency-Key", b"k"), ("X-Request-Timeout", b"5s")):
        answer = await embedded_api.post("/v1/schedule", json=body, headers=[(name.encode(), value)] * 2)
        assert_field_error(answer, name)


@pytest.mark.parametrize("encoding", ["gzip", "br", "GZip", "identity, gzip"])
async def test_a_compressed_body_is_refused_by_its_encoding(embedded_api: httpx.AsyncClient, encoding: str) -> None:
    answer = await embedded_api.post("/v1/schedule", json={}, headers={"Content-Encoding": encoding})
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")
    plain = await embedded_api.post(
        "/v1/hints", json={"method": "GET", "path": "/"}, headers={"Content-Encoding": "identity"}
    )
    assert plain.status_code == 200


async def test_two_content_types_are_none(embedded_api: httpx.AsyncClient) -> None:
    headers = [(b"Content-Type", b"application/json"), (b"Content-Type", b"application/msgpack")]
    assert (await embedded_api.post("/v1/schedule", content=b"{}", headers=headers)).status_code == 415


@pytest.mark.parametrize("key", ["", "k" * 256, "two words", "tab\t", "ümlaut".encode()])
async def test_an_idempotency_key_is_visible_ascii(embedded_api: httpx.AsyncClient, key: str | bytes) -> None:
    headers = [(b"Idempotency-Key", key.encode() if isinstance(key, str) else key)]
    answer = await embedded_api.post("/v1/schedule", json={"hint": {"kind": "sandbox"}}, headers=headers)
    assert_field_error(answer, "Idempotency-Key")


BAD_IDS = ["%20", "%0a", "a%00b", "a%0Ab", "%7F", "a%C2%85b", "x" * 256, "%C3%BC" * 128, "%FF", "%ED%A0%80"]


@pytest.mark.parametrize("node_id", BAD_IDS)
async def test_an_id_in_a_path_is_text_without_control_characters(
    embedded_api: httpx.AsyncClient, embedded_ledger: Ledger, node_id: str
) -> None:
    answer = await embedded_api.put(f"/v1/nodes/{node_id}", json={"endpoint": "http://a:1"})
    assert_field_error(answer, "node_id")
    assert answer.json()["detail"].endswith("1 to 255 bytes of text without control characters")
    assert sent_to(embedded_ledger) == 0


@pytest.mark.parametrize("sandbox_id", ["", "  ", "a\u0000", "a\nb", "\u009f", "x" * 256])
async def test_an_id_in_a_body_is_text_without_control_characters(
    embedded_api: httpx.AsyncClient, sandbox_id: str
) -> None:
    assert_field_error(
        await embedded_api.post("/v1/reservations/r/confirm", json={"sandbox_id": sandbox_id}), "sandbox_id"
    )


@pytest.mark.parametrize(
    "endpoint", ["", "node-a:8000", "http://", "//node-a", "http://a b", "http://u:p@a", "http://a:port", "http://a\nb"]
)
async def test_an_endpoint_is_a_url_with_scheme_and_host(embedded_api: httpx.AsyncClient, endpoint: str) -> None:
    assert_field_error(await embedded_api.put("/v1/nodes/a", json={"endpoint": endpoint}), "endpoint")


@pytest.mark.parametrize("endpoint", ["http://a", "https://[fd00::1]:8000", "http://10.0.0.7:8000/prefix"])
async def test_endpoints_as_gateways_know_them_are_allowed(embedded_api: httpx.AsyncClient, endpoint: str) -> None:
    assert (await embedded_api.put("/v1/nodes/a", json={"endpoint": endpoint})).status_code == 200


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"service_instance_id": " "}, "service_instance_id"),
        ({"cluster_id": 7}, "cluster_id"),
        ({"sequence": -1}, "sequence"),
        ({"sequence": 2**53}, "sequence"),
        ({"snapshot": {"status": "fine"}}, "snapshot.status"),
        ({"snapshot": {"cpu_count": 2**32}}, "snapshot.cpu_count"),
        ({"snapshot": {"memory_total_bytes": 2**53}}, "snapshot.memory_total_bytes"),
        ({"snapshot": {"load": 1}}, "snapshot.load"),
        (
            {"snapshot": {"allocated_memory_bytes": 2**53 - 1, "paused_allocated_memory_bytes": 1}},
            "snapshot.allocated_memory_bytes + snapshot.paused_allocated_memory_bytes",
        ),
        ({"snapshot": {"disks": [{"used_bytes": -1}]}}, "snapshot.disks.0.used_bytes"),
        ({"sandbox_ids": "a"}, "sandbox_ids"),
        ({"endpoint": "nowhere"}, "endpoint"),
        ({"node_id": "other"}, "node_id"),
    ],
)
async def test_a_bad_heartbeat_names_its_field(
    embedded_api: httpx.AsyncClient, embedded_ledger: Ledger, body: dict[str, Any], field: str
) -> None:
    answer = await embedded_api.post("/v1/nodes/a/heartbeat", json={"service_instance_id": "svc", **body})
    assert_field_error(answer, field)
    assert sent_to(embedded_ledger) == 0


@pytest.mark.parametrize(
    ("size", "field"),
    [
        ({"cpu_count": -1, "memory_mb": 1}, "cpu_count"),
        ({"cpu_count": 1, "memory_mb": 2**33}, "memory_mb"),
        ({"cpu_count": 1}, "memory_mb"),
    ],
)
async def test_a_template_has_sizes_a_ledger_can_hold(
    embedded_api: httpx.AsyncClient, embedded_ledger: Ledger, size: dict[str, int], field: str
) -> None:
    assert_field_error(await embedded_api.put("/v1/templates/t", json=size), field)
    assert sent_to(embedded_ledger) == 0


@pytest.mark.parametrize(
    "query",
    [
        "templates?cursor=a%00",
        "templates?cursor=" + "x" * 256,
        "groups?cursor=next",
        "reservations?cursor=-1",
        "reservations?cursor=12345678901234567",
    ],
)
async def test_a_cursor_is_one_of_an_earlier_page(
    embedded_api: httpx.AsyncClient, embedded_ledger: Ledger, query: str
) -> None:
    answer = await embedded_api.get(f"/v1/{query}")
    assert_field_error(answer, "cursor")
    assert answer.json()["errors"][0]["allowed"] == "the cursor of an earlier page"
    assert sent_to(embedded_ledger) == 0


@pytest.mark.parametrize("blank", ["", "%20", "%20%09"])
async def test_a_blank_parameter_is_none_in_every_list_and_a_blank_switch_or_required_one_is_refused(
    embedded_api: httpx.AsyncClient, blank: str
) -> None:
    document = (await embedded_api.get("/openapi.json")).json()
    lists = {
        path: [each for each in operations["get"]["parameters"] if not each.get("required")]
        for path, operations in document["paths"].items()
        if "{" not in path and "parameters" in operations.get("get", {})
    }
    assert {"/v1/nodes", "/v1/reservations", "/v1/groups", "/v1/decisions", "/v1/artifacts"} <= lists.keys()
    for path, parameters in lists.items():
        given = "cluster_id=c&backend=b&key=k&" if path == "/v1/artifacts" else ""
        plain, blanks = [await embedded_api.get(f"{path}?{given}{query}") for query in (
            "", "&".join(f"{each['name']}={blank}" for each in parameters),
        )]  # fmt: skip
        assert (blanks.status_code, blanks.json()) == (200, plain.json()), path
    for path, field in (("nodes/a?remove=", "remove"), ("nodes/a?service_instance_id=", "service_instance_id")):
        assert_field_error(await embedded_api.delete(f"/v1/{path}{blank}"), field)
    assert_field_error(await embedded_api.get(f"/v1/artifacts?cluster_id={blank}&backend=b&key=k"), "cluster_id")


async def test_a_heartbeat_needs_its_instance(embedded_api: httpx.AsyncClient) -> None:
    assert_field_error(await embedded_api.post("/v1/nodes/a/heartbeat", json={}), "service_instance_id")


async def test_capacity_zero_and_allocation_above_capacity_are_facts_not_errors(
    embedded_api: httpx.AsyncClient,
) -> None:
    await embedded_api.put("/v1/nodes/a", json={"endpoint": "http://a:1"})
    for figures in ({"cpu_count": 0}, {"cpu_count": 4, "allocated_cpu": 40, "sandbox_count": 2**32 - 1}):
        body = {"service_instance_id": "svc", "snapshot": figures}
        assert (await embedded_api.post("/v1/nodes/a/heartbeat", json=body)).status_code == 200


async def test_events_come_at_most_1024_at_a_time(embedded_api: httpx.AsyncClient) -> None:
    event = {"sandbox_id": "s", "event_type": "create"}
    body = {"service_instance_id": "svc", "events": [event] * 1025}
    assert_field_error(await embedded_api.post("/v1/nodes/a/events", json=body), "events")
    body["events"] = [{"sandbox_id": "s", "event_type": "explode"}]
    assert_field_error(await embedded_api.post("/v1/nodes/a/events", json=body), "events.0.event_type")


@pytest.mark.parametrize(
    "body", [b"{", b"nope", b'{"a": 1} x', b"\xff", b"[" * 100_000, b'{"hint":' * 50_000, b'"\\ud800"']
)
async def test_what_is_not_json_is_malformed(embedded_api: httpx.AsyncClient, body: bytes) -> None:
    answer = await embedded_api.post("/v1/schedule", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed")


@pytest.mark.parametrize(
    "body", [b"\xc1", b"\x81", b"\x80\x80", b"\x91" * 100_000, b"\xdf\xff\xff\xff\xff", b"\xa1\xff"]
)
async def test_what_is_not_messagepack_is_malformed(embedded_api: httpx.AsyncClient, body: bytes) -> None:
    answer = await embedded_api.post("/v1/schedule", content=body, headers=MSGPACK)
    assert answer.status_code == 400
    assert msgpack.unpackb(answer.content)["code"] == "malformed"


@pytest.mark.parametrize("body", [b"7", b'"text"', b"[]", b"true"])
async def test_json_that_is_no_object_is_invalid(embedded_api: httpx.AsyncClient, body: bytes) -> None:
    answer = await embedded_api.post("/v1/hints", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")


async def test_a_missing_body_is_malformed_where_one_is_needed(embedded_api: httpx.AsyncClient) -> None:
    answer = await embedded_api.post("/v1/reservations/r/confirm")
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed")


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "application/xml"])
async def test_other_media_types_are_unsupported(embedded_api: httpx.AsyncClient, content_type: str) -> None:
    answer = await embedded_api.post("/v1/schedule", content=b"{}", headers={"Content-Type": content_type})
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")


async def test_a_charset_and_capital_letters_change_nothing(embedded_api: httpx.AsyncClient) -> None:
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    answer = await embedded_api.post("/v1/hints", content=b'{"method": "GET", "path": "/"}', headers=headers)
    assert answer.status_code == 200


async def test_a_thousand_broken_fields_get_a_short_answer(embedded_api: httpx.AsyncClient) -> None:
    body = {f"field-{number}": "x" * 1_000 for number in range(1_000)}
    answer = await embedded_api.post("/v1/schedule", json=body)
    assert answer.status_code == 422
    assert len(answer.content) < 20_000


@pytest.fixture
async def narrow_api(embedded_ledger: Ledger) -> AsyncIterator[httpx.AsyncClient]:
    async with open_client(build_services(embedded_ledger), HttpOptions(body_bytes_max=1_000)) as opened:
        yield opened


async def test_a_body_over_the_limit_is_refused_by_its_announced_size(narrow_api: httpx.AsyncClient) -> None:
    answer = await narrow_api.post("/v1/schedule", content=b" " * 1_001, headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (413, "payload_too_large")


async def test_a_body_over_the_limit_is_refused_while_it_streams(narrow_api: httpx.AsyncClient) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 100
            yield b" " * 100

    answer = await narrow_api.post("/v1/schedule", content=endless(), headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (413, "payload_too_large")
    assert sent <= 2_000


async def test_a_body_at_the_limit_passes(narrow_api: httpx.AsyncClient) -> None:
    body = b'{"method": "GET", "path": "/"}'
    answer = await narrow_api.post("/v1/hints", content=body + b" " * (1_000 - len(body)), headers=JSON)
    assert answer.status_code == 200


async def test_of_very_many_broken_values_none_is_listed(
    embedded_api: httpx.AsyncClient, embedded_ledger: Ledger
) -> None:
    metadata = {f"n{number}": 1 for number in range(5000)}
    answer = await embedded_api.post("/v1/schedule", json={"hint": {"kind": "cold_sandbox", "metadata": metadata}})
    assert_field_error(answer, "body")
    assert answer.json()["errors"][0]["found"] == "5000 values that are not valid"
    images = {"kind": "cold_sandbox", "images": [1] * 5000}
    answer = await embedded_api.post("/v1/schedule", json={"hint": images})
    assert [error["field"] for error in answer.json()["errors"]] == ["hint.images"]  # too long to be looked at
    assert sent_to(embedded_ledger) == 0


async def test_a_long_text_is_no_duration_and_is_not_remembered(embedded_api: httpx.AsyncClient) -> None:
    duration_ms.cache_clear()
    for text in ("1s" + " " * 100, " " * 100 + "1s", "1" * 100 + "s"):
        answer = await embedded_api.post("/v1/schedule", json={"reservation_ttl": text})
        assert_field_error(answer, "reservation_ttl")
    assert duration_ms.cache_info().currsize == 0


@pytest.mark.parametrize("figure", ["total_bytes", "used_bytes"])
async def test_the_disks_of_a_node_are_bounded_together_too(
    embedded_api: httpx.AsyncClient, embedded_ledger: Ledger, figure: str
) -> None:
    disks = [{"device": name, figure: 2**52} for name in "ab"]
    report = {"service_instance_id": "i", "sequence": 1, "snapshot": {"status": "ready", "disks": disks}}
    answer = await embedded_api.post("/v1/nodes/a/heartbeat", json=report)
    assert_field_error(answer, f"snapshot.disks.{figure} of all disks")
    assert sent_to(embedded_ledger) == 0


@pytest.mark.parametrize("cursor", [f'[1{"0" * 400},"a"]', '[NaN,"a"]', '[Infinity,"a"]', "[", "1"])
async def test_a_cursor_that_no_page_gave_is_refused(embedded_api: httpx.AsyncClient, cursor: str) -> None:
    answer = await embedded_api.get("/v1/nodes", params={"sort": "pressure", "cursor": cursor})
    assert_field_error(answer, "cursor")


async def test_a_query_that_is_not_utf_8_is_refused_not_read_as_something_else(
    embedded_api: httpx.AsyncClient, embedded_ledger: Ledger
) -> None:
    assert_field_error(await embedded_api.get("/v1/nodes?limit=5&cluster_id=%ff"), "cluster_id")
    assert_field_error(await embedded_api.delete("/v1/nodes/a?service_instance_id=b%e2%82"), "service_instance_id")
    assert sent_to(embedded_ledger) == 0
    assert (await embedded_api.get("/v1/nodes?cluster_id=caf%C3%A9")).status_code == 200


async def test_an_answer_cannot_be_younger_than_none(embedded_api: httpx.AsyncClient) -> None:
    assert_field_error(await embedded_api.get("/v1/nodes?max_age=-5s"), "max_age")
    for age in ("0", "0s", "5s"):
        assert (await embedded_api.get(f"/v1/nodes?max_age={age}")).status_code == 200


async def test_a_sandbox_has_no_larger_disk_than_memory(api: httpx.AsyncClient, node_a: str) -> None:
    for amount, told in ((2**44 + 1, 422), (2**44, 200)):
        hint = {"kind": "cold_sandbox", "cpu_count": 1, "resources": {"disk": amount}}
        answer = await api.post("/v1/schedule", json={"hint": hint})
        assert answer.status_code == told
        if told == 422:
            assert_field_error(answer, "hint.resources.disk")
