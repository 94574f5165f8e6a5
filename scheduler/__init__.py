"""A Redis-backed distributed scheduler for AgentENV clusters."""

__version__ = "0.1.0"
