"""The units of deploy/systemd are ones that systemd takes, start what there is, and leave little to attack."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from scheduler.config import load_configuration
from tests.support.servers import RedisServer

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/systemd"
UNITS = {path.name: path for path in sorted(FOLDER.glob("*.service"))}
REPLICA, LEDGER = "agentenv-scheduler@.service", "agentenv-ledger.service"

Unit = dict[str, list[tuple[str, str]]]


def read_unit(path: Path) -> Unit:
    """Section → its assignments in order; ValueError for a line that is none of systemd's forms."""
    sections: Unit = {}
    current: list[tuple[str, str]] | None = None
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if section := re.fullmatch(r"\[(\w+)\]", line):
            current = sections.setdefault(section[1], [])
        elif (assigned := re.fullmatch(r"([A-Z]\w+)=(.*)", line)) and current is not None:
            current.append((assigned[1], assigned[2]))
        else:
            raise ValueError(f"{path.name}: {line}")
    return sections


def values(unit: Unit, name: str) -> list[str]:
    return [value for assignments in unit.values() for key, value in assignments if key == name]


@pytest.fixture
def verifiable(tmp_path: Path) -> Path:
    """The units with programs that are installed here."""
    for path in UNITS.values():
        text = re.sub(r"^(Exec\w+=)\S+", r"\1/bin/true", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        (tmp_path / path.name).write_text(re.sub(r"^Documentation=.*\n", "", text, flags=re.MULTILINE))
    return tmp_path


def systemd_analyze(*words: str) -> subprocess.CompletedProcess[str]:
    if (program := shutil.which("systemd-analyze")) is None:
        pytest.skip("systemd-analyze is not installed")
    return subprocess.run([program, *words], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("name", UNITS)
def test_systemd_takes_it(name: str, verifiable: Path) -> None:
    shown = name.replace("@.", "@1.")
    if shown != name:
        (verifiable / name).rename(verifiable / shown)
    judged = systemd_analyze("verify", "--man=no", str(verifiable / shown))
    assert judged.returncode == 0, judged.stderr
    assert str(verifiable) not in judged.stderr, judged.stderr


def test_what_systemd_does_not_take_is_found_out(verifiable: Path) -> None:
    broken = verifiable / "broken.service"
    broken.write_text((verifiable / LEDGER).read_text().replace("PrivateTmp=", "PrivatTmp="))
    judged = systemd_analyze("verify", "--man=no", str(broken))
    assert "PrivatTmp" in judged.stderr
    assert str(verifiable) in judged.stderr


@pytest.mark.parametrize("name", UNITS)
def test_little_is_exposed(name: str, verifiable: Path) -> None:
    """systemd's own measure: 0 is safe, 10 is not; its "OK" ends at 4.0."""
    judged = systemd_analyze("security", "--offline=true", "--threshold=20", "--no-pager", str(verifiable / name))
    assert judged.returncode == 0, judged.stdout[-500:] + judged.stderr


@pytest.mark.parametrize("name", UNITS)
def test_what_it_names_is_there(name: str) -> None:
    unit = read_unit(UNITS[name])
    assert set(unit) == {"Unit", "Service", "Install"}
    credentials = {value.partition(":")[0] for value in values(unit, "LoadCredential")}
    used = re.findall(r"%d/([\w.-]+)", UNITS[name].read_text(encoding="utf-8"))
    assert credentials == set(used)
    own = {"scheduler.toml", "ledger.conf"}
    named = set(re.findall(r"/etc/agentenv-scheduler/([\w.-]+)", UNITS[name].read_text(encoding="utf-8")))
    assert named - credentials <= own | {"i.env"}
    assert all((FOLDER / file).exists() for file in named & own)
    for setting in ("DynamicUser", "NoNewPrivileges", "PrivateDevices", "ProtectKernelModules"):
        assert values(unit, setting) == ["yes"]
    assert values(unit, "ProtectSystem") == ["strict"]
    assert values(unit, "CapabilityBoundingSet") == [""]


@pytest.mark.parametrize("number", ["1", "7"])
def test_replicas_of_one_machine_are_told_apart_and_find_their_files(number: str, tmp_path: Path) -> None:
    unit = read_unit(UNITS[REPLICA])
    for file, content in (("redis.password", "x"), ("api-keys.json", '{"keys": []}')):
        (tmp_path / file).write_text(content)
    given = {}
    for assignment in values(unit, "Environment"):
        name, _, value = assignment.partition("=")
        value = value.replace("%d", str(tmp_path)).replace("%i", number).replace("%H", "host")
        given[name] = value.replace("/etc/agentenv-scheduler", str(FOLDER))
    configuration = load_configuration(environment=given)
    settings = configuration.settings
    ports = [settings.http.listen.port, settings.grpc.listen.port, settings.metrics.listen.port]
    assert ports == [8090 + int(number), 9090 + int(number), 9100 + int(number)]
    assert settings.replica.replica_id == f"host-{number}"
    assert settings.store.password_file == tmp_path / "redis.password"
    assert settings.http.api_keys_file == tmp_path / "api-keys.json"
    [stop] = values(unit, "TimeoutStopSec")
    assert 1000 * int(stop) > settings.replica.drain_ms + settings.replica.grace_ms


def test_the_ledgers_configuration_is_one_that_a_server_starts_with(tmp_path: Path) -> None:
    with LedgerServer(tmp_path) as server, server.client() as client:
        wanted = {"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction", "save": ""}
        assert {name: client.config_get(name)[name] for name in wanted} == wanted
        assert client.config_get("requirepass")["requirepass"] == server.password


class LedgerServer(RedisServer):
    """As the unit starts it, in a folder and on a port of this test's own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(password="hunter2")
        self._configuration, self._auth = folder / "ledger.conf", folder / "redis-auth.conf"
        text = (FOLDER / "ledger.conf").read_text(encoding="utf-8")
        self._configuration.write_text(text.replace("/var/lib/agentenv-ledger", str(self.directory)))
        self._auth.write_text('requirepass "hunter2"\nmasterauth "hunter2"\n')

    def command(self) -> list[str]:
        [start] = values(read_unit(UNITS[LEDGER]), "ExecStart")
        _, _, include, _ = start.split()
        own = ["--port", str(self.port), "--bind", "127.0.0.1", "--loglevel", "warning"]
        return [str(self.program), str(self._configuration), include, str(self._auth), *own]


def test_valkey_differs_in_its_program_alone() -> None:
    [start] = values(read_unit(UNITS[LEDGER]), "ExecStart")
    drop_in = values(read_unit(FOLDER / "valkey.conf"), "ExecStart")
    assert drop_in == ["", start.replace("redis-server", "valkey-server")]


def _sections(text: str) -> dict[str, list[str]]:
    """A configuration of HAProxy by its sections' first lines."""
    sections: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line and not line.startswith((" ", "#")):
            sections[line] = []
        elif line.strip() and not line.startswith("#"):
            sections[next(reversed(sections))].append(line)
    return sections


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="haproxy is not installed")
def test_the_balancer_of_one_machine_is_taken_by_haproxy_and_binds_no_other_network(tmp_path: Path) -> None:
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    balancer = _sections((ROOT / "deploy/haproxy.cfg").read_text(encoding="utf-8"))
    for name, lines in _sections(page.partition("```haproxy\n")[2].partition("```")[0]).items():
        replaced = {line.split()[0] for line in lines}
        balancer[name] = lines + [line for line in balancer[name] if line.split()[0] not in replaced]
    text = "\n".join("\n".join([name, *lines]) for name, lines in balancer.items())
    assert "0.0.0.0" not in text
    assert "replica-3" not in text
    file = tmp_path / "haproxy.cfg"
    file.write_text(text + "\n", encoding="utf-8")
    done = subprocess.run(["haproxy", "-c", "-f", str(file)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
