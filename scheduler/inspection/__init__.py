"""Looking into a ledger without a replica: what is there, and whether it adds up.

    ledger.py     the ledger an operator named
    look.py       what the listing commands show, as plain values
    story.py      one reservation from beginning to end
    tables.py     the same for people
    recount.py    `check`: the whole ledger counted anew
    key_table.py  what kinds of key there are, and what keeps each of them bounded
    cli.py        the commands
"""

from scheduler.inspection.recount import Finding, recount

__all__ = ["Finding", "recount"]
