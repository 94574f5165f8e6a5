"""How the store is opened as the configuration says, by a replica and by whoever looks into a ledger without one."""

from __future__ import annotations

import os

from scheduler.config import StoreSettings
from scheduler.store.options import StoreOptions


def store_options(store: StoreSettings) -> StoreOptions:
    """The store's own options, from its group of the configuration."""
    return StoreOptions(
        pool_size=store.pool_size,
        connect_timeout_ms=store.connect_timeout_ms,
        operation_timeout_ms=store.operation_timeout_ms,
        attempt_timeout_ms=store.attempt_timeout_ms,
        wait_replicas=store.wait_replicas,
        read_addr=store.redis_read_addr,
        upstream_bindings=store.upstream_bindings,
        password_file=_text(store.password_file),
        sentinel_password_file=_text(store.sentinel_password_file),
        tls_ca_file=_text(store.tls_ca_file),
        tls_cert_file=_text(store.tls_cert_file),
        tls_key_file=_text(store.tls_key_file),
        tls_check_hostname=store.tls_check_hostname,
    )


def _text(path: os.PathLike[str] | None) -> str | None:
    return None if path is None else os.fspath(path)
