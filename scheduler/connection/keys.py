"""The names of all keys of one domain; `lua/include/keys.lua` builds the same ones from KEYS[1].

Every key of a domain carries the hash tag `{<domain>}`, so a domain is in one slot of a Redis Cluster and one script
can reach all of it. `docs/architecture.md` lists what each key holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from scheduler.errors import ConfigurationError

DOMAIN_PATTERN = re.compile(r"[A-Za-z0-9._-]{1,64}")
DEFAULT_DOMAIN = "default"


class _Key:
    """A key that exists once per domain."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, keys: Keys, owner: type[Keys]) -> str:
        return keys.named(self.name)


class _KeyById:
    """A key that exists once per id; `{}` stands for the id."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, keys: Keys, owner: type[Keys]) -> Callable[[str], str]:
        before, _, after = self.name.partition("{}")
        return lambda identity: keys.named(f"{before}{identity}{after}")


class _NodeKey(_KeyById):
    """A colon in a node's id is escaped, because it separates the parts of a key."""

    def __get__(self, keys: Keys, owner: type[Keys]) -> Callable[[str], str]:
        named = super().__get__(keys, owner)
        return lambda node_id: named(node_id.replace("%", "%25").replace(":", "%3A"))


class Keys:
    """The key names of `domain`. Raises ConfigurationError for a domain that is not a valid hash tag."""

    __slots__ = ("domain", "tag")

    settings = _Key("shared_settings")
    sequence = _Key("sequence")
    rotations = _Key("rotations")
    stats = _Key("stats")
    tallies = _Key("tallies")
    rates = _Key("rates")
    decisions = _Key("decisions")
    audit = _Key("audit")
    replicas = _Key("replicas")
    configured = _Key("configured")
    rebuild = _Key("rebuild")

    # Where version 0.1 kept its settings, clock and leftovers: after a conversion, texts that stop its scripts.
    fenced_settings = _Key("settings")
    fenced_cursors = _Key("cursors")
    fenced_leftovers = _Key("artifact_backlog")
    conversion = _Key("conversion")

    # Nodes: the list, the rows that ranking reads, and which may be chosen.
    nodes = _Key("nodes")
    loads = _Key("loads")
    seen = _Key("seen")
    silent = _Key("silent")
    removed = _Key("removed")
    candidates = _Key("candidates")
    ready = _Key("ready")
    waiting = _Key("waiting")
    unhealthy = _Key("unhealthy")
    last_resort = _Key("last_resort")
    lingering = _Key("lingering")
    over_limit = _Key("over_limit")
    forgotten = _Key("forgotten")
    node = _NodeKey("node:{}")

    label_sets = _Key("label_sets")
    resource = _KeyById("resource:{}")
    spreads = _Key("spreads")
    spread = _KeyById("spread:{}")
    candidates_labelled = _KeyById("candidates:{}")
    ready_labelled = _KeyById("ready:{}")
    waiting_labelled = _KeyById("waiting:{}")
    unhealthy_labelled = _KeyById("unhealthy:{}")
    last_resort_labelled = _KeyById("last_resort:{}")
    lingering_labelled = _KeyById("lingering:{}")
    over_limit_labelled = _KeyById("over_limit:{}")
    avoided_labelled = _KeyById("avoided:{}")
    avoided_ready_labelled = _KeyById("avoided_ready:{}")
    avoided_last_resort_labelled = _KeyById("avoided_last_resort:{}")
    # The index by CPU rows; lua/include/places tells how classes are named.
    classes = _Key("classes")
    heads = _Key("heads")
    row = _KeyById("row:{}")  # <class>:<row>
    unknown = _KeyById("unknown:{}")  # <pool>

    # Avoided nodes, which refuse creations: chosen only when no other node fits.
    avoided = _Key("avoided")
    avoided_ready = _Key("avoided_ready")
    avoided_last_resort = _Key("avoided_last_resort")
    avoided_until = _Key("avoided_until")
    refused = _KeyById("refused:{}")  # <caller>|<image or template>

    # Node capacities, by effective CPU capacity.
    capacities = _Key("capacities")
    capacity = _KeyById("capacity:{}")

    # Reservations.
    reservation = _KeyById("reservation:{}")
    batch = _KeyById("batch:{}")
    reservations = _Key("reservations")
    expiry = _Key("expiry")
    finished = _Key("finished")
    sandbox = _KeyById("sandbox:{}")
    node_reservations = _NodeKey("node:{}:reservations")
    node_finished = _NodeKey("node:{}:finished")
    node_claims = _NodeKey("node:{}:claims")
    node_acknowledged = _NodeKey("node:{}:acknowledged")
    node_explained = _NodeKey("node:{}:explained")
    node_unnamed = _NodeKey("node:{}:unnamed")
    node_doubts = _NodeKey("node:{}:doubts")

    # Bindings.
    bindings = _Key("bindings")
    assigned = _Key("assigned")
    ended = _Key("ended")
    node_sandboxes = _NodeKey("node:{}:sandboxes")
    node_assigned = _NodeKey("node:{}:assigned")
    node_deleted = _NodeKey("node:{}:deleted")

    # Groups, templates, artifacts.
    groups = _Key("groups")
    groups_recent = _Key("groups:recent")
    template = _KeyById("template:{}")
    templates = _Key("templates")
    artifacts = _Key("artifacts")
    artifact = _KeyById("artifact:{}")  # named in lua/include/artifacts
    artifact_scopes = _Key("artifact_scopes")
    artifact_epochs = _Key("artifact_epochs")
    artifact_leftovers = _Key("artifact_leftovers")
    artifact_parked = _KeyById("artifact_leftovers:{}")
    node_artifacts = _NodeKey("node:{}:artifacts")

    # What each node was given last, both ways; lua/include/warm_keys.
    warm = _KeyById("warm:{}")  # <image or template>
    node_warm = _NodeKey("node:{}:warm")

    # CPU templates, by cluster.
    cpu_configs = _KeyById("cpu_configs:{}")
    cpu_config_counts = _KeyById("cpu_config_counts:{}")
    cpu_config_result = _KeyById("cpu_config_result:{}")
    node_cpu_config = _NodeKey("node:{}:cpu_config")

    lease = _KeyById("lease:{}")
    scratch = _KeyById("scratch:{}")  # what scheduler/connection/permissions tries commands on

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
        """`aenv:{domain}:<name>`: the one place where a key is built."""
        return f"{self.tag}:{name}"

    def name_of(self, key: str | bytes) -> str | None:
        """The part after the tag; None for a key outside of this domain."""
        text = key.decode("utf-8", "replace") if isinstance(key, bytes) else key
        prefix = f"{self.tag}:"
        return text[len(prefix) :] if text.startswith(prefix) else None

    @property
    def pattern(self) -> str:
        """The SCAN pattern for every key of this domain; a domain contains no glob characters."""
        return f"{self.tag}:*"

    @classmethod
    def beside(cls, settings_key: str) -> Keys:
        """The keys of the domain with this settings key."""
        return cls(settings_key[settings_key.index("{") + 1 : settings_key.index("}")])

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Every name after the tag, `{}` standing for an id."""
        return tuple(part.name for part in vars(cls).values() if isinstance(part, _Key | _KeyById))
