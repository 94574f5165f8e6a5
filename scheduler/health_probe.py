"""`grpc_health_probe` for an image that has Python anyway: exit status 0 when the server is SERVING.

    grpc_health_probe -addr=127.0.0.1:9090 [-service=NAME] [-connect-timeout=1s] [-rpc-timeout=1s] [-tls …]

Options and exit statuses are those of the well-known Go program, as far as probes use them: 1 bad
usage, 2 not reachable, 3 no answer in time or an error, 4 not SERVING.

An exec probe starts it every few seconds beside the replica and gives it a second, so it costs as little as Python
itself: it imports nothing of the server and no more of the standard library than sockets, and runs with `python -I -S`.
It therefore speaks the few frames of HTTP/2 (RFC 9113) that one call needs by itself. What a server says in its header
blocks is not decoded, apart from a `grpc-status` that is written plainly, which only makes an error's text better.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator, Sequence

TYPE_CHECKING = False  # as `typing` has it, whose import would double what this costs
if TYPE_CHECKING:
    import ssl

SERVING, USAGE, UNREACHABLE, RPC_FAILED, NOT_SERVING = range(5)

_STATUS_NAMES = {0: "UNKNOWN", 1: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}
_HELP = "usage: grpc_health_probe -addr=HOST:PORT [-service=NAME] [-connect-timeout=1s] [-rpc-timeout=1s]\n"
_HELP += "       [-tls] [-tls-ca-cert=FILE] [-tls-client-cert=FILE] [-tls-client-key=FILE] [-tls-server-name=NAME]\n"

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY = 0, 1, 3, 4, 6, 7
_END_STREAM = _ACK = 0x1
_END_HEADERS = 0x4
_STREAM = 1
# What every peer may send without being told that it may send more.
_FRAME_BYTES_MAX = 16_384

_TEXTS = {
    "addr": "",
    "service": "",
    "connect-timeout": "1s",
    "rpc-timeout": "1s",
    "tls-ca-cert": "",
    "tls-client-cert": "",
    "tls-client-key": "",
    "tls-server-name": "",
}
_SWITCHES = ("tls", "tls-no-verify")


class Failed(Exception):
    """The probe ends with this exit status, and says why on standard error."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


# -- options, in Go's spelling ---------------------------------------------------------------------------------------


def _options(arguments: Sequence[str]) -> dict[str, str]:
    """`-name=value`, `-name value`, with one dash or two; a switch stands alone or is `=true`, `=false`."""
    options = dict(_TEXTS)
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or (name not in _TEXTS and name not in _SWITCHES):
            raise Failed(USAGE, f"there is no option {word!r}\n{_HELP}".rstrip())
        if name in _SWITCHES:
            options[name] = "" if value.lower() in ("0", "f", "false") else "true"
        elif equals:
            options[name] = value
        elif rest:
            options[name] = rest.pop(0)
        else:
            raise Failed(USAGE, f"-{name} needs a value")
    if not options["addr"]:
        raise Failed(USAGE, "-addr must be given")
    return options


def _seconds(option: str, text: str) -> float:
    """A duration in Go's form, such as 1s, 500ms or 1m30s."""
    units = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
    total, rest = 0.0, text
    while rest:
        number = rest[: len(rest) - len(rest.lstrip("0123456789."))]
        rest = rest[len(number) :]
        unit = rest[: len(rest) - len(rest.lstrip("hmsuµn"))]
        rest = rest[len(unit) :]
        try:
            total += float(number) * units[unit]
        except (ValueError, KeyError):
            raise Failed(USAGE, f"-{option} must be a duration such as 1s, not {text!r}") from None
    if total <= 0:
        raise Failed(USAGE, f"-{option} must be a duration above 0, not {text!r}")
    return total


