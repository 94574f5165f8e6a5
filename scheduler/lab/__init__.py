"""The lab: tools to judge a strategy before using it.

    trace ──▶ replay ──▶ surface ──▶ services (in-process) or HTTP ──▶ ledger
                │  ▲                    ▲
      placement │  │ decision           │ reports on a virtual clock
                ▼  │                    │
              measures ◀── truth ──── fleet of simulated nodes

The fleet knows what really runs where; the ledger knows what it was told. Every figure the lab
prints is taken from the fleet's side, so a strategy cannot look better than it is.

The lab talks to the scheduler the way everybody else does. It has no way into the ledger that a
gateway or a node would not have; only the benchmark asks the Redis server for its own figures.
"""
