"""The health probe by itself: what it costs, and what it makes of servers that answer oddly."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from scheduler import health_probe

FILE = Path(health_probe.__file__)
SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def answer(status: bytes) -> bytes:
    return frame(1, 4, 1, b"\x88") + frame(0, 0, 1, b"\x00" + len(status).to_bytes(4, "big") + status)


def trailers(code: bytes) -> bytes:
    return frame(1, 5, 1, b"\x88\x00\x0bgrpc-status" + bytes([len(code)]) + code)


def probed(says: bytes, *arguments: str) -> tuple[int, bytes]:
    """Exit status against a server that says this to whoever connects, and what it heard."""
    heard = b""

    def serve(listening: socket.socket) -> None:
        nonlocal heard
        connection, _ = listening.accept()
        with connection:
            connection.sendall(says)
            while received := connection.recv(65_536):
                heard += received

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        status = health_probe.main([f"-addr=127.0.0.1:{listening.getsockname()[1]}", *arguments])
        thread.join()
    return status, heard


def test_it_imports_nothing_of_the_server_and_little_else() -> None:
    names = (
        "import sys; exec(compile(open(sys.argv[1]).read(), 'probe', 'exec'), {'__name__': 'p'}); print(*sys.modules)"
    )
    told = subprocess.run(
        [sys.executable, "-I", "-S", "-c", names, str(FILE)], capture_output=True, text=True, check=True, timeout=60
    )
    modules = {name.partition(".")[0] for name in told.stdout.split()} - {"__main__", "sitecustomize"}
    assert modules <= sys.stdlib_module_names
    assert not modules & {"asyncio", "argparse", "ssl", "typing", "dataclasses", "logging", "pathlib", "site"}


@pytest.mark.parametrize(
    ("says", "status", "told"),
    [
        (SETTINGS + answer(b"\x08\x01"), 0, "status: SERVING"),
        (SETTINGS + frame(6, 0, 0, b"12345678") + answer(b"\x08\x01"), 0, "SERVING"),
        (SETTINGS + frame(7, 0, 0, b"\x7f\xff\xff\xff\0\0\0\0") + answer(b"\x08\x01"), 0, "SERVING"),
        (SETTINGS + frame(0, 8, 1, b"\x03\x00\x00\x00\x00\x02\x08\x01\0\0\0"), 0, "SERVING"),
        (SETTINGS + frame(0, 0, 1, b"\x00\x00\x00") + frame(0, 0, 1, b"\x00\x02\x08\x01"), 0, "SERVING"),
        (SETTINGS + answer(b"\x08\x02"), 4, "status: NOT_SERVING"),
        (SETTINGS + answer(b""), 4, "status: UNKNOWN"),
        (SETTINGS + trailers(b"5"), 3, "NOT_FOUND"),
        (SETTINGS + trailers(b"12"), 3, "UNIMPLEMENTED"),
        (SETTINGS + trailers(b"14"), 3, "status 14"),
        (SETTINGS + frame(1, 5, 1, b"\x88"), 3, "without an answer"),
        (SETTINGS + frame(3, 0, 1, b"\0\0\0\2"), 3, "cancelled the call"),
        (SETTINGS + frame(7, 0, 0, b"\0\0\0\0\0\0\0\0"), 3, "closing the connection"),
        (SETTINGS, 3, "timed out"),
        (b"", 2, "timed out"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", 2, "does not speak HTTP/2"),
    ],
)
def test_every_answer_has_its_exit_status(
    says: bytes, status: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    patience = "20ms" if "timed out" in told else "20s"
    assert probed(says, f"-connect-timeout={patience}", f"-rpc-timeout={patience}")[0] == status
    output = capsys.readouterr()
    assert told in (output.err if status in (2, 3) else output.out)


def test_it_acknowledges_asks_for_the_service_and_gives_its_time() -> None:
    _, heard = probed(
        SETTINGS + frame(6, 0, 0, b"12345678") + answer(b"\x08\x01"), "-service=readiness", "-rpc-timeout=5s"
    )
    assert heard.startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert frame(4, 1, 0, b"") in heard
    assert frame(6, 1, 0, b"12345678") in heard
    assert frame(0, 1, 1, b"\x00\x00\x00\x00\x0b\x0a\x09readiness") in heard
    assert b"/grpc.health.v1.Health/Check" in heard
    assert b"grpc-timeout" in heard


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "-addr must be given"),
        (["-addr"], "needs a value"),
        (["-addr=here"], "HOST:PORT"),
        (["-addr=127.0.0.1:99999"], "HOST:PORT"),
        (["-addr=127.0.0.1:1", "-rpc-timeout=1"], "duration"),
        (["-addr=127.0.0.1:1", "-rpc-timeout=0s"], "above 0"),
        (["-addr=127.0.0.1:1", "-alts"], "no option '-alts'"),
        (["127.0.0.1:1"], "no option"),
        (["-addr=127.0.0.1:1", "-tls", "-tls-ca-cert=/absent.pem"], "file of TLS"),
    ],
)
def test_bad_usage_is_exit_status_1(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert health_probe.main(arguments) == 1
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(("text", "seconds"), [("1s", 1), ("500ms", 0.5), ("1m30s", 90), ("1.5s", 1.5), ("2us", 2e-6)])
def test_durations_are_gos(text: str, seconds: float) -> None:
    read: Callable[[str, str], float] = health_probe._seconds
    assert read("rpc-timeout", text) == pytest.approx(seconds)


def test_long_names_are_told_by_their_length() -> None:
    _, heard = probed(SETTINGS + answer(b"\x08\x01"), f"-service={'n' * 300}")
    message = b"\x0a\xac\x02" + b"n" * 300
    assert frame(0, 1, 1, b"\x00" + len(message).to_bytes(4, "big") + message) in heard
