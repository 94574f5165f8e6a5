"""Translates errors of Redis and its client into errors of the scheduler.

Scripts raise none on purpose: an expected refusal is a status in the reply. `judge` classifies whatever else comes:
whether another attempt can help (`Verdict.retry`), and which error the caller gets otherwise (`Verdict.error`). No text
made here contains the address, which only operators may see.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from redis import exceptions as redis_errors

from scheduler.connection.guard import UnverifiedServer
from scheduler.connection.keys import Keys
from scheduler.connection.password import UNREADABLE
from scheduler.connection.scripts import Script
from scheduler.errors import (
    CommandsWithheld,
    InvalidRequest,
    SchedulerError,
    ScriptError,
    StoreUnavailable,
    StoreUnusable,
    WritesRefused,
)

# Server errors that pass by themselves: a failover, a restart, a slow command, a slot being moved.
_PASSING: Final[Mapping[str, str]] = {
    "READONLY": "the server became a replica",
    "LOADING": "the server is loading its data",
    "BUSY": "the server is busy with a script",
    "TRYAGAIN": "the ledger's slot is being moved",
    "ASK": "the ledger's slot is being moved",
    "MOVED": "the ledger's slot was moved",
    "MASTERDOWN": "the replica has lost its primary",
    "CLUSTERDOWN": "the cluster does not serve the ledger's slot",
    "NOREPLICAS": "the server has fewer replicas than it asks for before it writes",
    "UNBLOCKED": "the server changed its role",
    "NOSCRIPT": "the server does not know the script",
}
# Server errors that an operator must resolve.
_LASTING: Final[Mapping[str, tuple[type[SchedulerError], str]]] = {
    "OOM": (WritesRefused, "the server has reached its maxmemory"),
    "MISCONF": (WritesRefused, "the server cannot write its snapshot and refuses writes"),
    "NOAUTH": (StoreUnusable, "the server needs a password"),
    "WRONGPASS": (StoreUnusable, "the server refuses this user name or password"),
    "NOPERM": (CommandsWithheld, "the server's ACL does not let this user run what the scheduler needs"),
    "CROSSSLOT": (ScriptError, "keys of different slots in one script"),
    "WRONGTYPE": (ScriptError, "a key of the ledger holds another type of value"),
}

_BY_CLASS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (redis_errors.ReadOnlyError, "READONLY"),
    (redis_errors.BusyLoadingError, "LOADING"),
    (redis_errors.TryAgainError, "TRYAGAIN"),
    (redis_errors.MovedError, "MOVED"),
    (redis_errors.AskError, "ASK"),
    (redis_errors.MasterDownError, "MASTERDOWN"),
    (redis_errors.ClusterDownError, "CLUSTERDOWN"),
    (redis_errors.NoScriptError, "NOSCRIPT"),
    (redis_errors.OutOfMemoryError, "OOM"),
    (redis_errors.NoPermissionError, "NOPERM"),
    (redis_errors.ClusterCrossSlotError, "CROSSSLOT"),
)

_CODE = re.compile(r"^-?([A-Z][A-Z_]+)(?: |$)")
# Redis 6.2 wraps the error of a command inside a script: "… @user_script: 3: -READONLY You can't …".
_WRAPPED_CODE = re.compile(r"-([A-Z]{2,}) ")
_LUA_LINE = re.compile(r'(?:user_script|\[string "[^"]*"\]):\s*(\d+):?\s*')
_SCRIPT_TRAILER = re.compile(r",? ?script: (?:[0-9a-f]{40}, )?on @user_script:(\d+)\.?$")
_RUNNING = re.compile(r"^(?:ERR )?Error running script \(call to f_[0-9a-f]{40}\): (?:@user_script: ?(?:\d+|\?): )?")
# Redis 7.0, and those after it.
_WITHHELD_IN_SCRIPT = ("The user executing the script can't", "ACL failure in script")
# Redis 6.2 and 7.0, those after it, and 7.0 of a script.
_KEYS_WITHHELD = re.compile(
    r"permissions to access (one of the keys|a key)|script can't access at least one of the keys"
)
_MAX_CLIENTS = "max number of clients reached"


class ClientClosed(Exception):
    """The client was closed before the call was sent."""


class TooFewReplicas(Exception):
    """WAIT ended before `wanted` replicas had the write."""

    def __init__(self, wanted: int) -> None:
        super().__init__(wanted)
        self.wanted = wanted


@dataclass(frozen=True, slots=True)
class Verdict:
    """`retry`: another attempt may succeed. `relocate`: first look up again which server holds the ledger.
    `refused`: nothing listens at the address."""

    error: SchedulerError
    retry: bool = False
    relocate: bool = False
    refused: bool = False

    def of_written(self, wanted: int) -> Verdict:
        """The write was answered, but how many replicas have it is unknown."""
        text = f"written, but it is not known whether {wanted} replicas have it; repeat the same call"
        return replace(self, error=StoreUnavailable(f"the ledger: {text}").at(self.error.where))


def script_is_unknown(reply: object) -> bool:
    """Whether the server answers that it does not know the script: not loaded yet, or flushed."""
    return isinstance(reply, redis_errors.NoScriptError)


def judge(error: BaseException, where: str, script: Script | None = None, key: str | None = None) -> Verdict:
    """The meaning of `error`, raised while talking to the ledger at `where` (already redacted) about its `key`."""
    if isinstance(error, SchedulerError):
        return Verdict(error)
    if isinstance(error, redis_errors.ResponseError) and _KEYS_WITHHELD.search(str(error)):
        pattern = f", {Keys.beside(key).pattern}" if key and key.startswith("aenv:{") else ""
        text = f"the server's ACL does not let this user read and write the ledger's keys{pattern}"
        verdict = Verdict(CommandsWithheld(f"the ledger: {text}"))
    else:
        verdict = _judge(error, script)
    verdict.error.at(where)
    return verdict


def _judge(error: BaseException, script: Script | None) -> Verdict:
    if isinstance(error, TooFewReplicas):
        text = f"written, but fewer than {error.wanted} replicas have it; repeat the same call"
        return Verdict(StoreUnavailable(f"the ledger: {text}"), retry=True)
    if isinstance(error, ClientClosed):
        return Verdict(StoreUnavailable("the ledger: this client is closed"))
    if isinstance(error, UnverifiedServer):
        text = "another server took over; its contents are being checked"
        return Verdict(StoreUnavailable(f"the ledger: {text}"), retry=True)
    if isinstance(error, UnicodeEncodeError):
        return Verdict(InvalidRequest("a text holds characters that are no valid Unicode"))
    if isinstance(error.__cause__, redis_errors.RedisError) and type(error) is redis_errors.ConnectionError:
        return _judge(error.__cause__, script)  # what a server says while a Unix socket is connected to is wrapped so
    if isinstance(error, redis_errors.AuthenticationError):
        return Verdict(_refused_login(error))
    code = _code_of(error)
    if code in _PASSING:
        relocate = code in ("READONLY", "MOVED", "CLUSTERDOWN", "MASTERDOWN", "UNBLOCKED")
        unavailable = WritesRefused if code == "NOREPLICAS" else StoreUnavailable
        return Verdict(unavailable(f"the ledger: {_PASSING[code]}"), retry=True, relocate=relocate)
    if code in _LASTING:
        error_class, text = _LASTING[code]
        return Verdict(error_class(f"the ledger: {text}{_withheld(error, code, script)}"))
    if isinstance(error, redis_errors.ResponseError):
        return _judge_reply(error, script)
    if isinstance(error, redis_errors.DataError):
        return Verdict(ScriptError(f"{_named(script)}an argument is neither text, number nor bytes"))
    if isinstance(error, redis_errors.InvalidResponse):
        return Verdict(StoreUnusable("the ledger does not speak Redis"))
    if _is_certificate_error(error):
        return Verdict(StoreUnusable("the ledger: its TLS certificate is not trusted"))
    if isinstance(error, TimeoutError | redis_errors.TimeoutError):
        return Verdict(StoreUnavailable("the ledger did not answer in time"), retry=True, relocate=True)
    if isinstance(error, redis_errors.ConnectionError | redis_errors.RedisClusterException | OSError):
        text = "accepts no more clients" if _MAX_CLIENTS in str(error) else "cannot be reached"
        return Verdict(StoreUnavailable(f"the ledger {text}"), retry=True, relocate=True, refused=_is_refused(error))
    return Verdict(ScriptError(f"{_named(script)}unexpected {type(error).__name__}"))


def _code_of(error: BaseException) -> str:
    for error_class, code in _BY_CLASS:
        if isinstance(error, error_class):
            return code
    if not isinstance(error, redis_errors.ResponseError):
        return ""
    text = str(error)
    if "non local key in a cluster node" in text:
        return "TRYAGAIN"
    if text.startswith(_WITHHELD_IN_SCRIPT):
        return "NOPERM"
    if "unauthenticated multibulk length" in text or "unauthenticated bulk length" in text:
        return "NOAUTH"  # said of a long command, before the server has read it
    code_match = _CODE.match(text)
    if code_match and code_match[1] != "ERR":
        return code_match[1]
    wrapped = _WRAPPED_CODE.search(text)
    return wrapped[1] if wrapped and wrapped[1] in {**_PASSING, **_LASTING} else ""


def _judge_reply(error: redis_errors.ResponseError, script: Script | None) -> Verdict:
    text = str(error)
    if script is None:
        return Verdict(ScriptError(f"the ledger refused a command: {text}"))
    return Verdict(ScriptError(f"{_named(script)}{_placed(text, script)}"))


def _placed(text: str, script: Script) -> str:
    """The interpreter's message, with our file's line instead of the sent text's."""
    # The embedded interpreter appends its stack; the first line is the message.
    message = _RUNNING.sub("", text).removeprefix("ERR ").partition("\n")[0]
    trailer = _SCRIPT_TRAILER.search(message)
    line = _LUA_LINE.search(message) or trailer
    message = _LUA_LINE.sub("", _SCRIPT_TRAILER.sub("", message)).strip()
    origin = script.origin(int(line[1])) if line else None
    return f"{origin}: {message}" if origin else message


