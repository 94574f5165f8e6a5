"""Who may call what: API keys with roles, stored as hashes in a file that is read again when it changes."""

from scheduler.access.keys import KeyRing, generate_key, hash_key
from scheduler.access.roles import ANONYMOUS, Principal, Role

__all__ = ["ANONYMOUS", "KeyRing", "Principal", "Role", "generate_key", "hash_key"]
