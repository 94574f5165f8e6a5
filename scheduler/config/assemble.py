"""Builds the frozen groups from checked values by key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from scheduler.config.groups import DiscoveryMode, KubernetesSettings, ListenAddress, Settings, TlsSettings
from scheduler.config.keys import KEYS

Group = TypeVar("Group")


def assemble(values: Mapping[str, Any]) -> Settings:
    """The settings from the value of every key, which `checks` has found free of contradictions.

    Most values go into the field that `KEYS` names for their key. What depends on more than one key is written here."""
    settings = _filled(Settings(), _by_field(values))
    mode = settings.discovery.mode
    return replace(
        settings,
        ledger=replace(
            settings.ledger,
            # Less than none is AgentENV's way to say "not limited".
            artifact_lookup_node_limit=max(0, settings.ledger.artifact_lookup_node_limit),
            self_registration=mode is DiscoveryMode.HEARTBEAT,
        ),
        http=replace(settings.http, tls=_tls(values, "http")),
        grpc=replace(
            settings.grpc,
            # Query-only speaks gRPC and nothing else; it cannot be without it.
            enabled=settings.grpc.enabled or settings.replica.query_only,
            listen=_listen(settings.grpc.listen, values["grpc.port"]),
            tls=_tls(values, "grpc"),
        ),
        metrics=replace(settings.metrics, listen=_listen(settings.metrics.listen, values["metrics.port"])),
        discovery=replace(
            settings.discovery, kubernetes=_kubernetes(values) if mode is DiscoveryMode.KUBERNETES else None
        ),
    )


def _by_field(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as nested tables, by the names of the fields that take them."""
    tree: dict[str, Any] = {}
    for path, key in KEYS.items():
        if isinstance(key.field, str):
            *groups, name = key.field.split(".")
            branch = tree
            for group in groups:
                branch = branch.setdefault(group, {})
            branch[name] = values[path]
    return tree


def _filled(group: Group, tree: Mapping[str, Any]) -> Group:
    """The group with these values in place of its own, and in the groups inside it."""
    taken: dict[str, Any] = {}
    for name, value in tree.items():
        inner = getattr(group, name)
        taken[name] = _filled(inner, value) if is_dataclass(inner) and isinstance(value, dict) else value
    return replace(group, **taken)  # type: ignore[type-var]  # every group is a dataclass


def _kubernetes(values: Mapping[str, Any]) -> KubernetesSettings:
    return KubernetesSettings(
        **{member.name: values[f"discovery.kubernetes.{member.name}"] for member in fields(KubernetesSettings)}
    )


def _tls(values: Mapping[str, Any], edge: str) -> TlsSettings | None:
    if values[f"{edge}.tls.cert_file"] is None:
        return None
    return TlsSettings(**{member.name: values[f"{edge}.tls.{member.name}"] for member in fields(TlsSettings)})


def _listen(address: ListenAddress, port: int | None) -> ListenAddress:
    return address if port is None else replace(address, port=port)
