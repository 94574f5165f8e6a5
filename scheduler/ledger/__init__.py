"""The ledger: every script as a typed method, one file per noun.

ledger.py    Ledger: one object per domain and replica, made of the stores below
format.py    the format of the ledger that this version knows
runner.py    calls scripts with the settings key and the clock, and handles replies that every script may give
codec.py     converts between replies or rows and the domain's values; request_codec.py: requests
nodes.py placements.py reservations.py bindings.py templates.py groups.py artifacts.py settings.py …
             one typed method per script
memory.py rebuild.py   what a replica remembers of reservations, and how it restores a ledger that lost them
conversion.py          converts the ledger of an older version
"""
