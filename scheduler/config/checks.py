"""Checks combinations of keys: contradictions are refused, doubtful ones logged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from scheduler.config.addresses import holds_password
from scheduler.config.groups import DiscoveryMode, ListenAddress


def contradictions(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(key to name, what it must be) for each contradiction; `values` are typed and complete."""
    yield from _placing(values)
    yield from _ledger(values)
    yield from _passwords(values)
    yield from _discovery(values)
    yield from _edges(values)


def warnings_for(values: Mapping[str, Any], sources: Mapping[str, str]) -> Iterator[str]:
    """A sentence for the start-up log about each allowed combination that may not do what is expected.

    `sources` says where a value came from, by key."""
    for name in ("redis_addr", "redis_read_addr"):
        if values[name] and holds_password(values[name]) and sources.get(name) == "option":
            yield (
                f"{name} holds a password and is an option: whoever may list processes on this machine can read it; "
                "leave the password out and name its file in store.password_file"
            )
    if values["discovery.mode"] is DiscoveryMode.HEARTBEAT and values["grpc.enabled"] and not values["query_only"]:
        yield (
            "discovery.mode is heartbeat: nodes list themselves by reports over HTTP. Reports over gRPC, as AgentENV's "
            "nodes send them, name no endpoint, so a node that is not listed yet is answered `node is not in scheduler "
            "node list`; list AgentENV's nodes in `nodes`, by PUT /v1/nodes/{node_id}, or by discovery.mode kubernetes"
        )


def _placing(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    grouped = values["strategy"].forms_groups
    if grouped and not values["query_only"] and values["grouped_round_robin.max_sandbox_count"] == 0:
        yield "grouped_round_robin.max_sandbox_count", "above 0 when the strategy is grouped_round_robin"


def _ledger(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    address: str = values["redis_addr"]
    if values["query_only"] and address == "embedded":
        yield "redis_addr", "the address of a server with query_only, which reads what others write"
    if values["redis_read_addr"] == "embedded":
        yield "redis_read_addr", "the address of a server that replicates redis_addr"
    if address == "embedded" and values["durability.wait_replicas"] > 0:
        yield "durability.wait_replicas", "0 with the embedded ledger, which has no replicas"
    if address.lower().startswith("cluster://") and values["compat.upstream_bindings"]:
        yield "compat.upstream_bindings", "off on a Redis Cluster: AgentENV's keys carry no hash tag"


def _passwords(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    given = values["store.password_file"], values["store.sentinel_password_file"]
    if any(given):
        for name in ("redis_addr", "redis_read_addr"):
            if values[name] and holds_password(values[name]):
                yield name, "without a password while one is given by a file (store.password_file)"
    if given[0] is not None and values["redis_addr"] == "embedded":
        yield "store.password_file", "not given with the embedded ledger, which asks for none"
    if given[1] is not None and not values["redis_addr"].lower().startswith("sentinel://"):
        yield "store.sentinel_password_file", "not given unless redis_addr is sentinel://…"


def _discovery(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if values["discovery.mode"] is not DiscoveryMode.KUBERNETES:
        return
    for name in ("namespace", "service_name"):
        if not values[f"discovery.kubernetes.{name}"]:
            yield f"discovery.kubernetes.{name}", "a name when discovery.mode is kubernetes"
    if values["discovery.kubernetes.port"] == 0:
        yield "discovery.kubernetes.port", "above 0 when discovery.mode is kubernetes"


def _edges(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for edge in ("http", "grpc"):
        cert, key, ca = (values[f"{edge}.tls.{name}"] for name in ("cert_file", "key_file", "client_ca_file"))
        if cert is None and (key is not None or ca is not None):
            yield f"{edge}.tls.cert_file", "given when another file of TLS is"
        if cert is not None and key is None:
            yield f"{edge}.tls.key_file", "given together with the certificate"
    if values["grpc.api_keys"] and values["http.api_keys"] is None:
        yield "grpc.api_keys", "off while there is no file of API keys (http.api_keys)"
    listen = ListenAddress(values["http.host"], values["http.port"])
    open_to_all = values["http.api_keys"] is None and not values["http.insecure"] and not values["query_only"]
    if open_to_all and not listen.is_loopback:
        yield (
            "http.host",
            "a loopback address while there are no API keys (give http.api_keys, or --insecure to mean it)",
        )
