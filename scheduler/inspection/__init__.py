"""Looking into a ledger without a replica: what is there, and whether it adds up.

where.py       the ledger an operator named
index.py       the index by CPU rows, class by class
one_node.py    one node with everything the ledger keeps about it
story.py       one reservation from beginning to end
ledger_source.py  what an operator asks, answered from Redis
tables.py      listings of groups and indexes
pages.py       one thing at length, for people
recount.py     `check`: the whole ledger counted anew, by scripts that each judge one moment
key_table.py   what kinds of key there are, and what keeps each of them bounded
cli/           the commands
"""
