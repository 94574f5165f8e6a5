"""Log in with a password from a file, read for each new connection: one that was changed needs no restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from redis.credentials import CredentialProvider
from redis.exceptions import AuthenticationError

from scheduler.connection.address import Credentials

UNREADABLE = "the file of the password cannot be read"


def login_arguments(credentials: Credentials, password_file: str | None) -> dict[str, Any]:
    """How a connection of redis-py logs in: by the address, or as the user of the address with the file's password."""
    if password_file is None:
        return {"username": credentials.username, "password": credentials.password}
    return {"credential_provider": PasswordFile(credentials.username, Path(password_file))}


class PasswordFile(CredentialProvider):
    """One small file, on a local disk or in memory as secrets are: reading it holds the loop up no longer than a line
    of log does."""

    def __init__(self, username: str | None, path: Path) -> None:
        self._username = username
        self._path = path

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        try:
            password = self._path.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise AuthenticationError(UNREADABLE) from error
        return (self._username, password) if self._username else (password,)

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        return self.get_credentials()
