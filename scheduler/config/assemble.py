"""Builds the frozen groups from checked values by key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from scheduler.config.groups import (
    DiscoveryMode,
    DiscoverySettings,
    GrpcSettings,
    HintSettings,
    HttpSettings,
    KubernetesSettings,
    ListenAddress,
    LoggingSettings,
    MetricsSettings,
    ReplicaSettings,
    Settings,
    StoreSettings,
    TlsSettings,
    TracingSettings,
)
from scheduler.domain.settings import AvoidSettings, GroupSettings, LedgerSettings, NodeResourceLimit


def assemble(values: Mapping[str, Any]) -> Settings:
    """`values` has every key, without contradictions."""
    return Settings(
        ledger=_ledger(values),
        store=StoreSettings(
            redis_addr=values["redis_addr"],
            redis_read_addr=values["redis_read_addr"],
            domain=values["domain"],
            pool_size=values["store.pool_size"],
            connect_timeout_ms=values["store.connect_timeout"],
            operation_timeout_ms=values["store.operation_timeout"],
            attempt_timeout_ms=values["store.attempt_timeout"],
            wait_replicas=values["durability.wait_replicas"],
            upstream_bindings=values["compat.upstream_bindings"],
            password_file=values["store.password_file"],
            sentinel_password_file=values["store.sentinel_password_file"],
            tls_ca_file=values["store.tls.ca_file"],
            tls_cert_file=values["store.tls.cert_file"],
            tls_key_file=values["store.tls.key_file"],
            tls_check_hostname=values["store.tls.check_hostname"],
        ),
        http=HttpSettings(
            listen=ListenAddress(values["http.host"], values["http.port"]),
            api_keys_file=values["http.api_keys"],
            insecure=values["http.insecure"],
            allowed_hosts=values["http.allowed_hosts"],
            tls=_tls(values, "http"),
            request_timeout_ms=values["http.request_timeout"],
            body_bytes_max=values["http.body_bytes_max"],
            in_flight_max=values["http.in_flight_max"],
            metrics_need_admin=values["http.metrics_need_admin"],
            connections_max=values["http.connections_max"],
            head_bytes_max=values["http.head_bytes_max"],
            head_timeout_ms=values["http.head_timeout"],
            idle_timeout_ms=values["http.idle_timeout"],
        ),
        grpc=GrpcSettings(
            # Query-only speaks gRPC and nothing else; it cannot be without it.
            enabled=values["grpc.enabled"] or values["query_only"],
            listen=_listen(values["grpc_listen_addr"], values["grpc.port"]),
            tls=_tls(values, "grpc"),
            api_keys=values["grpc.api_keys"],
            reflection=values["grpc.reflection"],
            message_bytes_max=values["grpc.message_bytes_max"],
            in_flight_max=values["grpc.in_flight_max"],
            connections_max=values["grpc.connections_max"],
        ),
        metrics=MetricsSettings(
            enabled=values["metrics.enabled"],
            listen=_listen(values["metrics_listen_addr"], values["metrics.port"]),
        ),
        discovery=_discovery(values),
        logging=LoggingSettings(values["log_level"], values["log_format"], values["logging.calls_per_second"]),
        tracing=TracingSettings(values["tracing.enabled"]),
        replica=ReplicaSettings(
            replica_id=values["replica_id"],
            query_only=values["query_only"],
            drain_ms=values["shutdown.drain"],
            grace_ms=values["shutdown.grace"],
            remember=values["rebuild.remember"],
        ),
        hints=HintSettings(lenient=values["hints.lenient"]),
    )


def _ledger(values: Mapping[str, Any]) -> LedgerSettings:
    return LedgerSettings(
        strategy=values["strategy"],
        admission=values["admission"],
        report_ttl_ms=values["report_ttl"],
        binding_ttl_ms=values["binding_ttl"],
        binding_grace_ms=values["binding_grace"],
        placement_reservation_ttl_ms=values["placement_reservation_ttl"],
        overcommit_cpu=values["overcommit.cpu"],
        overcommit_memory=values["overcommit.memory"],
        node_resource_limit=NodeResourceLimit(
            **{limit.name: values[f"node_resource_limit.{limit.name}"] for limit in fields(NodeResourceLimit)}
        ),
        limits=values["compat.limits"],
        avoid=AvoidSettings(
            refusals=values["avoid.refusals"],
            first_ms=values["avoid.first"],
            longest_ms=values["avoid.longest"],
            share_percent=values["avoid.share"],
        ),
        groups=GroupSettings(
            **{budget.name: values[f"grouped_round_robin.{budget.name}"] for budget in fields(GroupSettings)}
        ),
        cold_default_cpu_count=values["cold_defaults.cpu_count"],
        cold_default_memory_mb=values["cold_defaults.memory_mb"],
        templates_learn=values["templates.learn"],
        artifact_store_capacity=values["artifact_store_capacity"],
        artifact_lookup_node_limit=max(0, values["artifact_lookup_node_limit"]),
        locality_enabled=values["locality.enabled"],
        self_registration=values["discovery.mode"] is DiscoveryMode.HEARTBEAT,
        revision=values["settings.revision"],
        templates=values["templates.declared"],
    )


def _discovery(values: Mapping[str, Any]) -> DiscoverySettings:
    mode: DiscoveryMode = values["discovery.mode"]
    kubernetes = None
    if mode is DiscoveryMode.KUBERNETES:
        kubernetes = KubernetesSettings(
            **{member.name: values[f"discovery.kubernetes.{member.name}"] for member in fields(KubernetesSettings)}
        )
    return DiscoverySettings(mode, values["nodes"], kubernetes)


def _tls(values: Mapping[str, Any], edge: str) -> TlsSettings | None:
    cert_file = values[f"{edge}.tls.cert_file"]
    if cert_file is None:
        return None
    return TlsSettings(cert_file, values[f"{edge}.tls.key_file"], values[f"{edge}.tls.client_ca_file"])


def _listen(address: ListenAddress, port: int | None) -> ListenAddress:
    return address if port is None else replace(address, port=port)
