"""The operator's words: look at nodes, reservations, replicas and settings; drain, remove, cancel.

One set of commands, over whatever answers them: the HTTP API (`http_source`) or a ledger, with no replica needed
(`scheduler.inspection.ledger_source`).

source.py     what must be answered, as the HTTP API says it
http_source.py  answered by the HTTP API, asked through the client
listing.py    lists: columns, what they are sorted by, tables
lists.py      the columns of nodes, reservations, replicas
pages.py      one node, one summary, the settings
draining.py   waiting until a node is empty
words.py      ages, sizes, instants, bars
cli/          the commands, and how they show what they have found
"""
