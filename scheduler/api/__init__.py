"""The front doors: HTTP with JSON and MessagePack, and gRPC as AgentENV speaks it.

Both translate to the same services and map the same errors by the one table in `status`.
"""

import os

# What the library under grpc says of broken connections goes to standard error past our log, in a form of its own.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
