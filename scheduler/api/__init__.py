"""The front doors: HTTP with JSON and MessagePack, and gRPC as AgentENV speaks it.

Both translate to the same services and map the same errors by the one table in `status`.
"""
