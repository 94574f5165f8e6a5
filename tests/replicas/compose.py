"""docker-compose.yml without Docker: its services as local processes, each on a loopback address of its own.

What the file says is what runs: the same commands, environment, configuration files, secrets and health checks.
Only what a container engine would provide is stood in for: service names become addresses in 127.0.0.0/8, paths
inside a container become paths in a temporary folder, and a program is taken from PATH. Images, users, limits and
read-only roots are not used; `docs/deployment.md` lists them as unverified.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from scheduler import __version__
from tests.support.image import program, read_image
from tests.support.warden import warden

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"
OWN_IMAGE = f"agentenv-scheduler:{__version__}"
HEALTHY_SECONDS = 60.0
STOP_SECONDS = 20.0

_stacks = itertools.count()
_VARIABLE = re.compile(r"\$\{(?P<name>[A-Z_]+)(?P<rest>[:?-][^{}]*)?\}")


def substitute(text: str, variables: Mapping[str, str]) -> str:
    """`${NAME}`, `${NAME:-default}` and `${NAME:?message}`, from the inside out, as docker compose reads them."""

    def value_of(match: re.Match[str]) -> str:
        value, rest = variables.get(match["name"], ""), match["rest"] or ""
        if value:
            return value
        if rest.startswith(":-"):
            return rest[2:]
        if rest.startswith(":?"):
            raise KeyError(f"{match['name']}: {rest[2:]}")
        return ""

    while _VARIABLE.search(text):
        text = _VARIABLE.sub(value_of, text)
    return text


def read_services(path: Path = FILE) -> dict[str, dict[str, Any]]:
    services: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))["services"]
    return services


def read_secrets(path: Path = FILE) -> dict[str, str]:
    """Secret → its file, relative to the repository."""
    secrets = yaml.safe_load(path.read_text(encoding="utf-8"))["secrets"]
    return {name: secret["file"].removeprefix("./") for name, secret in secrets.items()}


def missing_program(service: Mapping[str, Any]) -> str | None:
    """Why a service cannot run here; None when it can."""
    if service.get("image") == OWN_IMAGE:
        return None
    command = [*service.get("entrypoint", ()), *service.get("command", ())]
    if not command:
        return f"the image {service['image']} brings its own command"
    return None if shutil.which(command[0]) else f"{command[0]} is not installed"


@dataclass(slots=True)
class LocalService:
    """One service, ready to run."""

    name: str
    address: str
    command: list[str]
    environment: dict[str, str]
    folder: Path
    health_command: list[str] | None
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment, cwd=self.folder
            )
        warden().started(self.process.pid)

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def is_healthy(self) -> bool:
        """What its health check says; a service without one is healthy while it runs."""
        if self.health_command is None:
            return self.process is not None and self.process.poll() is None
        try:
            checked = subprocess.run(
                self.health_command, env=self.environment, cwd=self.folder, capture_output=True, timeout=10, check=False
            )
        except subprocess.TimeoutExpired:
            return False
        return checked.returncode == 0

    def wait_until_healthy(self, seconds: float = HEALTHY_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not self.is_healthy():
            ended = self.process is None or self.process.poll() is not None
            if ended or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} is not healthy ({self.command}):\n{self.log()[-4_000:]}")
            time.sleep(0.2)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(number)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        warden().ended(self.process.pid)
        self.process = None


class LocalStack:
    """The services of the file whose profile is asked for (and those without one), as far as they can run here.

    `skipped`: service → why it cannot. `environment` is what somebody put into .env. `edit` changes
    the text of configuration files: their intervals, for a test that cannot wait as long as a person."""

    def __init__(
        self,
        folder: Path,
        *,
        profiles: Iterable[str] = (),
        environment: Mapping[str, str] | None = None,
        edit: Callable[[str], str] = str,
    ) -> None:
        self.folder = folder
        self._edit = edit
        subprocess.run([str(ROOT / "deploy/prepare.sh"), str(folder)], check=True, capture_output=True)
        self.variables = dict(environment or {})
        wanted = {
            name: service
            for name, service in read_services().items()
            if not service.get("profiles") or set(service["profiles"]) & set(profiles)
        }
        self.skipped = {name: why for name, service in wanted.items() if (why := missing_program(service))}
        runnable = {name: service for name, service in wanted.items() if name not in self.skipped}
        # A network of this stack's own, so that two on one machine do not meet.
        network = f"127.{64 + os.getpid() % 128}.{(os.getpid() // 128 + 16 * next(_stacks)) % 256}"
        self.addresses = {name: f"{network}.{number}" for number, name in enumerate(wanted, start=2)}
        self.services = {name: self._localise(name, service) for name, service in runnable.items()}

    @property
    def secrets(self) -> Path:
        return self.folder / "deploy/secrets"

    def secret(self, name: str) -> str:
        return (self.secrets / name).read_text(encoding="utf-8").strip()

    def __getitem__(self, name: str) -> LocalService:
        return self.services[name]

    def __enter__(self) -> Self:
        try:
            for service in self.services.values():
                service.start()
            for service in self.services.values():
                if not service.name.endswith("-init"):
                    service.wait_until_healthy()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind:
            for service in self.services.values():
                print(f"--- {service.name}: {service.command}\n{service.log()[-3_000:]}")
        self._stop()

    def _stop(self) -> None:
        for service in reversed(self.services.values()):
            service.stop()

    def _localise(self, name: str, service: Mapping[str, Any]) -> LocalService:
        folder = self.folder / "containers" / name
        image = read_image() if service.get("image") == OWN_IMAGE else None
        paths = {"/tmp": str(folder / "tmp")} | (image.unpack(folder) if image else {})
        (folder / "tmp").mkdir(parents=True)
        for secret in service.get("secrets", ()):
            paths[f"/run/secrets/{secret}"] = str(self.folder / read_secrets()[secret])
        for volume in service.get("volumes", ()):
            source, target = volume.split(":")[:2]
            local = folder / target.lstrip("/")
            paths[target] = str(local)
            if source.startswith("./"):
                local.parent.mkdir(parents=True, exist_ok=True)
                _copy(ROOT / source, local, lambda text: self._addressed(name, self._edit(text)))
            else:
                local.mkdir(parents=True, exist_ok=True)

        # All in one pass: what was put in is not looked at again.
        alternatives = "|".join(re.escape(path) for path in sorted(paths, key=len, reverse=True))
        inside = re.compile(rf"(?<![\w/])(?:{alternatives})(?![\w-])")

        def local_text(text: str) -> str:
            text = self._addressed(name, substitute(text, self.variables).replace("$$", "$"))
            return inside.sub(lambda match: paths[match[0]], text)

        entrypoint = image.entrypoint if image else service.get("entrypoint", [])
        command = program(_from_own_address([local_text(word) for word in [*entrypoint, *service["command"]]]))
        given = (image.environment if image else {}) | service.get("environment", {}) | {"PATH": os.environ["PATH"]}
        environment = {key: local_text(str(value)) for key, value in given.items()}
        test = service.get("healthcheck", {}).get("test")
        return LocalService(
            name=name,
            address=self.addresses[name],
            command=command,
            environment={"PYTHONPATH": f"{ROOT}:{ROOT}/clients/python", "HOME": str(folder), **environment},
            folder=folder,
            health_command=_health_command([local_text(word) for word in test]) if test else None,
        )

    def _addressed(self, name: str, text: str) -> str:
        """Names become addresses; "every interface" and "myself" become the service's own."""
        for other in sorted(self.addresses, key=len, reverse=True):
            text = re.sub(rf"(?<![\w-]){re.escape(other)}(?=[: ]\d)", self.addresses[other], text)
        return re.sub(r"\b(0\.0\.0\.0|127\.0\.0\.1)\b", self.addresses[name], text)


def _copy(source: Path, target: Path, change: Any) -> None:
    if source.is_dir():
        for inside in source.rglob("*"):
            if inside.is_file():
                _copy(inside, target / inside.relative_to(source), change)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(change(source.read_text(encoding="utf-8")), encoding="utf-8")


def _from_own_address(command: Sequence[str]) -> list[str]:
    """Redis' connections come from the address it listens on, as a container's do: others learn it from there."""
    words: list[str] = []
    for word in command:
        if word.startswith("--bind "):
            words += [word, word.replace("--bind ", "--bind-source-addr ")]
        else:
            words.append(re.sub(r"--bind (\S+)", r"--bind \1 --bind-source-addr \1", word))
    return words


def _health_command(test: Sequence[str]) -> list[str]:
    kind, *words = test
    if kind == "CMD-SHELL":
        return ["sh", "-c", words[0]]
    if kind != "CMD":
        raise ValueError(f"a health check starts with CMD or CMD-SHELL, not {kind}")
    return program(words)
