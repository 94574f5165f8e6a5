"""CPU templates in the ledger: each node's own, the common one computed from them, and what to send to a node."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scheduler.ledger import codec
from scheduler.ledger.runner import Runner

# Long enough to distinguish the templates of one cluster, short enough to store per node.
_DIGEST_CHARACTERS = 32
_TEXTS_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class CpuConfigAnswer:
    """Exactly one of three: a template to `send` ("" for nothing); inputs to compute from (`holders`, in this order,
    as of `version`); or `changed`: the inputs changed meanwhile, ask again."""

    send: str = ""
    holders: tuple[str, ...] = ()
    version: str = ""
    changed: bool = False


class CpuConfigStore:
    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def report(self, node_id: str, cluster_id: str, generation: int, text: str) -> CpuConfigAnswer:
        """Stores the template of the report with this generation; "" when it carried none. report_cpu_config.lua"""
        digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARACTERS] if text else ""
        return _answer(*await self._runner.run("report_cpu_config", node_id, cluster_id, generation, digest, text))

    async def texts(self, holders: Sequence[str]) -> tuple[str, ...] | None:
        """The stored texts in this order; None when one is gone, which means that the inputs changed."""
        texts: list[str] = []
        for start in range(0, len(holders), _TEXTS_AT_ONCE):
            found = await self._runner.client.pipeline(
                [
                    ("HGET", self._runner.keys.node_cpu_config(node_id), "text")
                    for node_id in holders[start : start + _TEXTS_AT_ONCE]
                ]
            )
            if any(text is None for text in found):
                return None
            texts += [codec.text(text) for text in found]
        return tuple(texts)

    async def install(
        self, node_id: str, cluster_id: str, *, carried: bool, version: str, text: str
    ) -> CpuConfigAnswer:
        """Stores the computed template; "" when it could not be computed. install_cpu_config.lua"""
        arguments = (node_id, cluster_id, int(carried), version, text)
        return _answer(*await self._runner.run("install_cpu_config", *arguments))


def _answer(status: str, reply: Sequence[Any]) -> CpuConfigAnswer:
    facts = [codec.text(part) for part in reply]
    if status == "send":
        return CpuConfigAnswer(send=facts[0])
    if status == "compute":
        return CpuConfigAnswer(version=facts[0], holders=tuple(facts[1:]))
    return CpuConfigAnswer(changed=status == "changed")
