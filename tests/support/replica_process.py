"""A real replica: `agentenv-scheduler serve` as a process, on free ports, its log read line by line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from tests.support.nursery import Forked, nursery
from tests.support.warden import warden

ROOT = Path(__file__).parents[2]
# Limits for what has gone wrong: on a machine that has other work, everything takes several times as long.
START_SECONDS = 60.0
STOP_SECONDS = 60.0
PATIENCE_SECONDS = 60.0


class ReplicaProcess:
    """Started by `start()` or `with`; ended by its process id. `log` holds every event so far.

    It is forked from a process that has imported everything (tests.support.nursery), unless it must be a program of
    its own: `anew`, or with a limit of its own on descriptors."""

    def __init__(
        self,
        *arguments: str,
        environment: dict[str, str] | None = None,
        descriptors_max: int | None = None,
        anew: bool = False,
    ) -> None:
        self.arguments: Sequence[str] = arguments
        self.descriptors_max = descriptors_max
        self.anew = anew or descriptors_max is not None
        self.environment = environment or {}
        self.process: subprocess.Popen[str] | Forked | None = None
        self.log: list[dict[str, Any]] = []
        self.other_lines: list[str] = []
        self._reader: threading.Thread | None = None

    def start(self) -> Self:
        """Start it and wait until it listens. RuntimeError with its output when it ends instead."""
        self.spawn()
        self.wait_for_event("listening", START_SECONDS)
        return self

    def spawn(self) -> None:
        """Start it and wait for nothing."""
        common = ["--log-format", "json", "--port", "0", "--grpc-port", "0", "--metrics-port", "0"]
        common += ["--set", "shutdown.drain=0s"]  # no balancer looks elsewhere first, unless the test says so
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SCHEDULER_")}
        command = ["serve", *common, *self.arguments]
        if self.anew:
            self.process = self._program(command, environment | self.environment)
        else:
            self.process = nursery().fork(command, environment | self.environment, ROOT)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _program(self, command: Sequence[str], environment: dict[str, str]) -> subprocess.Popen[str]:
        limited: list[str] = []
        if self.descriptors_max is not None:
            limited = ["sh", "-c", f'ulimit -n {self.descriptors_max} && exec "$@"', "sh"]
        started = subprocess.Popen(
            [*limited, sys.executable, "-m", "scheduler", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
        )
        warden().started(started.pid)
        return started

    def _read(self) -> None:
        assert self.process is not None
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                try:
                    self.log.append(json.loads(line))
                except ValueError:
                    self.other_lines.append(line.rstrip("\n"))

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def listening(self) -> dict[str, Any]:
        """The event that tells where it listens."""
        return self.wait_for_event("listening", START_SECONDS)

    @property
    def url(self) -> str:
        return str(self.listening["http"])

    @property
    def grpc_address(self) -> str:
        return str(self.listening["grpc"])

    @property
    def metrics_url(self) -> str:
        return str(self.listening["metrics"])

    def wait_for_event(self, message: str, seconds: float = PATIENCE_SECONDS, **fields: Any) -> dict[str, Any]:
        """The first event of this name and with these fields, now or soon."""

        def found() -> dict[str, Any] | None:
            wanted = {"message": message, **fields}
            return next((event for event in list(self.log) if wanted.items() <= event.items()), None)

        deadline = time.monotonic() + seconds
        while True:
            if (event := found()) is not None:
                return event
            ended = self.process is not None and self.process.poll() is not None
            if ended and self._reader is not None:
                self._reader.join(STOP_SECONDS)
                if found() is None:
                    raise RuntimeError(f"it ended without saying {message!r}:\n{self.output()}")
            elif time.monotonic() > deadline:
                raise TimeoutError(f"it did not say {message!r} within {seconds} s:\n{self.output()}")
            time.sleep(0.01)

    def output(self) -> str:
        return "\n".join([*map(json.dumps, self.log), *self.other_lines])

    def wait_until_ready(self, seconds: float = PATIENCE_SECONDS) -> None:
        self.wait_for_status("/readyz", 200, seconds)

    def wait_for_status(self, path: str, status: int, seconds: float = PATIENCE_SECONDS) -> dict[str, Any]:
        """Ask until it answers so; the last answer is in the error otherwise."""
        deadline = time.monotonic() + seconds
        while True:
            response = httpx.get(self.url + path, timeout=30.0)
            if response.status_code == status:
                body: dict[str, Any] = response.json()
                return body
            if time.monotonic() > deadline:
                raise TimeoutError(f"{path} still answers {response.status_code}: {response.text}\n{self.output()}")
            time.sleep(0.05)

    def send(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            os.kill(self.process.pid, number)

    def wait(self, seconds: float = STOP_SECONDS) -> int:
        """Its exit status, all of its output read."""
        assert self.process is not None
        status = self.process.wait(seconds)
        if self.anew:
            warden().ended(self.process.pid)
        if self._reader is not None:
            self._reader.join(STOP_SECONDS)
        return status

    def stop(self) -> int:
        """As a supervisor would: SIGTERM, then patience."""
        self.send(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is None:
            return
        self.send(signal.SIGCONT)
        self.send(signal.SIGKILL if kind else signal.SIGTERM)
        try:
            self.wait()
        finally:
            self.send(signal.SIGKILL)
