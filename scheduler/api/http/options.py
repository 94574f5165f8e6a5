"""What an operator may set about the HTTP edge."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """`body_bytes_max`: a roster of 110,000 ids must fit. `in_flight_max`: who comes beyond it is refused
    early, while refusing is still cheap. `request_timeout_ms`: the longest a request may take; a caller may
    shorten it for itself. `metrics_need_admin`: `/metrics` asks for an admin key instead of being open."""

    body_bytes_max: int = 8 * 1024 * 1024
    in_flight_max: int = 1024
    request_timeout_ms: int = 10_000
    metrics_need_admin: bool = False
