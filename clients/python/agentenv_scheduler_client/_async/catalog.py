"""Bindings, templates, groups and artifacts: a few calls each."""

from __future__ import annotations

from collections.abc import AsyncIterator

from agentenv_scheduler_client._async.calls import AsyncCalls
from agentenv_scheduler_client.asking import Question, given, nothing, path
from agentenv_scheduler_client.catalog import (
    Artifact,
    Binding,
    GroupPage,
    Peer,
    Peers,
    PlacementGroup,
    Template,
    TemplatePage,
    WarmNode,
    WarmPage,
)
from agentenv_scheduler_client.nodes import NodeAddress
from agentenv_scheduler_client.reading import body_of, read


class AsyncBindings:
    """Where sandboxes run. Reached as `client.bindings`."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    async def lookup(self, sandbox_id: str) -> Binding:
        """Raises NotFound when no node is known to run it, NotRebuilt while that cannot be known."""
        return await self._calls.ask(Question("GET", path("bindings", sandbox_id)), lambda a: read(Binding, a))

    async def assign(self, sandbox_id: str, node: NodeAddress) -> Binding:
        """Record where a sandbox runs. Raises InvalidRequest when the node is not listed with that endpoint."""
        body = {"node_id": node.node_id, "endpoint": node.endpoint}
        return await self._calls.ask(Question("PUT", path("bindings", sandbox_id), body), lambda a: read(Binding, a))


class AsyncTemplates:
    """What creating from a template takes. Reached as `client.templates`."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    async def get(self, template_id: str) -> Template:
        """One. Raises NotFound."""
        return await self._calls.ask(Question("GET", path("templates", template_id)), lambda a: read(Template, a))

    async def put(self, template_id: str, *, cpu_count: int, memory_mb: int) -> Template:
        """Declare its size. For keys of role admin, as `delete`."""
        body = {"cpu_count": cpu_count, "memory_mb": memory_mb}
        return await self._calls.ask(Question("PUT", path("templates", template_id), body), lambda a: read(Template, a))

    async def delete(self, template_id: str) -> None:
        """Forget its size. Raises NotFound."""
        await self._calls.ask(Question("DELETE", path("templates", template_id)), nothing)

    async def list(self, *, limit: int = 100, cursor: str | None = None) -> TemplatePage:
        """A page; `limit` is at most 1,000."""
        params = given(limit=str(limit), cursor=cursor)
        return await self._calls.ask(Question("GET", path("templates"), params=params), lambda a: read(TemplatePage, a))

    async def each(self) -> AsyncIterator[Template]:
        """Yields every entry; reads page after page as it goes."""
        cursor: str | None = None
        while True:
            page = await self.list(limit=1000, cursor=cursor)
            for template in page.templates:
                yield template
            cursor = page.cursor
            if cursor is None:
                return


class AsyncGroups:
    """Open groups of `grouped_round_robin`. Reached as `client.groups`."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    async def list(self, *, limit: int = 100, cursor: str | None = None) -> GroupPage:
        """A page, the most recently used first; `limit` is at most 1,000."""
        params = given(limit=str(limit), cursor=cursor)
        return await self._calls.ask(Question("GET", path("groups"), params=params), lambda a: read(GroupPage, a))

    async def each(self) -> AsyncIterator[PlacementGroup]:
        """Yields every entry; reads page after page as it goes."""
        cursor: str | None = None
        while True:
            page = await self.list(limit=1000, cursor=cursor)
            for group in page.groups:
                yield group
            cursor = page.cursor
            if cursor is None:
                return


class AsyncWarmKeys:
    """Which images and templates are warm on which nodes. Reached as `client.warm_keys`."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    async def list(self, *, key: str = "", node_id: str = "", limit: int = 100, cursor: str | None = None) -> WarmPage:
        """A page in id order, or of the nodes with this key, the latest first; `limit` is at most 1,000. A page before
        the last one may have fewer."""
        params = given(limit=str(limit), cursor=cursor, key=key, node_id=node_id)
        return await self._calls.ask(Question("GET", path("warm-keys"), params=params), lambda a: read(WarmPage, a))

    async def each(self, *, key: str = "") -> AsyncIterator[WarmNode]:
        """Yields every entry; reads page after page as it goes."""
        cursor: str | None = None
        while True:
            page = await self.list(key=key, limit=1000, cursor=cursor)
            for node in page.nodes:
                yield node
            cursor = page.cursor
            if cursor is None:
                return


class AsyncArtifacts:
    """Which nodes can serve which artifact. Reached as `client.artifacts`."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    async def record(self, artifact: Artifact, node_id: str) -> None:
        """The node can serve it."""
        await self._calls.ask(Question("PUT", path("artifacts"), body_of(artifact) | {"node_id": node_id}), nothing)

    async def forget(self, artifact: Artifact, node_id: str) -> None:
        """The node can no longer serve it."""
        params = body_of(artifact) | {"node_id": node_id}
        await self._calls.ask(Question("DELETE", path("artifacts"), params=params), nothing)

    async def lookup(self, artifact: Artifact, *, exclude_node_id: str = "") -> tuple[Peer, ...]:
        """The ready nodes that can serve it."""
        params = body_of(artifact) | given(exclude_node_id=exclude_node_id)
        peers = await self._calls.ask(Question("GET", path("artifacts"), params=params), lambda a: read(Peers, a))
        return peers.peers
