"""CPU templates in the ledger: what each node told, what came out of it, what to send back."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scheduler.store import codec
from scheduler.store.runner import Runner

# Enough to tell templates of one cluster apart, short enough for keys that hold it per node.
_DIGEST_CHARACTERS = 32
_TEXTS_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class CpuConfigAnswer:
    """Exactly one of three: a template to `send` ("" for nothing), or inputs to compute from:
    `holders`, in the order that counts, as of `version`. `changed`: the inputs moved on, ask again."""

    send: str = ""
    holders: tuple[str, ...] = ()
    version: str = ""
    changed: bool = False


class CpuConfigStore:
    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def report(self, node_id: str, cluster_id: str, generation: int, text: str) -> CpuConfigAnswer:
        """Notes the text of the report with this generation; "" when it carried none. report_cpu_config.lua"""
        digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARACTERS] if text else ""
        return _answer(*await self._runner.run("report_cpu_config", node_id, cluster_id, generation, digest, text))

    async def texts(self, holders: Sequence[str]) -> tuple[str, ...] | None:
        """The kept texts in this order; None when one of them is gone, which means the inputs moved on."""
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
        """Keeps what was computed; "" when it could not be. install_cpu_config.lua"""
        arguments = (node_id, cluster_id, int(carried), version, text)
        return _answer(*await self._runner.run("install_cpu_config", *arguments))


def _answer(status: str, reply: Sequence[Any]) -> CpuConfigAnswer:
    facts = [codec.text(part) for part in reply]
    if status == "send":
        return CpuConfigAnswer(send=facts[0])
    if status == "compute":
        return CpuConfigAnswer(version=facts[0], holders=tuple(facts[1:]))
    return CpuConfigAnswer(changed=status == "changed")
