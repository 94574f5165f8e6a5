"""Closes the sockets of a gRPC port, which the library does not expose, so that the last callers get UNAVAILABLE.

A stopping `grpc` server resets every call that its application has not picked up, and the caller gets CANCELLED, as
if it had cancelled itself. When its connection ends, it gets UNAVAILABLE. Works on systems that list a process'
descriptors as files (Linux, macOS); elsewhere nothing is closed.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

_DESCRIPTORS = Path("/dev/fd")


def cut_connections(port: int) -> int:
    """Shut down the listening sockets and then all accepted ones of this local TCP port. Returns how many
    connections were closed."""
    for found in _sockets_on(port):
        with found:
            if not _has_peer(found):
                _shut(found)
    # No more connections are accepted now, so this pass sees all of them.
    cut = 0
    for found in _sockets_on(port):
        with found:
            if _has_peer(found):
                _shut(found)
                cut += 1
    return cut


def _has_peer(found: socket.socket) -> bool:
    """False for a listening socket, and for a connection that has ended."""
    try:
        found.getpeername()
    except OSError:
        return False
    return True


def _sockets_on(port: int) -> Iterator[socket.socket]:
    """Duplicates, so that the library may close its own meanwhile without another descriptor taking the number."""
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
    """None for a descriptor that is no socket, or is closed."""
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
    with contextlib.suppress(OSError):  # the peer has closed it already
        each.shutdown(socket.SHUT_RDWR)
