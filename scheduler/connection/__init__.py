"""Calls the Redis server that holds the ledger: addresses, pools, deadlines, retries, and the scripts it can be sent.

The only package that imports redis.

address.py options.py password.py   where the server is and how to log in
topology.py server.py guard.py      finds the server of a domain, and rejects calls that reach another process
servers.py shared.py exchange.py    the connections to each server: one that calls share, and a pool
client.py attempts.py budget.py     one client per address: attempts, retries and time limits of a call
errors.py permissions.py            translates errors; checks that the ACL allows what scripts need
embedded.py                         the same ledger inside this process, for a first run and for tests
scripts.py contract.py keys.py      loads lua/*.lua, puts their includes in, reads the headers; names of all keys
fragments.py lua_names.py lua_tokens.py   checks what the files of a script know and set of each other
"""
