"""Which format of the ledger this version reads and writes; apart, so that naming it imports nothing."""

FORMAT = 4
"""What the keys of this version mean; `lua/include/format` refuses any other."""
