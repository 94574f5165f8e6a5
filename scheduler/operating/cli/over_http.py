"""The operator's words over the HTTP API: `agentenv-scheduler nodes …`, `reservations …`, `summary`, …"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from scheduler.errors import ConfigurationError
from scheduler.operating.cli import add_words
from scheduler.operating.cli.command import seconds
from scheduler.operating.source import Source

# Not an option: what stands on a command line, everybody on the machine can read.
KEY_VARIABLE = "SCHEDULER_API_KEY"
_KEY = re.compile(r"[!-~]{1,4096}")

Url = Annotated[
    str,
    typer.Option(
        envvar="SCHEDULER_URL",
        metavar="URL",
        help="Where the scheduler, or its balancer, answers HTTP.",
    ),
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--api-key-file",
        envvar="SCHEDULER_API_KEY_FILE",
        metavar="FILE",
        help=f"A file that holds an API key and nothing else. Without it the key is taken from {KEY_VARIABLE}.",
    ),
]
CaFile = Annotated[
    Path | None,
    typer.Option(envvar="SCHEDULER_CA_FILE", metavar="FILE", help="PEM: the authority of the scheduler's certificate."),
]
CertFile = Annotated[
    Path | None,
    typer.Option(envvar="SCHEDULER_CERT_FILE", metavar="FILE", help="PEM: a certificate to show to the scheduler."),
]
TlsKeyFile = Annotated[
    Path | None, typer.Option("--key-file", envvar="SCHEDULER_KEY_FILE", metavar="FILE", help="Its private key.")
]
Timeout = Annotated[str, typer.Option(metavar="DURATION", help="How long one question may take.")]


@asynccontextmanager
async def opened(
    url: Url = "http://127.0.0.1:8090",
    api_key_file: KeyFile = None,
    ca_file: CaFile = None,
    cert_file: CertFile = None,
    tls_key_file: TlsKeyFile = None,
    timeout: Timeout = "10s",  # noqa: ASYNC109 - an option, not a deadline of this function
) -> AsyncIterator[Source]:
    from scheduler.operating.http_source import Access, over_http

    if not _is_url(url):
        raise ConfigurationError(f"--url must be a URL such as http://127.0.0.1:8090, not {url!r}")
    access = Access(url, api_key(api_key_file), ca_file, cert_file, tls_key_file)
    async with over_http(access, seconds("--timeout", timeout)) as source:
        yield source


def _is_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in {"http", "https"} and bool(url.hostname) and url.port != 0
    except ValueError:  # a port that is none, brackets without an address
        return False


def api_key(file: Path | None) -> str | None:
    """From the file, else from the environment. Raises ConfigurationError for what no header can carry."""
    if file is None:
        place, key = KEY_VARIABLE, os.environ.get(KEY_VARIABLE, "").strip()
        if not key:
            return None
    else:
        place = str(file)
        try:
            key = file.read_text(encoding="utf-8-sig").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise ConfigurationError(f"the key in {file} cannot be read: {reason}") from error
    if not _KEY.fullmatch(key):
        raise ConfigurationError(f"{place} must hold one API key, of visible ASCII characters, and nothing else")
    return key


def register(app: typer.Typer) -> None:
    add_words(app, opened)
