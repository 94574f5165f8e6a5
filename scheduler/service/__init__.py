"""What a replica does between a request and the ledger: check, call once, count, log.

services.py       Services and build_services
placement.py      schedule, explain
reservations.py   get, list, confirm, cancel, cancel_by_key, renew, sweep
nodes.py          discovery, heartbeats, events, views
bindings.py templates.py groups.py artifacts.py
hints.py          what a sandbox API request asks for, read as AgentENV's gateway does or leniently
readiness.py      may this replica be sent traffic, and why not
overview.py       the metrics page, kept true in the background
checks.py reports.py requests.py    what may enter the ledger
"""

from scheduler.service.services import Services, build_services

__all__ = ["Services", "build_services"]
