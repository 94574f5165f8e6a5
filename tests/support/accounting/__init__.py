"""What the ledger may believe of one node: the rules in plain Python, a model of real life, a search.

`rules` are the formulas, `ledger` and `reports` apply them; the Lua follows these three. The rest searches
for a life of callers, sandboxes and reports in which the rules give capacity twice.
"""
