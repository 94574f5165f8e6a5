"""The blocking client. All but `waiting.py` is written by `generate_sync.py` from `_async`."""
