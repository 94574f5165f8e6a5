"""The image in the place of AgentENV's: started, configured and probed as AgentENV's compose file and Kubernetes
manifests do it, its layout stood in for (`tests/support/image.py`)."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from scheduler.config import ListenAddress, load_configuration
from tests.support.image import Image, program, read_image

IMAGE = read_image()
PATIENCE_SECONDS = 60.0
PROBE = ["/grpc_health_probe", "-addr=127.0.0.1:9090"]
# Kubernetes' probes have a second unless the manifest says otherwise, and AgentENV's do not. A machine that runs these
# tests may be busy, so the probe may take longer here; what it costs is held by tests/unit/test_health_probe.py.
PROBE_SECONDS = 20.0

COMPOSE: dict[str, Any] = {
    "arguments": ["-config", "/config/default.json"],
    "environment": {"SCHEDULER_GRPC_LISTEN_ADDR": ":9090", "SCHEDULER_STRATEGY": "round_robin"},
    "path": "/config/default.json",
    "file": {
        "log_level": "info",
        "log_format": "auto",
        "scheduler": {
            "grpc_listen_addr": ":9090",
            "strategy": "round_robin",
            "report_ttl": "30s",
            "binding_ttl": "30s",
            "nodes": [
                {"id": "node-a", "endpoint": "http://agentenv-a:8000"},
                {"id": "node-b", "endpoint": "http://agentenv-b:8000"},
            ],
        },
        "gateway": {"http_listen_addr": ":8080", "scheduler_addr": "scheduler:9090", "request_timeout": "90s"},
    },
}
KUBERNETES: dict[str, Any] = {
    "arguments": ["-config", "/config/scheduler.json"],
    # What Kubernetes gives every pod for the Service of that name.
    "environment": {"AGENTENV_SCHEDULER_PORT": "tcp://10.96.0.9:9090", "KUBERNETES_SERVICE_HOST": ""},
    "path": "/config/scheduler.json",
    "file": {
        "log_level": "info",
        "log_format": "json",
        "scheduler": {
            "grpc_listen_addr": ":9090",
            "strategy": "round_robin",
            "discovery": {
                "mode": "kubernetes",
                "kubernetes": {
                    "namespace": "agentenv-system",
                    "service_name": "agentenv-nodes",
                    "port": 8000,
                    "scheme": "http",
                },
            },
        },
    },
}


class Container:
    """The image's processes on a loopback address of their own, as its network would be."""

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        number = 1 + os.getpid() % 200
        self.address = f"127.{32 + os.getpid() // 200 % 32}.{number}.7"
        self._paths = IMAGE.unpack(folder)
        mounted = folder / manifest["path"].lstrip("/")
        mounted.parent.mkdir(parents=True, exist_ok=True)
        mounted.write_text(self._here(json.dumps(manifest["file"])))
        self._paths[manifest["path"]] = str(mounted)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SCHEDULER_", "LOG_"))}
        given = IMAGE.environment | manifest["environment"] | {"SCHEDULER_HTTP_HOST": self.address}
        given.pop("PATH")
        self.environment = inherited | {name: self._here(value) for name, value in given.items()}
        self._words = program([self._here(word) for word in [*IMAGE.entrypoint, *manifest["arguments"]]])
        self._log = folder / "log"

    def _here(self, text: str) -> str:
        for inside, here in self._paths.items():
            text = text.replace(inside, here)
        text = re.sub(r"^(?=:\d)", self.address, text)
        return text.replace('":9', f'"{self.address}:9').replace("127.0.0.1:9", f"{self.address}:9")

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        with self._log.open("wb") as log:
            process = subprocess.Popen(self._words, stdin=subprocess.DEVNULL, stderr=log, env=self.environment)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()

    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def exec(self, *words: str) -> subprocess.CompletedProcess[str]:
        local = [self._here(word) for word in words]
        return subprocess.run(
            local, env=self.environment, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False
        )

    def wait_until_probed(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.exec(*PROBE).returncode != 0:
            assert process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.05)


@pytest.mark.parametrize("manifest", [COMPOSE, KUBERNETES], ids=["compose", "kubernetes"])
def test_agentenvs_manifests_start_probe_scrape_and_stop_this_image(manifest: dict[str, Any], tmp_path: Path) -> None:
    container = Container(tmp_path, manifest)
    with container.running() as process:
        container.wait_until_probed(process)
        probed = container.exec(*PROBE)
        assert (probed.returncode, probed.stdout) == (0, "status: SERVING\n")
        # Any path, as upstream's listener has it; the Kubernetes file does not name this port at all.
        scraped = httpx.get(f"http://{container.address}:9101/", timeout=PATIENCE_SECONDS)
        assert "agentenv_scheduler_rpc_duration_seconds" in scraped.text
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0, container.log()
        assert container.exec(*PROBE).returncode == 2


def test_the_image_has_what_agentenvs_manifests_name() -> None:
    assert {9090, 9101} <= IMAGE.ports
    assert IMAGE.health_command == PROBE
    content, is_executable = IMAGE.files[PROBE[0]]
    assert is_executable
    assert content.startswith("#!/bin/sh\n")
    assert "/config/default.json" in IMAGE.files
    assert IMAGE.links == {"/scheduler": f"/opt/scheduler/bin/{IMAGE.entrypoint[0]}"}
    for target, source in IMAGE.copied.items():
        assert source.is_file(), target


def configured(
    image: Image, folder: Path, file: dict[str, Any] | None = None, **environment: str
) -> tuple[ListenAddress, ListenAddress]:
    """Where gRPC and metrics listen; `file` is mounted where the image has its own."""
    paths = image.unpack(folder)
    if file is not None:
        Path(paths["/config/default.json"]).write_text(json.dumps({"scheduler": file}))
    given = {name: paths.get(value, value) for name, value in (image.environment | environment).items()}
    settings = load_configuration(environment=given).settings
    return settings.grpc.listen, settings.metrics.listen


def test_the_mounted_file_goes_before_the_image_and_the_operators_environment_before_both(tmp_path: Path) -> None:
    assert configured(IMAGE, tmp_path) == (ListenAddress("", 9090), ListenAddress("", 9101))
    mounted = {"grpc_listen_addr": ":9190", "metrics_listen_addr": "127.0.0.1:9191"}
    assert configured(IMAGE, tmp_path, mounted) == (ListenAddress("", 9190), ListenAddress("127.0.0.1", 9191))
    in_part = configured(IMAGE, tmp_path, {"grpc_listen_addr": ":9190"}, SCHEDULER_METRICS_LISTEN_ADDR=":9291")
    assert in_part == (ListenAddress("", 9190), ListenAddress("", 9291))
    assert configured(IMAGE, tmp_path, mounted, SCHEDULER_GRPC_LISTEN_ADDR=":9290")[0] == ListenAddress("", 9290)


def test_an_image_may_replace_any_default_and_is_named_as_its_source() -> None:
    configuration = load_configuration(environment={"SCHEDULER_DEFAULT_HTTP_PORT": "8097", "SCHEDULER_HTTP_PORT": " "})
    assert configuration.settings.http.listen.port == 8097
    sources = {entry.key.path: entry.source for entry in configuration.describe()}
    assert sources["http.port"] == "SCHEDULER_DEFAULT_HTTP_PORT"
