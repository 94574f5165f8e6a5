"""What each key accepts, and what the settings then are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from scheduler.config import (
    DiscoveryMode,
    KubernetesSettings,
    ListenAddress,
    LogFormat,
    LogLevel,
    Settings,
    StoreSettings,
    load_configuration,
    load_settings,
)
from scheduler.config.keys import KEYS
from scheduler.configured_store import store_options
from scheduler.domain.node import NodeAddress
from scheduler.domain.placement import Strategy
from scheduler.domain.sandbox import Template
from scheduler.domain.settings import Admission, GroupPlacement, LedgerSettings, NodeResourceLimit
from scheduler.errors import ConfigurationError, StoreUnusable
from scheduler.ledger.format import FORMAT
from scheduler.ledger.settings_fields import decode, encode


def settings(**options: Any) -> Settings:
    """By option alone; `__` stands for the dot of a path."""
    return load_settings(options={name.replace("__", "."): value for name, value in options.items()}, environment={})


def refusal(**options: Any) -> list[dict[str, Any]]:
    with pytest.raises(ConfigurationError) as raised:
        settings(**options)
    errors: list[dict[str, Any]] = raised.value.facts["errors"]
    return errors


def test_without_any_source_the_settings_are_the_defaults() -> None:
    assert load_settings(environment={}) == Settings()


def test_the_ledgers_defaults_are_those_of_the_contract() -> None:
    assert settings().ledger == LedgerSettings(
        strategy=Strategy.ROUND_ROBIN,
        admission=Admission.STRATEGY,
        report_ttl_ms=30_000,
        binding_ttl_ms=180_000,
        binding_grace_ms=15_000,
        placement_reservation_ttl_ms=600_000,
        overcommit_cpu=1000,
        overcommit_memory=1000,
        artifact_store_capacity=1_000_000,
    )


@pytest.mark.parametrize("name", ["least_loaded", " Least_Loaded\n", "LEAST_LOADED"])
def test_a_strategy_is_trimmed_and_read_in_any_case(name: str) -> None:
    assert settings(strategy=name).ledger.strategy is Strategy.LEAST_LOADED


def test_an_unknown_strategy_is_refused_with_what_is_allowed() -> None:
    assert refusal(strategy="fastest") == [
        {
            "field": "strategy",
            "found": "fastest",
            "allowed": "one of " + ", ".join(Strategy),
        }
    ]


@pytest.mark.parametrize(
    ("text", "per_mille"), [("1", 1000), ("1.5", 1500), ("0.125", 125), ("2.000", 2000), ("unlimited", None), (2, 2000)]
)
def test_overcommit_is_whole_per_mille(text: Any, per_mille: int | None) -> None:
    assert settings(overcommit__cpu=text).ledger.overcommit_cpu == per_mille


@pytest.mark.parametrize(("text", "per_mille"), [("0", 0), ("0.9", 900), (" 1 ", 1000), (0.125, 125)])
def test_nodes_are_filled_to_a_share_of_three_decimals(text: Any, per_mille: int) -> None:
    assert settings(fill_to=text).ledger.fill_to == per_mille


@pytest.mark.parametrize("text", ["-0.1", "1.001", "0.0005", "90%", "unlimited", True, "nan"])
def test_a_share_that_is_none_is_refused(text: Any) -> None:
    [error] = refusal(fill_to=text)
    assert error["field"] == "fill_to"
    assert "from 0 to 1" in error["allowed"]


@pytest.mark.parametrize(("given", "per_mille"), [("off", None), (" Off ", None), (False, None), (0, 0), ("0.2", 200)])
def test_a_slack_is_a_share_or_off(given: Any, per_mille: int | None) -> None:
    assert settings(affinity__slack=given).ledger.affinity.slack == per_mille


@pytest.mark.parametrize("given", ["on", True, "1.5", "-1"])
def test_a_slack_that_is_neither_is_refused(given: Any) -> None:
    [error] = refusal(affinity__slack=given)
    assert error["field"] == "affinity.slack"
    assert error["allowed"] == "a number from 0 to 1 with at most three decimals, or `off`"
    assert refusal(affinity__keys_per_node=0)[0]["allowed"] == "a whole number from 1 to 1000"


@pytest.mark.parametrize("text", ["1.2345", "0", "-1", "nan", "inf", "much", "", True, "1000.001", "1e1000000"])
def test_overcommit_refuses_what_is_no_factor_of_three_decimals(text: Any) -> None:
    [error] = refusal(overcommit__memory=text)
    assert error["field"] == "overcommit.memory"
    assert "three decimals" in error["allowed"]


def test_a_fraction_of_a_file_is_read_by_its_decimals_not_its_binary_value(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("[scheduler.overcommit]\ncpu = 1.001\n")
    assert load_settings(config_file=file, environment={}).ledger.overcommit_cpu == 1001


@pytest.mark.parametrize("value", ["0s", "-5s", "0"])
def test_report_ttl_of_zero_or_less_is_the_default_as_in_agentenv(value: str) -> None:
    assert settings(report_ttl=value, binding_ttl=value).ledger.report_ttl_ms == 30_000
    assert settings(report_ttl=value, binding_ttl=value).ledger.binding_ttl_ms == 180_000


@pytest.mark.parametrize("value", ["0s", "-5s"])
def test_a_reservation_must_last(value: str) -> None:
    [error] = refusal(placement_reservation_ttl=value)
    assert error["allowed"].endswith("greater than zero")


@pytest.mark.parametrize("path", [path for path, key in KEYS.items() if "duration" in key.kind.allowed])
def test_a_number_is_no_duration_and_the_error_names_the_key(path: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load_settings(options={path: 30}, environment={})
    assert path in raised.value.detail
    assert "found 30" in raised.value.detail
    assert "a duration such as 30s" in raised.value.detail


def test_groups_need_a_sandbox_budget_when_their_strategy_is_selected() -> None:
    [error] = refusal(strategy="grouped_round_robin")
    assert error["field"] == "grouped_round_robin.max_sandbox_count"
    groups = settings(
        strategy="grouped_round_robin",
        grouped_round_robin__max_sandbox_count="10",
        grouped_round_robin__group_placement="least_loaded",
    ).ledger.groups
    assert groups.max_sandbox_count == 10
    assert groups.group_placement is GroupPlacement.LEAST_LOADED


@pytest.mark.parametrize("value", ["-1", "1.5", "many", 4294967296, True])
def test_budgets_are_whole_numbers_within_the_wire(value: Any) -> None:
    [error] = refusal(grouped_round_robin__max_cpu_count=value)
    assert error["allowed"] == "a whole number from 0 to 4294967295"


def test_resource_limits_are_absent_unless_given_and_zero_is_one() -> None:
    assert settings().ledger.node_resource_limit == NodeResourceLimit()
    assert settings(node_resource_limit__max_sandbox_count="0").ledger.node_resource_limit.max_sandbox_count == 0


def test_an_artifact_limit_below_zero_is_none() -> None:
    assert settings(artifact_lookup_node_limit="-1").ledger.artifact_lookup_node_limit == 0
    assert refusal(artifact_store_capacity="0")[0]["field"] == "artifact_store_capacity"


def test_listed_nodes_may_have_labels() -> None:
    labels = {"zone": "east", "GPU": "h100"}
    listed = [{"id": "a", "endpoint": "http://a:1", "labels": labels}, {"id": "b", "endpoint": "http://b:1"}]
    assert [node.labels for node in settings(nodes=listed).discovery.nodes] == [labels, None]


def test_nodes_and_templates_are_json_when_given_as_text() -> None:
    found = settings(
        nodes='[{"id": "a", "endpoint": "http://10.0.0.7:8000"}]',
        templates__declared='{"base": {"cpu_count": 2, "memory_mb": 4096}}',
    )
    assert found.discovery.nodes == (NodeAddress("a", "http://10.0.0.7:8000"),)
    assert found.ledger.templates == {"base": Template("base", 2, 4096)}


def test_ids_are_cleaned_as_at_the_api_and_members_match_in_any_case() -> None:
    found = settings(
        nodes=[
            {"ID": " a\u00a0", "Endpoint": " http://10.0.0.7:8000 "},
            {"Id": "b", "endpoint": "http://10.0.0.8:8000", "zone": "x"},
        ],
        templates__declared={" base ": {"CPU_Count": 2, "Memory_MB": 4096}},
    )
    assert found.discovery.nodes == (
        NodeAddress("a", "http://10.0.0.7:8000"),
        NodeAddress("b", "http://10.0.0.8:8000"),
    )
    assert found.ledger.templates == {"base": Template("base", 2, 4096)}


@pytest.mark.parametrize(
    ("nodes", "field"),
    [
        ([{"id": "", "endpoint": "http://a:1"}], "nodes[0].id"),
        ([{"id": "a\nb", "endpoint": "http://a:1"}], "nodes[0].id"),
        ([{"id": "é" * 128, "endpoint": "http://a:1"}], "nodes[0].id"),
        ([{"endpoint": "http://a:1"}], "nodes[0].id"),
        ([{"id": "a", "endpoint": "http://a:1"}, {"id": "b", "endpoint": "b:8000"}], "nodes[1].endpoint"),
        ([{"id": "a", "endpoint": "http://"}], "nodes[0].endpoint"),
        ([{"id": "a", "endpoint": "http://a:99999"}], "nodes[0].endpoint"),
        ([{"id": "a"}], "nodes[0].endpoint"),
        ([{"id": "a", "endpoint": "http://a:1"}, {"ID": " a ", "endpoint": "http://b:1"}], "nodes[1].id"),
        (["a"], "nodes[0]"),
        ([{"id": "a", "endpoint": "http://a:1", "labels": {"a b": "x"}}], "nodes[0].labels.a b"),
        ([{"id": "a", "endpoint": "http://a:1", "labels": {"zone": 1}}], "nodes[0].labels.zone"),
        ([{"id": "a", "endpoint": "http://a:1", "labels": {f"l{n}": "x" for n in range(17)}}], "nodes[0].labels"),
        ({"a": "http://a:1"}, "nodes"),
        ("a=http://a:1", "nodes"),
    ],
)
def test_a_broken_node_is_named_by_its_place(nodes: Any, field: str) -> None:
    assert [error["field"] for error in refusal(nodes=nodes)] == [field]


@pytest.mark.parametrize(
    ("declared", "field"),
    [
        ({"base": {"cpu_count": 0, "memory_mb": 1}}, "templates.declared.base.cpu_count"),
        ({"base": {"cpu_count": 1}}, "templates.declared.base.memory_mb"),
        ({"base": 2}, "templates.declared.base"),
        (
            {"base": {"cpu_count": 1, "memory_mb": 1}, "base ": {"cpu_count": 1, "memory_mb": 1}},
            "templates.declared.base ",
        ),
        ([], "templates.declared"),
    ],
)
def test_a_broken_template_is_named_by_its_place(declared: Any, field: str) -> None:
    assert [error["field"] for error in refusal(templates__declared=declared)] == [field]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (":9090", ListenAddress("", 9090)),
        ("0.0.0.0:9090", ListenAddress("0.0.0.0", 9090)),
        ("[::1]:0", ListenAddress("::1", 0)),
        ("localhost:9090", ListenAddress("localhost", 9090)),
    ],
)
def test_listen_addresses_are_gos(text: str, expected: ListenAddress) -> None:
    assert settings(grpc_listen_addr=text).grpc.listen == expected
    assert str(expected) == text


@pytest.mark.parametrize("text", ["9090", "host", "host:port", "::1:9090", "host:70000", "http://a:1"])
def test_other_listen_addresses_are_refused(text: str) -> None:
    assert refusal(grpc_listen_addr=text)[0]["field"] == "grpc_listen_addr"


def test_a_port_alone_replaces_the_addresss_port() -> None:
    found = settings(grpc_listen_addr="0.0.0.0:9090", grpc__port=0, metrics__port=9999)
    assert found.grpc.listen == ListenAddress("0.0.0.0", 0)
    assert found.metrics.listen == ListenAddress("127.0.0.1", 9999)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_no_keys(host: str) -> None:
    assert settings(http__host=host).http.listen.is_loopback


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example"])
def test_beyond_loopback_http_needs_keys_or_insecure(host: str, tmp_path: Path) -> None:
    assert refusal(http__host=host)[0]["field"] == "http.host"
    assert settings(http__host=host, http__insecure=True).http.insecure
    keys = tmp_path / "keys"
    keys.write_text("")
    assert settings(http__host=host, http__api_keys=str(keys)).http.api_keys_file == keys


@pytest.mark.parametrize(
    "address",
    [
        "localhost:6379",
        "[::1]:6379",
        "redis://user:pass@host/0",
        "rediss://host",
        "unix:///tmp/redis.sock",
        "sentinel://a:26379,b:26379/main",
        "cluster://a:7000,b:7001",
    ],
)
def test_ledger_addresses(address: str) -> None:
    assert settings(redis_addr=address).store.redis_addr == address
    assert not settings(redis_addr=address).store.is_embedded


@pytest.mark.parametrize("address", ["", "  ", "localhost", ":6379", "http://host", "redis://", "host:0", 6379])
def test_other_ledger_addresses_are_refused(address: Any) -> None:
    assert refusal(redis_addr=address)[0]["field"] == "redis_addr"


def test_query_only_reads_what_others_write_and_always_speaks_grpc() -> None:
    assert refusal(query_only=True)[0]["field"] == "redis_addr"
    found = settings(query_only=True, redis_addr="host:6379", grpc__enabled=False, strategy="grouped_round_robin")
    assert found.replica.query_only
    assert found.grpc.enabled


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"redis_addr": "cluster://a:1", "compat__upstream_bindings": True}, "compat.upstream_bindings"),
        ({"durability__wait_replicas": 1}, "durability.wait_replicas"),
        ({"redis_addr": "host:6379", "redis_read_addr": "embedded"}, "redis_read_addr"),
        ({"domain": "a b"}, "domain"),
        ({"domain": "x" * 65}, "domain"),
        ({"http__tls__cert_file": "/nowhere"}, "http.tls.cert_file"),
        ({"http__port": 65536}, "http.port"),
        ({"shutdown__grace": "-1s"}, "shutdown.grace"),
        ({"log_format": "xml"}, "log_format"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], field: str) -> None:
    assert [error["field"] for error in refusal(**options)] == [field]


def test_a_certificate_needs_its_key_and_the_other_way_round(tmp_path: Path) -> None:
    pem = tmp_path / "pem"
    pem.write_text("")
    assert refusal(grpc__tls__cert_file=str(pem))[0]["field"] == "grpc.tls.key_file"
    assert refusal(http__tls__client_ca_file=str(pem))[0]["field"] == "http.tls.cert_file"
    tls = settings(grpc__tls__cert_file=str(pem), grpc__tls__key_file=str(pem)).grpc.tls
    assert tls is not None
    assert tls.client_ca_file is None


def test_a_password_comes_from_one_place(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("hunter2\n")
    found = settings(redis_addr="redis://scheduler@host", store__password_file=str(file))
    assert found.store.password_file == file
    sentinels = "sentinel://a:1,b:1/main"
    both = settings(redis_addr=sentinels, store__password_file=str(file), store__sentinel_password_file=str(file))
    assert both.store.sentinel_password_file == file
    for twice in ("redis://:hunter2@host", f"{sentinels}?sentinel_password=hunter2"):
        errors = refusal(redis_addr=twice, store__password_file=str(file))
        assert [error["field"] for error in errors] == ["redis_addr"]
        assert "hunter2" not in str(errors)
    assert refusal(store__password_file=str(file))[0]["field"] == "store.password_file"
    assert refusal(redis_addr="host:1", store__sentinel_password_file=str(file))[0]["field"].startswith(
        "store.sentinel"
    )


@pytest.mark.parametrize("content", ["", "\n", "one\ntwo\n", None])
def test_a_file_without_a_password_is_told_at_the_start(content: str | None, tmp_path: Path) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_text(content)
    [error] = refusal(redis_addr="host:1", store__password_file=str(file))
    assert "holds a password, on one line" in error["allowed"]


def test_a_password_among_the_options_is_remarked_on_and_elsewhere_is_not() -> None:
    address = "redis://:hunter2@host"
    [warning] = load_configuration(options={"redis_addr": address}, environment={}).warnings
    assert "store.password_file" in warning
    assert "hunter2" not in warning
    assert not load_configuration(environment={"SCHEDULER_REDIS_ADDR": address}).warnings
    assert not load_configuration(options={"redis_addr": "redis://user@host"}, environment={}).warnings


def test_kubernetes_discovery_needs_a_service_and_a_port() -> None:
    assert [error["field"] for error in refusal(discovery__mode="kubernetes")] == [
        "discovery.kubernetes.namespace",
        "discovery.kubernetes.service_name",
        "discovery.kubernetes.port",
    ]
    found = settings(
        discovery__mode="Kubernetes",
        discovery__kubernetes__namespace="agentenv",
        discovery__kubernetes__service_name="nodes",
        discovery__kubernetes__port="8000",
    ).discovery
    assert found.mode is DiscoveryMode.KUBERNETES
    assert found.kubernetes == KubernetesSettings("agentenv", "nodes", 8000)


def test_nodes_may_register_themselves_only_in_heartbeat_mode() -> None:
    assert settings(discovery__mode="heartbeat").ledger.self_registration
    assert not settings().ledger.self_registration


def test_logging_understands_gos_warn() -> None:
    found = settings(log_level="WARN", log_format="json").logging
    assert found.level is LogLevel.WARNING
    assert found.format is LogFormat.JSON


def test_all_faults_are_reported_at_once() -> None:
    with pytest.raises(ConfigurationError) as raised:
        settings(strategy="x", report_ttl="30", http__host="0.0.0.0")
    assert raised.value.detail.startswith("configuration: 3 faults\n")
    assert [error["field"] for error in raised.value.facts["errors"]] == ["strategy", "report_ttl", "http.host"]


def faults_of(**given: Any) -> list[str]:
    with pytest.raises(ConfigurationError) as raised:
        settings(**given)
    return [error["field"] for error in raised.value.facts["errors"]]


def test_all_faults_of_one_list_are_reported_at_once() -> None:
    listed = [{"id": "", "endpoint": "nowhere"}, {"id": "a", "endpoint": "http://a:1"}, "b", {"id": "a", "endpoint": 1}]
    assert faults_of(nodes=listed, strategy="x") == [
        *("nodes[0].id", "nodes[0].endpoint", "nodes[2]", "nodes[3].id", "nodes[3].endpoint"),
        "strategy",
    ]
    declared = {"base": {"cpu_count": 0, "memory_mb": "much"}, " base": {"cpu_count": 1, "memory_mb": 1}, "none": 1}
    assert faults_of(templates__declared=declared) == [
        *("templates.declared.base.cpu_count", "templates.declared.base.memory_mb"),
        *("templates.declared. base", "templates.declared.none"),
    ]


def test_of_very_many_faults_the_first_are_told_and_the_rest_counted() -> None:
    with pytest.raises(ConfigurationError) as raised:
        settings(nodes=[{} for _ in range(1_000)])
    lines = raised.value.detail.splitlines()
    assert lines[0] == "configuration: 2000 faults"
    assert lines[-1] == "  - and 1950 more"
    assert len(lines) == 52


def test_a_member_that_is_given_twice_is_refused_wherever_it_stands() -> None:
    node = '{"id": "a", "ID": "b", "endpoint": "http://a:1"}'
    assert faults_of(nodes=f"[{node}]") == ["nodes[0].id"]
    assert faults_of(nodes='[{"id": "a", "endpoint": "http://a:1", "endpoint": "http://b:1"}]') == ["nodes[0].endpoint"]
    declared = '{"base": {"cpu_count": 1, "memory_mb": 1}, "base": {"cpu_count": 2, "Cpu_Count": 2, "memory_mb": 1}}'
    assert faults_of(templates__declared=declared) == ["templates.declared.base", "templates.declared.base.cpu_count"]


def test_a_password_in_an_address_is_not_repeated() -> None:
    with pytest.raises(ConfigurationError) as raised:
        settings(redis_addr="redis2://user:hun@ter2@host")
    assert "redis2://user:***@host" in raised.value.detail
    assert "ter2" not in raised.value.detail + repr(raised.value.facts)


def leaves(group: Any, place: str = "") -> Iterator[str]:
    for each in fields(group):
        value = getattr(group, each.name)
        if is_dataclass(value) and not isinstance(value, ListenAddress):
            yield from leaves(value, f"{place}{each.name}.")
        else:
            yield place + each.name


MADE_BY_ASSEMBLE = {"ledger_sources", "ledger.self_registration", "http.tls", "grpc.tls", "discovery.kubernetes"}


def test_every_field_is_taken_by_one_key() -> None:
    taken = [key.field for key in KEYS.values() if isinstance(key.field, str)]
    assert len(taken) == len(set(taken))
    http = {"http.listen.host", "http.listen.port"}
    assert set(taken) - http == set(leaves(Settings())) - {"http.listen"} - MADE_BY_ASSEMBLE
    for field in taken:
        attrgetter(field)(Settings())


EVERY_FORM = {
    "fill_to": 0.75,
    "affinity__slack": "0.2",
    "affinity__keys_per_node": 20,
    "overcommit__cpu": "unlimited",
    "overcommit__memory": 1.5,
    "node_resource_limit__max_sandbox_count": 0,
    "avoid__share": 50,
    "grouped_round_robin__max_sandbox_count": 9,
    "grouped_round_robin__max_open_groups": 5,
    "grouped_round_robin__group_placement": "least_loaded",
    "templates__learn": True,
    "settings__revision": 8,
}


@pytest.mark.parametrize("options", [{}, EVERY_FORM])
def test_settings_come_back_from_the_ledger_as_they_went_in(options: dict[str, Any]) -> None:
    offered = settings(**options).ledger
    stored = encode(offered) | {"format": str(FORMAT), "revision": str(offered.revision)}
    assert decode(stored) == replace(offered, templates={})
    for name in encode(LedgerSettings()):
        if name != "limited":  # for the scripts alone
            with pytest.raises(StoreUnusable):
                decode({field: value for field, value in stored.items() if field != name})


def test_the_ledger_names_settings_by_their_fields() -> None:
    stored = encode(settings(**EVERY_FORM).ledger)
    shown = {
        "overcommit_cpu": "unlimited",
        "overcommit_memory": "1500",
        "fill_to": "750",
        "affinity_slack": "200",
        "affinity_keys_per_node": "20",
        "max_sandbox_count": "0",
        "limited": "1",
        "avoid_share_percent": "50",
        "group_max_sandbox_count": "9",
        "max_open_groups": "5",
        "group_placement": "least_loaded",
        "templates_learn": "1",
        "locality_enabled": "0",
    }
    assert stored | shown == stored
    assert encode(LedgerSettings())["affinity_slack"] == "off"
    assert "max_sandbox_starting_count" not in stored, "a limit that is not set has no field"


@pytest.mark.parametrize("name", ["strategy", "admission", "limits", "group_placement"])
def test_a_name_that_this_version_does_not_know_is_said(name: str) -> None:
    stored = encode(LedgerSettings()) | {"format": str(FORMAT), "revision": "0", name: "best"}
    with pytest.raises(StoreUnusable, match=f"{name} is 'best'"):
        decode(stored)


def test_the_store_is_opened_as_configured(tmp_path: Path) -> None:
    password = tmp_path / "password"
    options = store_options(
        StoreSettings("redis:1", "replica:1", pool_size=3, wait_replicas=1, password_file=password, tls_key_file=None)
    )
    assert (options.read_addr, options.pool_size, options.wait_replicas) == ("replica:1", 3, 1)
    assert (options.password_file, options.tls_key_file) == (str(password), None)
