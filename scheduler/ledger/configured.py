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
    same revision. `outdated`: the ledger follows a higher revision, so nothing was changed."""

    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    outdated: bool = False
