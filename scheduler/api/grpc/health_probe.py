"""`grpc_health_probe` for images that have Python anyway: exit status 0 when the server is SERVING.

    agentenv-scheduler grpc-health-probe -addr=127.0.0.1:9090 [-service=NAME] [-connect-timeout=1s] [-rpc-timeout=1s]

Options and exit statuses are those of the well-known Go program, as far as probes use them: 1 bad
usage, 2 not reachable, 3 no answer in time or an error, 4 not SERVING.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from scheduler.domain.duration import parse_duration_ms


class Exit(IntEnum):
    SERVING = 0
    USAGE = 1
    UNREACHABLE = 2
    RPC_FAILED = 3
    NOT_SERVING = 4


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]  # argparse would leave with 2, which means unreachable
        self.print_usage(sys.stderr)
        sys.stderr.write(f"{self.prog}: {message}\n")
        raise SystemExit(Exit.USAGE)


def _seconds(text: str) -> float:
    try:
        return parse_duration_ms(text) / 1000
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _pem(name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="grpc-health-probe", description="Ask a gRPC server whether it is serving.", allow_abbrev=False
    )
    parser.add_argument("-addr", "--addr", required=True, help="host:port")
    parser.add_argument("-service", "--service", default="", help="service name; empty asks for the whole server")
    parser.add_argument("-connect-timeout", "--connect-timeout", type=_seconds, default=1.0, help="such as 1s")
    parser.add_argument("-rpc-timeout", "--rpc-timeout", type=_seconds, default=1.0, help="such as 1s")
    parser.add_argument("-tls", "--tls", action="store_true", help="speak TLS")
    parser.add_argument("-tls-ca-cert", "--tls-ca-cert", type=_pem, help="PEM file of the authority")
    parser.add_argument("-tls-client-cert", "--tls-client-cert", type=_pem, help="PEM file, for mTLS")
    parser.add_argument("-tls-client-key", "--tls-client-key", type=_pem, help="PEM file, for mTLS")
    return parser


def _channel(options: argparse.Namespace) -> grpc.Channel:
    if not options.tls:
        return grpc.insecure_channel(options.addr)
    credentials = grpc.ssl_channel_credentials(options.tls_ca_cert, options.tls_client_key, options.tls_client_cert)
    return grpc.secure_channel(options.addr, credentials)


def probe(options: argparse.Namespace) -> Exit:
    """One question, one answer, told on standard output or error."""
    with _channel(options) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=options.connect_timeout)
        except grpc.FutureTimeoutError:
            sys.stderr.write(f"failed to connect to {options.addr} within {options.connect_timeout:g}s\n")
            return Exit.UNREACHABLE
        request = health_pb2.HealthCheckRequest(service=options.service)
        try:
            response = health_pb2_grpc.HealthStub(channel).Check(request, timeout=options.rpc_timeout)
        except grpc.RpcError as error:
            sys.stderr.write(f"health check failed: {error.code().name}: {error.details()}\n")
            return Exit.RPC_FAILED
    name = health_pb2.HealthCheckResponse.ServingStatus.Name(response.status)
    sys.stdout.write(f"status: {name}\n")
    return Exit.SERVING if response.status == health_pb2.HealthCheckResponse.SERVING else Exit.NOT_SERVING


def main(arguments: Sequence[str] | None = None) -> int:
    """The console entry; returns the exit status."""
    return probe(_parser().parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
