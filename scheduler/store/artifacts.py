"""The shared P2P artifact index."""

from __future__ import annotations

from scheduler.store.runner import Runner


class ArtifactStore:
    def __init__(self, runner: Runner) -> None:
        self._runner = runner