def _host_and_port(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise Failed(USAGE, f"-addr must be HOST:PORT, not {address!r}")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


# -- the connection --------------------------------------------------------------------------------------------------


class _Connection:
    """Frames over one socket, each operation within what is left of the time it is given."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._held = b""

    def send(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        self._socket.sendall(_frame(kind, flags, stream, payload))

    def open(self, deadline: float) -> None:
        """Open means that the server has sent its settings: a port that only listens is not reached."""
        self._socket.sendall(_PREFACE + _frame(_SETTINGS, 0, 0, b""))
        kind, _, _, _ = next(self.frames(deadline))
        if kind != _SETTINGS:
            raise ConnectionError("what answers does not speak HTTP/2")

    def frames(self, deadline: float) -> Iterator[tuple[int, int, int, bytes]]:
        """(kind, flags, stream, payload) until the peer closes. SETTINGS and PING are acknowledged on the way."""
        while True:
            head = self._read(9, deadline)
            length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
            if length > _FRAME_BYTES_MAX:
                raise ConnectionError("what answers does not speak HTTP/2")
            payload = self._read(length, deadline)
            if kind in (_SETTINGS, _PING) and not flags & _ACK:
                self.send(kind, _ACK, 0, payload if kind == _PING else b"")
            yield kind, flags, int.from_bytes(head[5:], "big") & 0x7FFFFFFF, payload

    def _read(self, count: int, deadline: float) -> bytes:
        while len(self._held) < count:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError("timed out")
            self._socket.settimeout(remaining)
            received = self._socket.recv(65_536)
            if not received:
                raise ConnectionError("the server closed the connection")
            self._held += received
        taken, self._held = self._held[:count], self._held[count:]
        return taken


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def _connected(options: dict[str, str], deadline: float) -> socket.socket:
    host, port = _host_and_port(options["addr"])
    secured = _tls(options) if options.get("tls") else None
    plain = socket.create_connection((host, port), timeout=max(deadline - time.monotonic(), 0.001))
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return secured.wrap_socket(plain, server_hostname=options["tls-server-name"] or host) if secured else plain


def _tls(options: dict[str, str]) -> ssl.SSLContext:
    import ssl  # costs as much as everything else together, so only when it is asked for

    try:
        context = ssl.create_default_context(cafile=options["tls-ca-cert"] or None)
        if options["tls-client-cert"]:
            context.load_cert_chain(options["tls-client-cert"], options["tls-client-key"] or None)
    except OSError as error:
        raise Failed(USAGE, f"a file of TLS cannot be used: {error}") from error
    if options.get("tls-no-verify"):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


# -- the call --------------------------------------------------------------------------------------------------------


def _literal(name: bytes, value: bytes) -> bytes:
    """A header field that nobody puts into a table (RFC 7541, 6.2.2), both texts as they are."""
    return b"\x00" + _length(name) + name + _length(value) + value


def _length(text: bytes) -> bytes:
    """An integer with a prefix of seven bits (RFC 7541, 5.1)."""
    if len(text) < 127:
        return bytes((len(text),))
    rest, encoded = len(text) - 127, b"\x7f"
    while rest >= 128:
        encoded += bytes((rest % 128 + 128,))
        rest //= 128
    return encoded + bytes((rest,))


def _varint(number: int) -> bytes:
    """A length as protocol buffers write it."""
    encoded = b""
    while number >= 128:
        encoded += bytes((number % 128 + 128,))
        number //= 128
    return encoded + bytes((number,))


def _request(service: str) -> bytes:
    """A HealthCheckRequest (field 1: the service's name) with the five bytes that gRPC puts before a message."""
    name = service.encode()
    message = b"\x0a" + _varint(len(name)) + name if name else b""
    return b"\x00" + len(message).to_bytes(4, "big") + message


def _serving_status(message: bytes) -> int:
    """Field 1 of a HealthCheckResponse; absent is 0."""
    return message[1] if len(message) >= 2 and message[0] == 0x08 else 0


def _check(connection: _Connection, options: dict[str, str], deadline: float) -> int:
    """The status that the server tells for the service."""
    fields = (
        (b":method", b"POST"),
        (b":scheme", b"https" if options.get("tls") else b"http"),
        (b":path", b"/grpc.health.v1.Health/Check"),
        (b":authority", options["addr"].encode()),
        (b"te", b"trailers"),
        (b"grpc-timeout", b"%dm" % max(1, round(1000 * (deadline - time.monotonic())))),
        (b"content-type", b"application/grpc"),
        (b"user-agent", b"agentenv-scheduler-health-probe"),
    )
    request = _request(options["service"])
    if len(request) > _FRAME_BYTES_MAX:
        raise Failed(USAGE, "-service is too long")
    connection.send(_HEADERS, _END_HEADERS, _STREAM, b"".join(_literal(name, value) for name, value in fields))
    connection.send(_DATA, _END_STREAM, _STREAM, request)
    told = b""
    for kind, flags, stream, payload in connection.frames(deadline):
        # A server that stops may still finish what it has begun.
        if kind == _GOAWAY and int.from_bytes(payload[:4], "big") & 0x7FFFFFFF < _STREAM:
            raise Failed(RPC_FAILED, "health check failed: the server is closing the connection")
        if stream != _STREAM:
            continue
        if kind == _RST_STREAM:
            raise Failed(RPC_FAILED, "health check failed: the server cancelled the call")
        if kind == _DATA:
            told += payload[1 : len(payload) - payload[0]] if flags & 0x8 else payload
        if len(told) >= 5 and len(told) >= 5 + int.from_bytes(told[1:5], "big"):
            return _serving_status(told[5:])
        if flags & _END_STREAM:
            raise Failed(RPC_FAILED, f"health check failed: {_reason(payload)}")
    raise AssertionError("frames end by an exception")


def _reason(trailers: bytes) -> str:
    """What trailers say of an error, when they say it plainly."""
    names = {b"5": "NOT_FOUND: the server does not know this service"}
    names[b"12"] = "UNIMPLEMENTED: the server does not implement the gRPC health protocol"
    _, found, rest = trailers.partition(b"grpc-status")
    code = rest[1 : 1 + rest[0]] if found and rest else b""
    return names.get(code, f"status {code.decode()}" if code.isdigit() else "the call ended without an answer")


def probe(options: dict[str, str]) -> int:
    """One question, one answer, told on standard output; `Failed` for everything else."""
    connect_seconds = _seconds("connect-timeout", options["connect-timeout"])
    rpc_seconds = _seconds("rpc-timeout", options["rpc-timeout"])
    connect_by = time.monotonic() + connect_seconds
    is_open = False
    try:
        with _connected(options, connect_by) as connected:
            connection = _Connection(connected)
            connection.open(connect_by)
            is_open = True
            status = _check(connection, options, time.monotonic() + rpc_seconds)
    except (OSError, UnicodeError) as error:  # a host name may be none at all
        if is_open:
            raise Failed(RPC_FAILED, f"health check failed: {error}") from error
        raise Failed(UNREACHABLE, f"failed to connect to {options['addr']}: {error}") from error
    sys.stdout.write(f"status: {_STATUS_NAMES.get(status, status)}\n")
    return SERVING if _STATUS_NAMES.get(status) == "SERVING" else NOT_SERVING


def main(arguments: Sequence[str] | None = None) -> int:
    """The program; returns the exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if {"-h", "-help", "--help"} & set(words):
        sys.stdout.write(_HELP)
        return 0
    try:
        return probe(_options(words))
    except Failed as failed:
        sys.stderr.write(f"{failed}\n")
        return failed.status


if __name__ == "__main__":
    sys.exit(main())
