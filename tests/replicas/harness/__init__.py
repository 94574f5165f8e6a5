"""Real replica processes on a real server, under load and under faults, and a judge of what they told.

    rig       the replicas: started, killed, frozen, started again
    fleet     nodes that report: pinned figures, or the sandboxes they really run
    callers   many gateways at once: place, confirm, cancel; each answer is recorded
    history   everything any caller was told, in the order it was told
    watcher   recounts the whole ledger in one atomic step, again and again, while all that goes on
    judge     compares the history with the ledger and says what was placed twice, lost or overdrawn

A run's randomness comes from one seed, which is printed; `SCHEDULER_TEST_SEED=<seed>` replays it.
"""
