"""The system's certificates, read once in a test process; a plugin of pytest.

Every client of httpx reads them anew, one for plain HTTP too. That takes about 20 ms of a processor, more than most
tests need for everything else.
"""

from __future__ import annotations

import ssl
from functools import cache
from typing import Any

import httpx

_create = httpx.create_ssl_context


@cache
def _shared(trust_env: bool) -> ssl.SSLContext:
    return _create(trust_env=trust_env)


def _create_or_share(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    """Only what nobody asked for in particular is shared."""
    if verify is True and cert is None:
        return _shared(trust_env)
    return _create(verify=verify, cert=cert, trust_env=trust_env)


httpx._transports.default.create_ssl_context = _create_or_share