def _named(script: Script | None) -> str:
    return f"{script.name}: " if script else ""


def _withheld(error: BaseException, code: str, script: Script | None) -> str:
    """What a NOPERM error tells: what the ACL withholds, or the script line that needs it, which is what an operator
    asks next."""
    if code != "NOPERM":
        return ""
    command = re.search(r"run the '([^']+)' command", str(error))
    if command:
        return f" ({command[1]})"
    line = _LUA_LINE.search(str(error)) or _SCRIPT_TRAILER.search(str(error))
    origin = script.origin(int(line[1])) if script and line else None
    return f" ({origin})" if origin else ""


def _refused_login(error: BaseException) -> StoreUnusable:
    text = str(error).lower()
    if "authentication required" in text or "noauth" in text:
        return StoreUnusable(f"the ledger: {_LASTING['NOAUTH'][1]}")
    if UNREADABLE in text:
        return StoreUnusable("the ledger: the file of its password (store.password_file) cannot be read")
    if "without any password" in text or "no password is set" in text:
        return StoreUnusable("the ledger: a password is configured, but the server has none")
    return StoreUnusable(f"the ledger: {_LASTING['WRONGPASS'][1]}")


def _is_refused(error: BaseException | None) -> bool:
    """Nothing listens: the port refuses connections, or the socket's file does not exist."""
    while error is not None:
        if isinstance(error, ConnectionRefusedError | FileNotFoundError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _is_certificate_error(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False
