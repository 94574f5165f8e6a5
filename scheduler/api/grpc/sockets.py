"""The sockets of a gRPC port, which the library keeps to itself: cut, so that the last callers hear UNAVAILABLE.

A stopping `grpc` server resets every call that its application has not yet picked up, and the caller is told CANCELLED,
as if it had given up itself. A connection that ends is UNAVAILABLE to everyone on it. Only for systems that list
a process' descriptors as files (Linux, macOS); elsewhere nothing is cut.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

_DESCRIPTORS = Path("/dev/fd")


def cut_connections(port: int) -> int:
    """End the listening and then all accepted sockets of this local TCP port. How many connections were cut."""
    for found in _sockets_on(port):
        with found:
            if not _has_peer(found):
                _shut(found)
    # Now nobody comes in any more, so this pass sees everyone who did.
    cut = 0
    for found in _sockets_on(port):
        with found:
            if _has_peer(found):
                _shut(found)
                cut += 1
    return cut


def _has_peer(found: socket.socket) -> bool:
    """False for a listening socket, and for a connection that is over already."""
    try:
        found.getpeername()
    except OSError:
        return False
    return True


def _sockets_on(port: int) -> Iterator[socket.socket]:
    """Duplicates, so that the library may close its own meanwhile without another descriptor taking its number."""
    try:
        numbers = [int(entry.name) for entry in _DESCRIPTORS.iterdir() if entry.name.isdecimal()]
    except OSError:
        return
    for number in numbers:
        found = _duplicate(number)
        if found is not None:
            if _is_on(found, port):
                yield found
            else:
                found.close()


def _duplicate(number: int) -> socket.socket | None:
    """None for what is no socket, or is gone."""
    try:
        copy = os.dup(number)
    except OSError:
        return None
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        return None


def _is_on(found: socket.socket, port: int) -> bool:
    try:
        return (
            found.family in {socket.AF_INET, socket.AF_INET6}
            and found.type == socket.SOCK_STREAM
            and found.getsockname()[1] == port
        )
    except OSError:
        return False


def _shut(each: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the other side was faster
        each.shutdown(socket.SHUT_RDWR)
