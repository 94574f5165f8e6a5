"""Roles, and the identified caller."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from scheduler.errors import Forbidden


class Role(StrEnum):
    """`node` reports itself; `gateway` places, reserves and reads; `admin` may call everything."""

    NODE = "node"
    GATEWAY = "gateway"
    ADMIN = "admin"


# The roles that may call a route. Admin is in every set; an empty set means everyone.
FOR_NODES = frozenset({Role.NODE, Role.ADMIN})
FOR_GATEWAYS = frozenset({Role.GATEWAY, Role.ADMIN})
FOR_NODES_AND_GATEWAYS = frozenset({Role.NODE, Role.GATEWAY, Role.ADMIN})
FOR_ADMINS = frozenset({Role.ADMIN})
FOR_EVERYONE = frozenset[Role]()


@dataclass(frozen=True, slots=True)
class Principal:
    """The owner of a key. `name` stays the same while keys rotate; `node_id` binds a node key to one node."""

    name: str
    role: Role | None
    node_id: str | None = None

    @property
    def is_known_admin(self) -> bool:
        """Without keys everybody is an administrator, and nobody known."""
        return self.role is Role.ADMIN and self != ANONYMOUS

    def may_act_for(self, node_id: str) -> bool:
        """A key bound to one node acts for no other."""
        return self.node_id is None or self.node_id == node_id

    def act_for(self, node_id: str) -> None:
        """Raises Forbidden when the caller may not."""
        if not self.may_act_for(node_id):
            raise Forbidden("this key is bound to another node")


# A caller without a key, on a port with keys, at a call that is open to everyone.
NOBODY = Principal("nobody", None)
# Every caller of a port without keys.
ANONYMOUS = Principal("anonymous", Role.ADMIN)
