"""A process of the nursery's ends as one of its own would."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from tests.support.nursery import ROOT, nursery


def test_each_has_its_own_arguments_errors_and_status() -> None:
    for name in ("one.json", "other.json"):
        process = nursery().fork(["serve", "--config", f"/nowhere/{name}"], os.environ, ROOT)
        with process.stderr as lines:
            assert name in lines.read()
        assert process.wait(60) == 2
        assert process.poll() == 2


def test_the_signal_that_ended_it_is_told_and_nothing_before() -> None:
    process = nursery().fork(["serve", "--port", "0", "--grpc-port", "0", "--metrics-port", "0"], os.environ, ROOT)
    with process.stderr:
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait(60) == -signal.SIGKILL
