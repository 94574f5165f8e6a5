"""Options of the HTTP port."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """`body_bytes_max`: large enough for a roster of 110,000 ids. `in_flight_max`: further requests are refused
    early, while refusing is still cheap. `request_timeout_ms`: the longest a request may take; a caller may shorten
    it for itself. `metrics_need_admin`: `/metrics` needs an admin key. `root_path`: below which path
    a proxy shows the port."""

    body_bytes_max: int = 8 * 1024 * 1024
    in_flight_max: int = 1024
    request_timeout_ms: int = 10_000
    metrics_need_admin: bool = False
    root_path: str = ""
