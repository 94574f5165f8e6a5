"""Option over environment over file over default; AgentENV's file and variables as they are."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduler.config import ListenAddress, LogLevel, load_configuration, load_settings
from scheduler.config.document import markdown
from scheduler.config.keys import KEYS, TOP_LEVEL
from scheduler.config.sources import OTHER_VARIABLES
from scheduler.domain.node import NodeAddress
from scheduler.domain.placement import Strategy
from scheduler.errors import ConfigurationError

WriteFile = Callable[..., Path]

AGENTENV_FILE: dict[str, Any] = {
    "log_level": "debug",
    "log_format": "json",
    "gateway": {"http_listen_addr": ":8080", "request_timeout": "90s"},
    "scheduler": {
        "grpc_listen_addr": ":9090",
        "metrics_listen_addr": "",
        "strategy": "round_robin",
        "report_ttl": "30s",
        "binding_ttl": "30s",
        "redis_addr": "redis:6379",
        "artifact_store_capacity": 500,
        "nodes": [{"id": "local-node", "endpoint": "http://127.0.0.1:8000"}],
        "discovery": {"mode": "static", "kubernetes": {"namespace": "", "port": 0, "scheme": "http"}},
        "node_resource_limit": {"max_sandbox_count": 100, "max_cpu_used_percent": None},
    },
}


@pytest.fixture
def write_file(tmp_path: Path) -> WriteFile:
    def write(content: object, name: str = "config.json") -> Path:
        file = tmp_path / name
        file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return file

    return write


def test_agentenvs_own_file_is_accepted_as_it_is(write_file: WriteFile) -> None:
    configuration = load_configuration(config_file=write_file(AGENTENV_FILE), environment={})
    settings = configuration.settings
    assert configuration.warnings == ()
    assert settings.grpc.listen == ListenAddress("", 9090)
    assert settings.metrics.listen == ListenAddress("127.0.0.1", 9101)
    assert settings.ledger.binding_ttl_ms == 30_000
    assert settings.ledger.artifact_store_capacity == 500
    assert settings.ledger.node_resource_limit.max_sandbox_count == 100
    assert settings.ledger.node_resource_limit.max_cpu_used_percent is None
    assert settings.discovery.nodes == (NodeAddress("local-node", "http://127.0.0.1:8000"),)
    assert settings.logging.level is LogLevel.DEBUG


def test_agentenvs_variables_are_understood() -> None:
    settings = load_settings(
        environment={
            "SCHEDULER_GRPC_LISTEN_ADDR": ":9090",
            "SCHEDULER_METRICS_LISTEN_ADDR": ":9101",
            "SCHEDULER_STRATEGY": "random",
            "SCHEDULER_BINDING_TTL": "1m",
            "SCHEDULER_PLACEMENT_RESERVATION_TTL": "5m",
            "SCHEDULER_REDIS_ADDR": "redis:6379",
            "SCHEDULER_ARTIFACT_STORE_CAPACITY": "7",
            "SCHEDULER_ARTIFACT_LOOKUP_NODE_LIMIT": "3",
            "SCHEDULER_GROUPED_ROUND_ROBIN_MAX_SANDBOX_COUNT": "8",
            "SCHEDULER_GROUPED_ROUND_ROBIN_MAX_CPU_COUNT": "16",
            "SCHEDULER_GROUPED_ROUND_ROBIN_MAX_MEMORY_MB": "1024",
            "LOG_LEVEL": "error",
        }
    )
    assert settings.metrics.listen == ListenAddress("", 9101)
    assert settings.ledger.strategy is Strategy.RANDOM
    assert settings.ledger.placement_reservation_ttl_ms == 300_000
    assert settings.ledger.artifact_lookup_node_limit == 3
    assert settings.ledger.groups.max_memory_mb == 1024
    assert settings.logging.level is LogLevel.ERROR


def test_option_wins_over_environment_over_file_over_default(write_file: WriteFile) -> None:
    file = write_file({"scheduler": {"strategy": "random", "domain": "from-file", "report_ttl": "10s"}})
    configuration = load_configuration(
        config_file=file,
        options={"strategy": "least_loaded", "domain": None},
        environment={"SCHEDULER_STRATEGY": "round_robin", "SCHEDULER_DOMAIN": "from-environment"},
    )
    assert configuration.settings.ledger.strategy is Strategy.LEAST_LOADED
    assert configuration.settings.store.domain == "from-environment"
    assert configuration.settings.ledger.report_ttl_ms == 10_000
    sources = {entry.key.path: entry.source for entry in configuration.describe()}
    assert sources["strategy"] == "option"
    assert sources["domain"] == "SCHEDULER_DOMAIN"
    assert sources["report_ttl"] == f"file {file}"
    assert sources["binding_ttl"] == "default"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('{"scheduler": {"domain": "a", "Domain": "b"}}', "scheduler.domain: found 'domain, Domain'"),
        ('{"scheduler": {"domain": "a", "domain": "b"}}', "scheduler.domain: found 'domain, domain'"),
        ('{"scheduler": {}, "SCHEDULER": {}}', "scheduler: found 'scheduler, SCHEDULER'"),
        ('{"log_level": "info", "LOG_LEVEL": "debug"}', "log_level: found 'log_level, LOG_LEVEL'"),
        ('{"scheduler": {"http": {"port": 1, "port": 2}}}', "scheduler.http.port: found 'port, port'"),
    ],
)
def test_a_key_that_the_file_gives_twice_is_refused(write_file: WriteFile, content: str, told: str) -> None:
    file = write_file(content)
    with pytest.raises(ConfigurationError) as raised:
        load_settings(config_file=file, environment={})
    assert raised.value.detail == f"configuration: {told} (file {file}); must be a member that is given once"


def test_faults_of_the_files_form_are_told_with_all_others(write_file: WriteFile) -> None:
    file = write_file({"scheduler": {"http": "redis://:secret@h", "overcommit": 2, "strategy": "x"}, "log_level": "y"})
    with pytest.raises(ConfigurationError) as raised:
        load_settings(config_file=file, environment={})
    told = raised.value.detail
    assert told.startswith("configuration: 4 faults")
    assert f"scheduler.overcommit: found 2 (file {file}); must be a table of keys" in told
    assert "secret" not in told


def test_the_environment_may_name_the_file(write_file: WriteFile) -> None:
    file = write_file('[scheduler]\nstrategy = "random"\n', "config.toml")
    assert load_settings(environment={"SCHEDULER_CONFIG": str(file)}).ledger.strategy is Strategy.RANDOM


def test_blank_variables_are_ignored() -> None:
    assert load_settings(environment={"SCHEDULER_STRATEGY": " ", "SCHEDULER_BINDING_TTL": ""}) == load_settings(
        environment={}
    )


def test_kubernetes_service_links_are_not_taken_for_ports() -> None:
    environment = {"SCHEDULER_HTTP_PORT": "tcp://10.0.0.1:8090", "SCHEDULER_GRPC_PORT": "tcp://10.0.0.1:9090"}
    assert load_settings(environment=environment).http.listen.port == 8090


def test_a_variable_that_is_likely_misspelt_is_warned_about() -> None:
    unread = {
        "SCHEDULER_STRATAGY": "random",
        "SCHEDULER_DEFAULT_HTTP_PRT": "1",
        "SCHEDULER_HTTP_API_KEYS": "f",
    }
    passing = {
        **dict.fromkeys(OTHER_VARIABLES, "x"),
        "SCHEDULER_REDIS_ADDR": "embedded",
        "SCHEDULER_BINDING_TTLS": " ",
        "SCHEDULER_SOMETHING_OF_AGENTENV": "1",
        "SCHEDULER_HTTPS_PORT": "tcp://10.0.0.1:443",
        "SCHEDULER_HTTP_SERVICE_HOST": "10.0.0.1",
        "SCHEDULER_HTTP_SERVICE_PORT": "8090",
        "SCHEDULER_GRPC_PORT_9090_TCP_PORT": "9090",
        "OTHER_STRATAGY": "x",
    }
    environment = {name: value for name, value in (unread | passing).items() if name != "SCHEDULER_CONFIG"}
    assert load_configuration(environment=environment).warnings == (
        "the variable `SCHEDULER_DEFAULT_HTTP_PRT` is not read; did you mean `SCHEDULER_DEFAULT_HTTP_PORT`?",
        "the variable `SCHEDULER_HTTP_API_KEYS` is not read; did you mean `SCHEDULER_API_KEYS_FILE`?",
        "the variable `SCHEDULER_STRATAGY` is not read; did you mean `SCHEDULER_STRATEGY`?",
    )


def test_every_variable_that_the_product_reads_is_known() -> None:
    texts = (file.read_text(encoding="utf-8") for file in (Path(__file__).parents[2] / "scheduler").rglob("*.py"))
    named = {name for text in texts for name in re.findall(r'"(SCHEDULER_[A-Z0-9_]*[A-Z0-9])"', text)}
    of_keys = {name for key in KEYS.values() for name in key.environment}
    assert {"SCHEDULER_URL", "SCHEDULER_CONFIG"} <= named - of_keys <= OTHER_VARIABLES


def test_an_error_says_which_variable_or_file_it_came_from(write_file: WriteFile) -> None:
    file = write_file({"scheduler": {"report_ttl": 30}})
    with pytest.raises(ConfigurationError) as raised:
        load_settings(config_file=file, environment={"SCHEDULER_BINDING_TTL": "soon"})
    assert "binding_ttl: found 'soon' (SCHEDULER_BINDING_TTL)" in raised.value.detail
    assert f"report_ttl: found 30 (file {file}); must be a duration" in raised.value.detail


def test_member_names_match_in_any_case_as_in_go(write_file: WriteFile) -> None:
    file = write_file({"Scheduler": {"Strategy": "random", "Discovery": {"MODE": "heartbeat"}}})
    settings = load_settings(config_file=file, environment={})
    assert settings.ledger.strategy is Strategy.RANDOM
    assert settings.ledger.self_registration


def test_unknown_members_pass_but_a_likely_typo_is_warned_about(write_file: WriteFile) -> None:
    file = write_file(
        {
            "log_levle": "info",
            "strategy": "random",
            "fleet": {"a": 1},
            "scheduler": {
                "stategy": "random",
                "log_level": "info",
                "something_of_agentenv": True,
                "overcommit": {"cpus": 2},
                "templates": {"declared": {"learned": {"cpu_count": 1, "memory_mb": 1}}},
            },
        }
    )
    configuration = load_configuration(config_file=file, environment={})
    assert configuration.settings.ledger.strategy is Strategy.ROUND_ROBIN
    assert sorted(configuration.warnings) == [
        "`log_levle` is not read; did you mean `log_level`?",
        "`scheduler.log_level` is not read; it belongs beside the section, at the top of the file",
        "`scheduler.overcommit.cpus` is not read; did you mean `overcommit.cpu`?",
        "`scheduler.stategy` is not read; did you mean `strategy`?",
        "`strategy` stands beside the section `scheduler`, where it is not read; it belongs inside",
    ]


def test_nodes_that_report_over_grpc_cannot_list_themselves_and_the_start_says_so() -> None:
    heartbeat = {"SCHEDULER_DISCOVERY_MODE": "heartbeat"}
    [warning] = load_configuration(environment=heartbeat).warnings
    assert "node is not in scheduler node list" in warning
    assert load_configuration(environment=heartbeat | {"SCHEDULER_GRPC_ENABLED": "false"}).warnings == ()
    assert load_configuration(environment={}).warnings == ()


@pytest.mark.parametrize(
    ("content", "name", "complaint"),
    [
        ("{", "config.json", "is not JSON"),
        ("a = ", "config.toml", "is not TOML"),
        ("[]", "config.json", "must hold an object"),
        ('{"scheduler": []}', "config.json", "scheduler: found [] (file"),
        ('{"scheduler": {"overcommit": 2}}', "config.json", "scheduler.overcommit: found 2 (file"),
        ("[" * 100_000, "config.json", "is not JSON"),
    ],
)
def test_a_broken_file_is_named(write_file: WriteFile, content: str, name: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load_settings(config_file=write_file(content, name), environment={})
    assert complaint in raised.value.detail
    assert name in raised.value.detail


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.json cannot be read"):
        load_settings(config_file=tmp_path / "nowhere.json", environment={})


def test_an_unknown_key_among_the_options_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no configuration key named stratgy"):
        load_settings(options={"stratgy": "random"}, environment={})


def test_every_variable_belongs_to_one_key() -> None:
    variables = [variable for key in KEYS.values() for variable in key.environment]
    assert len(variables) == len(set(variables))


def test_describe_hides_the_ledgers_password() -> None:
    configuration = load_configuration(options={"redis_addr": "rediss://app:hunter2@host/0"}, environment={})
    shown = {entry.key.path: entry.value for entry in configuration.describe()}
    assert shown["redis_addr"] == "rediss://app:***@host/0"
    assert "hunter2" not in repr(shown)


@pytest.mark.parametrize("path", [path for path, key in KEYS.items() if key.default not in (None, "")])
def test_what_a_key_shows_is_what_a_file_may_say(path: str) -> None:
    key = KEYS[path]
    assert key.kind.read(key.shown(key.default)) == key.default


ROOT = Path(__file__).parents[2]
_EXAMPLES = [
    *(file for file in sorted((ROOT / "deploy").rglob("*.toml"))),
    *(file for file in sorted((ROOT / "deploy/kubernetes").rglob("config.json"))),
    *(
        file
        for file in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
        if "```toml" in file.read_text("utf-8")
    ),
]


@pytest.mark.parametrize("file", _EXAMPLES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_every_configuration_that_we_show_names_keys_that_exist(file: Path) -> None:
    content = file.read_text("utf-8")
    shown = re.findall(r"```toml\n(.*?)```", content, re.DOTALL) if file.suffix == ".md" else [content]
    for text in shown:
        document = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
        assert set(_leaves(document)) <= {path if path in TOP_LEVEL else f"scheduler.{path}" for path in KEYS}


def _leaves(table: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in table.items():
        path = f"{prefix}{name}"
        if isinstance(value, dict) and path.removeprefix("scheduler.") not in KEYS:
            yield from _leaves(value, f"{path}.")
        else:
            yield path


def test_the_page_of_the_docs_has_every_key_variable_and_default() -> None:
    project_root = Path(__file__).parents[2]
    page = (project_root / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert page.endswith("\n\n" + markdown()), "run: python -m scheduler.config.document docs/configuration.md"
    for path, key in KEYS.items():
        assert f"`{path}`" in page
        assert all(f"`{variable}`" in page for variable in key.environment)


def test_only_logging_stands_beside_the_section() -> None:
    assert {path for path in KEYS if path.startswith("log_")} == TOP_LEVEL


def test_the_settings_say_where_each_of_the_ledger_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "secret place" / "scheduler.toml"
    file.parent.mkdir()
    file.write_text(
        '[scheduler]\nstrategy = "random"\nreport_ttl = "20s"\nbinding_ttl = "50s"\n[scheduler.affinity]\nslack = 0.1\n'
    )
    environment = {
        "SCHEDULER_REPORT_TTL": "25s",
        "SCHEDULER_DEFAULT_FILL_TO": "0.5",
        "SCHEDULER_DISCOVERY_MODE": "heartbeat",
    }
    found = load_configuration(config_file=file, options={"strategy": "least_loaded"}, environment=environment)
    assert found.settings.ledger_sources == {
        "strategy": "option",
        "report_ttl_ms": "environment SCHEDULER_REPORT_TTL",
        "binding_ttl_ms": "file scheduler.toml",
        "affinity.slack": "file scheduler.toml",
        "fill_to": "image SCHEDULER_DEFAULT_FILL_TO",
        "self_registration": "environment SCHEDULER_DISCOVERY_MODE",
    }


@pytest.mark.parametrize("address", ["user:s3cret@host:1", "user:s3@cret@host"])
def test_a_refused_address_is_told_without_its_password(address: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_settings(environment={"SCHEDULER_REDIS_ADDR": address})
    told = str(refused.value) + str(refused.value.facts)
    assert "cret" not in told
    assert "user:***@" in told


def test_json_without_end_is_no_list_of_nodes() -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_settings(environment={"SCHEDULER_NODES": "[" * 100_000})
    assert refused.value.facts["errors"][0]["field"] == "nodes"
