"""Who may call what: API keys with roles, kept as hashes in a file that may change while we run."""

from scheduler.access.keys import KeyRing, generate_key, hash_key
from scheduler.access.roles import ANONYMOUS, Principal, Role

__all__ = ["ANONYMOUS", "KeyRing", "Principal", "Role", "generate_key", "hash_key"]
