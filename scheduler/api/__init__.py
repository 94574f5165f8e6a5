"""The two interfaces: HTTP with JSON and MessagePack, and gRPC as AgentENV speaks it.

Both call the same services and map errors by the one table in `status`.
"""

import os

# gRPC's core would log broken connections to standard error by itself, in another format than our log.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
