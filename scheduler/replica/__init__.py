"""One replica: the process from its first word in the log to its last.

process.py      Replica: start, run, drain, stop
listeners.py    the doors: HTTP, gRPC, metrics, and what guards each
membership.py   what a replica tells the ledger: its settings, the nodes and templates it knows, that it lives
reload.py       what is read from files again while it runs
upkeep.py       what it does in the background, at intervals that no two replicas share
"""

from scheduler.replica.process import Replica, run

__all__ = ["Replica", "run"]
