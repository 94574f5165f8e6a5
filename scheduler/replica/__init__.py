"""One replica process, from start to stop.

process.py      Replica: start, run, drain, stop
listeners.py    the HTTP, gRPC and metrics listeners, and who may call each
membership.py   joining the ledger: settings, keepalives, and restoring a ledger that was lost
reload.py       files that are read again while the process runs
background.py   tasks run at jittered intervals
"""

from scheduler.replica.process import Replica, run

__all__ = ["Replica", "run"]
