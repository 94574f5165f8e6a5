"""Reads which images and templates are warm on which nodes: what each was given last (lua/include/warm_keys)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from scheduler.domain.sandbox import WarmKey, WarmNode
from scheduler.errors import InvalidRequest
from scheduler.ledger import codec
from scheduler.ledger.runner import Runner

_SEQUENCE = re.compile("[0-9]{1,16}")

NODES_A_STEP = 200
LOOKED_AT_MOST = 1000


class WarmKeyStore:
    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def list(
        self, key: str = "", node_id: str = "", limit: int = 100, cursor: str = ""
    ) -> tuple[tuple[WarmNode, ...], str | None]:
        """A page of nodes with what each was given last, the latest first, and the cursor of the next page (None at the
        end): all that have warm keys, in id order; those with `key`, the last one first; or `node_id` alone.

        Of all nodes it looks at 1,000 at most, so a page may have fewer than `limit` before the end. Raises
        InvalidRequest for a cursor of another list."""
        if node_id:
            held = await self._runner.client.command(
                "ZREVRANGEBYSCORE", self._runner.keys.node_warm(node_id), "+inf", "-inf", "WITHSCORES"
            )
            kept = tuple(each for each in _keys(held) if key in ("", each.key))
            return (WarmNode(node_id, kept),) if kept else (), None
        return await (self._holders(key, limit, cursor) if key else self._page(limit, cursor))

    async def _holders(self, key: str, limit: int, cursor: str) -> tuple[tuple[WarmNode, ...], str | None]:
        if cursor and not _SEQUENCE.fullmatch(cursor):
            raise InvalidRequest.field("cursor", cursor, "the cursor of an earlier page")
        page = await self._runner.client.command(
            "ZREVRANGEBYSCORE", self._runner.keys.warm(key), f"({cursor}" if cursor else "+inf", "-inf",
            "WITHSCORES", "LIMIT", 0, limit,
        )  # fmt: skip
        found = tuple(WarmNode(each.key, (WarmKey(key, each.sequence),)) for each in _keys(page))
        return found, str(found[-1].keys[0].sequence) if len(found) == limit else None

    async def _page(self, limit: int, cursor: str) -> tuple[tuple[WarmNode, ...], str | None]:
        keys, client = self._runner.keys, self._runner.client
        found: list[WarmNode] = []
        for _ in range(0, LOOKED_AT_MOST, NODES_A_STEP):
            after = f"({cursor}" if cursor else "-"
            listed = await client.command("ZRANGEBYLEX", keys.nodes, after, "+", "LIMIT", 0, NODES_A_STEP)
            names = [codec.text(node_id) for node_id in listed]
            held = await client.pipeline(
                [("ZREVRANGEBYSCORE", keys.node_warm(name), "+inf", "-inf", "WITHSCORES") for name in names]
            )
            for name, page in zip(names, held, strict=True):
                cursor = name
                if page:
                    found.append(WarmNode(name, _keys(page)))
                if len(found) == limit:
                    return tuple(found), cursor
            if len(names) < NODES_A_STEP:
                return tuple(found), None
        return tuple(found), cursor


def _keys(page: Sequence[Any]) -> tuple[WarmKey, ...]:
    """Members and their sequences, alternating."""
    return tuple(WarmKey(codec.text(page[at]), int(float(page[at + 1]))) for at in range(0, len(page), 2))
