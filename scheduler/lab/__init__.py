"""The lab: tools to judge a strategy, and the ledger's accounting, before using them.

    trace ──▶ replay ──────────┐
    story ──▶ lifecycle ──▶ gateway ──▶ surface ──▶ services (in-process), or HTTP to replicas ──▶ ledger
                                 │        ▲
                  creates, ends  ▼        │ reports and events, on a virtual clock or in real time
              measures, judge ◀── truth ── fleet of simulated nodes

The fleet knows what really runs where; the ledger knows what it was told. Every figure the lab
prints is taken from the fleet's side, so a strategy cannot look better than it is.

The lab talks to the scheduler the way everybody else does. It has no way into the ledger that a
gateway or a node would not have; only the benchmark asks the Redis server for its own figures.
"""
