"""What a replica's configuration lists, in place of what an earlier one listed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConfiguredBy:
    """Whose configuration, and of which revision. `recovering`: as for `NodeStore.set`."""

    replica_id: str
    revision: int
    recovering: bool = False


@dataclass(frozen=True, slots=True)
class Configured:
    """`removed` left with the earlier configuration. `kept` did not, because another replica is alive and both say the
    same revision. `unlabelled` stays without labels, because there are too many label sets. `outdated`: the ledger
    follows a higher revision, so nothing was changed."""

    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    unlabelled: tuple[str, ...] = ()
    outdated: bool = False

    def __add__(self, other: Configured) -> Configured:
        """What one step after the other did."""
        return Configured(
            self.removed + other.removed,
            self.kept + other.kept,
            self.unlabelled + other.unlabelled,
            self.outdated or other.outdated,
        )
