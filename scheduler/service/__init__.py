"""What a replica does between a request and the ledger: check the input, make one ledger call, count and log it.

services.py       Services and build_services
placement.py      schedule, explain
reservations.py   get, list, confirm, cancel, cancel_by_key, renew, sweep
nodes.py          discovery, heartbeats, events, views
bindings.py artifacts.py
hints.py          the hint in a sandbox API request, read as AgentENV's gateway does or leniently
readiness.py      whether this replica may be sent traffic, and why not
overview.py       keeps the metrics page current in the background
checks.py reports.py requests.py    validation of everything that enters the ledger

Both edges pass on what they were given and answer with what services made of it. Two things are checked where they are
read: a segment of a path (`api/http/route.py`), and the parameters of calls that only HTTP has (`api/http/fields.py`):
pages, templates.
"""

from scheduler.service.services import Services, build_services

__all__ = ["Services", "build_services"]
