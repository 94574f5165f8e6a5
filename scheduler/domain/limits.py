"""The largest numbers and longest texts that the ledger may hold.

Lua numbers are doubles: integers are exact up to 2**53 - 1. Counts on the wire are uint32. Input is checked against
these limits at the edge, so no script meets larger values.
"""

UINT32_MAX = 2**32 - 1
SAFE_INTEGER_MAX = 2**53 - 1
MIB = 1024 * 1024
MEMORY_MB_MAX = SAFE_INTEGER_MAX // MIB

# The largest sandbox that may be requested; lua/include/too_large assumes this for an unknown capacity.
SANDBOX_CPU_MAX = 65_536
SANDBOX_MEMORY_BYTES_MAX = 2**44
SANDBOX_MEMORY_MB_MAX = SANDBOX_MEMORY_BYTES_MAX // MIB

ID_BYTES_MAX = 255
TEXT_BYTES_MAX = 1024
GROUP_KEY_BYTES_MAX = 1024
BATCH_MAX = 256
KEYS_PER_NODE_MAX = 1000
EXCLUDED_NODES_MAX = 64
LOCALITY_KEYS_MAX = 32
IMAGES_MAX = 1000
IDEMPOTENCY_KEY_MAX = 255
EVENTS_MAX = 1024
ROSTER_MAX = 200_000
DISKS_TOLD_MAX = 65_536
RESERVATION_TTL_MAX_MS = 24 * 3600 * 1000
PAGE_DEFAULT = 100
PAGE_MAX = 1000
