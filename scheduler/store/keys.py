"""The names of all keys of one domain; `lua/include/keys.lua` builds the same ones from KEYS[1].

Every key of a domain carries the hash tag `{<domain>}`, so a domain sits in one slot of a Redis Cluster
and one script can reach all of it. What each key holds is told in `docs/redis-cli.md`.
"""

from __future__ import annotations

import re

from scheduler.errors import ConfigurationError

DOMAIN_PATTERN = re.compile(r"[A-Za-z0-9._-]{1,64}")
DEFAULT_DOMAIN = "default"

# Keys there is one of, and keys there is one of per id. The second hold `{}` where the id goes.
SINGLE_KEYS = (
    "settings",
    "epoch",
    "sequence",
    "clock",
    "nodes",
    "loads",
    "seen",
    "silent",
    "candidates",
    "ready",
    "connecting",
    "unhealthy",
    "last_resort",
    "lingering",
    "over_limit",
    "removed",
    "shapes",
    "journal",
    "reservations",
    "expiry",
    "finished",
    "groups",
    "groups:recent",
    "cursors",
    "bindings",
    "assigned",
    "templates",
    "artifacts",
    "replicas",
    "stats",
)
KEYS_BY_ID = (
    "node:{}",
    "node:{}:reservations",
    "node:{}:claims",
    "node:{}:unnamed",
    "node:{}:explained",
    "node:{}:sandboxes",
    "node:{}:assigned",
    "shape:{}",
    "reservation:{}",
    "sandbox:{}",
    "template:{}",
)


class Keys:
    """Key names of `domain`; raises ConfigurationError for a domain that would not make a clean hash tag."""

    __slots__ = ("domain", "tag")

    def __init__(self, domain: str = DEFAULT_DOMAIN) -> None:
        if not DOMAIN_PATTERN.fullmatch(domain):
            raise ConfigurationError(
                f"domain is {domain!r}; allowed are 1 to 64 letters, digits, dots, underscores and hyphens"
            )
        self.domain = domain
        self.tag = f"aenv:{{{domain}}}"

    def __repr__(self) -> str:
        return f"Keys({self.domain!r})"

    def named(self, name: str) -> str:
        """`aenv:{domain}:<name>`: the one place where a key is put together."""
        return f"{self.tag}:{name}"

    def name_of(self, key: str | bytes) -> str | None:
        """The part after the tag, or None for a key of somebody else."""
        text = key.decode("utf-8", "replace") if isinstance(key, bytes) else key
        prefix = f"{self.tag}:"
        return text[len(prefix) :] if text.startswith(prefix) else None

    @property
    def pattern(self) -> str:
        """What SCAN takes to find every key of this domain."""
        # A domain may hold no glob character, and `{` is none.
        return f"{self.tag}:*"

    # -- one of each ------------------------------------------------------------------------------------------

    @property
    def settings(self) -> str:
        return self.named("settings")

    @property
    def epoch(self) -> str:
        return self.named("epoch")

    @property
    def sequence(self) -> str:
        return self.named("sequence")

    @property
    def clock(self) -> str:
        return self.named("clock")

    @property
    def nodes(self) -> str:
        return self.named("nodes")

    @property
    def loads(self) -> str:
        return self.named("loads")

    @property
    def seen(self) -> str:
        return self.named("seen")

    @property
    def silent(self) -> str:
        return self.named("silent")

    @property
    def candidates(self) -> str:
        return self.named("candidates")

    @property
    def ready(self) -> str:
        return self.named("ready")

    @property
    def connecting(self) -> str:
        return self.named("connecting")

    @property
    def unhealthy(self) -> str:
        return self.named("unhealthy")

    @property
    def last_resort(self) -> str:
        return self.named("last_resort")

    @property
    def lingering(self) -> str:
        return self.named("lingering")

    @property
    def over_limit(self) -> str:
        return self.named("over_limit")

    @property
    def removed(self) -> str:
        return self.named("removed")

    @property
    def shapes(self) -> str:
        return self.named("shapes")

    @property
    def journal(self) -> str:
        return self.named("journal")

    @property
    def reservations(self) -> str:
        return self.named("reservations")

    @property
    def expiry(self) -> str:
        return self.named("expiry")

    @property
    def finished(self) -> str:
        return self.named("finished")

    @property
    def groups(self) -> str:
        return self.named("groups")

    @property
    def groups_recent(self) -> str:
        return self.named("groups:recent")

    @property
    def cursors(self) -> str:
        return self.named("cursors")

    @property
    def bindings(self) -> str:
        return self.named("bindings")

    @property
    def assigned(self) -> str:
        return self.named("assigned")

    @property
    def templates(self) -> str:
        return self.named("templates")

    @property
    def artifacts(self) -> str:
        return self.named("artifacts")

    @property
    def replicas(self) -> str:
        return self.named("replicas")

    @property
    def stats(self) -> str:
        return self.named("stats")

    # -- one per id -------------------------------------------------------------------------------------------

    def node(self, node_id: str) -> str:
        return self.named(f"node:{node_id}")

    def node_reservations(self, node_id: str) -> str:
        return self.named(f"node:{node_id}:reservations")

    def node_claims(self, node_id: str) -> str:
        return self.named(f"node:{node_id}:claims")

    def node_unnamed(self, node_id: str) -> str:
        return self.named(f"node:{node_id}:unnamed")

    def node_explained(self, node_id: str) -> str:
        return self.named(f"node:{node_id}:explained")

    def node_sandboxes(self, node_id: str) -> str:
        return self.named(f"node:{node_id}:sandboxes")

    def node_assigned(self, node_id: str) -> str:
        return self.named(f"node:{node_id}:assigned")

    def shape(self, shape: str) -> str:
        """`shape` is `<cpu>:<memory_mb>`, as the scripts write it."""
        return self.named(f"shape:{shape}")

    def reservation(self, reservation_id: str) -> str:
        return self.named(f"reservation:{reservation_id}")

    def sandbox(self, sandbox_id: str) -> str:
        return self.named(f"sandbox:{sandbox_id}")

    def template(self, template_id: str) -> str:
        return self.named(f"template:{template_id}")
