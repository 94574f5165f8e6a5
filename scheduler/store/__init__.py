"""The ledger on Redis: the only package that imports redis.

keys.py         every key name, built in one place
scripts.py      loads lua/*.lua, resolves @include, reads the contract headers
client.py       one client per address: pools, deadlines, retries, translation of errors
codec.py        converts between replies or rows and the domain's values
ledger.py       Ledger: one object per domain, made of the stores below
nodes.py placements.py reservations.py bindings.py templates.py groups.py artifacts.py settings.py
                one typed method per script
"""
