"""How to connect to the ledger; every time limit is in milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fakeredis import FakeServer  # slow to import, and only the embedded ledger needs it


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """`pool_size`: connections of the pool in use at once; further calls wait, within their deadline.
    `operation_timeout_ms`: for all attempts of one call together; a request's own deadline may be shorter.
    `attempt_timeout_ms`: how long one attempt waits for its reply before another is made on a new connection.
    `refused_timeout_ms`: how long a call retries a lone server whose port refuses connections.
    `wait_replicas`: how many Redis replicas must have a durable write before it is acknowledged; nothing is placed
    while fewer are known to be online.
    `shebang`: send scripts with `#!lua` (Redis 7 and later; the test suite does).
    `read_addr`: a second address, for example a replica, for plain reads that may lag.
    `upstream_bindings`: write bindings under AgentENV's own keys too (scheduler.ledger.upstream_bindings).
    `password_file`, `sentinel_password_file`: read for each new connection, so that a new password needs no restart.
    `fake_server`: for `embedded`, a server to use instead of the process' shared one.
    """

    pool_size: int = 64
    connect_timeout_ms: int = 1_000
    operation_timeout_ms: int = 5_000
    attempt_timeout_ms: int = 2_000
    refused_timeout_ms: int = 500
    wait_replicas: int = 0
    shebang: bool = False
    read_addr: str | None = None
    upstream_bindings: bool = False
    fake_server: FakeServer | None = None
    password_file: str | None = None
    sentinel_password_file: str | None = None
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    tls_check_hostname: bool = True
