"""Nodes: the discovered list, their reports, and their present state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from scheduler import deadline
from scheduler.domain.fleet import FleetTally
from scheduler.domain.labels import written
from scheduler.domain.node import DiscoveryState, Heartbeat, HeartbeatResult, Node, NodeAddress, NodeQuery
from scheduler.domain.sandbox import SandboxEvent, SandboxEventType
from scheduler.errors import Conflict, InstanceMismatch, NodeNotListed, NotFound
from scheduler.ledger import codec
from scheduler.ledger.configured import Configured, ConfiguredBy
from scheduler.ledger.cordons import CordonStore
from scheduler.ledger.node_list import TOO_MANY_LABEL_SETS, LabelSource, ListedNode, entry
from scheduler.ledger.node_pages import NODES_A_STEP, read_nodes, read_page
from scheduler.ledger.report import clean_roster, report_arguments
from scheduler.ledger.roster import RosterChange, apply_roster, difference_to, finish_report, fits_one_call
from scheduler.ledger.runner import Runner
from scheduler.ledger.upstream_bindings import UpstreamBindings

# As many as one script lists, moves or removes in less than 10 ms.
CHANGES_A_STEP = 64
READ_A_STEP = 1000
NOT_LISTED = "node is not in scheduler node list"
HEARTBEAT_DEADLINE_MS = 10_000
EVENTS_A_CALL = 64
_DISCOVERED = frozenset(state.value for state in (DiscoveryState.ACTIVE, DiscoveryState.LINGERING))


class NodeStore:
    def __init__(self, runner: Runner, upstream: UpstreamBindings | None = None) -> None:
        self._runner = runner
        self._upstream = upstream
        self.cordons = CordonStore(runner)
        # Node id → as it is listed, or None for a removed node: changes made through this process. Membership
        # removes those that its remembered list contains, so that no acknowledged change is lost.
        self.recent_changes: dict[str, ListedNode | None] = {}

    # -- discovery --------------------------------------------------------------------------------------------

    async def set(
        self, node_id: str, endpoint: str, state: DiscoveryState, labels: Mapping[str, str] | None = None
    ) -> None:
        """Add, move, label or drain one node; `labels` None leaves those told before. Raises Conflict when they would
        make too many label sets."""
        node = ListedNode(endpoint, state, labels)
        await self._set_nodes(0, LabelSource.API, 1, *entry(node_id, node))
        told = self.recent_changes.get(node_id) if labels is None else None
        self.recent_changes[node_id] = replace(node, labels=told.labels) if told else node

    async def put_back(self, nodes: Mapping[str, ListedNode]) -> None:
        """Restore nodes that were listed before the ledger was lost; they admit nothing until they report."""
        entries = list(nodes.items())
        for first in range(0, len(entries), CHANGES_A_STEP):
            step = entries[first : first + CHANGES_A_STEP]
            arguments = [part for node_id, node in step for part in entry(node_id, node)]
            await self._set_nodes(1, LabelSource.API, len(step), *arguments)

    async def _set_nodes(self, recovering: int, source: LabelSource, listed: int, *arguments: str) -> list[Any]:
        status, reply = await self._runner.run(
            "set_nodes", recovering, f"labels_{source}", listed, *arguments, durable=True
        )
        if status == "full":
            raise Conflict(TOO_MANY_LABEL_SETS)
        return reply

    async def configure(self, nodes: Sequence[NodeAddress], by: ConfiguredBy) -> Configured:
        """List the nodes of a replica's configuration, and remove those that only an earlier configuration listed.

        An empty list removes nothing that a configuration of the same revision listed: not every replica need name
        the nodes."""
        done = Configured()
        for first in range(0, len(nodes), CHANGES_A_STEP):
            step = nodes[first : first + CHANGES_A_STEP]
            entries = [part for node in step for part in (node.node_id, node.endpoint, written(node.labels))]
            done += await self._configure(by, len(step), entries)
            if done.outdated:
                return done
        wanted = {node.node_id for node in nodes}
        at_most = by.revision if nodes else by.revision - 1
        leaving = [
            node_id
            for node_id, revision in (await self._configured()).items()
            if node_id not in wanted and revision <= at_most
        ]
        for first in range(0, len(leaving), CHANGES_A_STEP):
            done += await self._configure(by, 0, leaving[first : first + CHANGES_A_STEP])
        return done

    async def _configure(self, by: ConfiguredBy, listed: int, arguments: list[str]) -> Configured:
        """One step."""
        status, reply = await self._runner.run(
            "configure_nodes", by.replica_id, by.revision, int(by.recovering), listed, *arguments, durable=True
        )
        if status == "outdated":
            return Configured(outdated=True)
        changed, gone, stay, without = ([codec.text(part) for part in parts] for parts in reply)
        if not by.recovering:
            for index in range(0, len(changed), 3):
                self.recent_changes[changed[index]] = ListedNode(changed[index + 1], DiscoveryState(changed[index + 2]))
        self.recent_changes |= dict.fromkeys(gone)
        return Configured(tuple(gone), tuple(stay), tuple(without))

    async def _configured(self) -> dict[str, int]:
        """Node → the revision of the last configuration that listed it."""
        client, key = self._runner.client, self._runner.keys.configured
        found: dict[str, int] = {}
        while page := await client.command("ZRANGE", key, len(found), len(found) + READ_A_STEP - 1, "WITHSCORES"):
            before = len(found)
            found |= {codec.text(page[index]): int(float(page[index + 1])) for index in range(0, len(page), 2)}
            if len(found) == before:
                break  # the list changed meanwhile; a missed node stays until the next start
        return found

    async def replace(
        self, active: Sequence[NodeAddress], lingering: Sequence[NodeAddress], *, of_kubernetes: bool = False
    ) -> tuple[str, ...]:
        """Replace the whole list; an id in both lists drains. Up to 64 changes are one atomic step. Returns the
        nodes that stay without labels, because there are too many label sets.

        `of_kubernetes`: labels are those of Kubernetes, not of the API, and nodes that replicas' configurations list
        stay listed, whether or not they are in this list. Raises Conflict when labels of the API would
        make too many label sets."""
        source = LabelSource.KUBERNETES if of_kubernetes else LabelSource.API
        wanted = {node.node_id: ListedNode(node.endpoint, DiscoveryState.ACTIVE, node.labels) for node in active}
        wanted |= {node.node_id: ListedNode(node.endpoint, DiscoveryState.LINGERING, node.labels) for node in lingering}
        listed = await self._listed(source)
        changes: list[tuple[str, ...]] = [
            entry(node_id, node) for node_id, node in wanted.items() if not node.is_as(listed.get(node_id))
        ]
        # Read after the list: who is configured meanwhile is not in it yet.
        kept = await self._configured() if of_kubernetes else {}
        removals = [(node_id,) for node_id in listed if node_id not in wanted and node_id not in kept]
        steps = [*changes, *removals]
        unlabelled: list[str] = []
        for first in range(0, len(steps), CHANGES_A_STEP):
            step = steps[first : first + CHANGES_A_STEP]
            listing = [change for change in step if len(change) == 4]
            gone = [change[0] for change in step if len(change) == 1]
            arguments = [part for change in listing for part in change]
            _, *without = await self._set_nodes(0, source, len(listing), *arguments, *gone)
            unlabelled += map(codec.text, without)
            for node_id, *_ in step:
                node = wanted.get(node_id)
                self.recent_changes[node_id] = replace(node, labels=None) if node and of_kubernetes else node
        return tuple(unlabelled)

    async def remove(self, node_id: str) -> None:
        """Remove a node from the list. Raises NotFound for one that is not listed."""
        reply = await self._set_nodes(0, LabelSource.API, 0, node_id)
        self.recent_changes[node_id] = None
        if int(reply[0]) == 0:
            raise NotFound(f"node {node_id!r} is not known")

    async def unregister(self, node_id: str, service_instance_id: str) -> None:
        """Forget a node's report, bindings and artifacts. Raises InstanceMismatch."""
        status, reply = await self._runner.run("unregister_node", node_id, service_instance_id, durable=True)
        if status == "mismatch":
            raise InstanceMismatch("service instance mismatch", reporting_instance_id=codec.text(reply[0]))
        if self._upstream is not None:
            await self._upstream.forget(node_id)

    async def addresses(self) -> tuple[NodeAddress, ...]:
        """Every discovered node, active and lingering, in id order."""
        listed = (await self._listed(LabelSource.API)).items()
        return tuple(NodeAddress(node_id, endpoint) for node_id, (endpoint, state, _) in listed if state in _DISCOVERED)

    async def _listed(self, source: LabelSource) -> dict[str, tuple[str, str, str]]:
        """Node → endpoint, state, and its labels from one source. A state that discovery does not know is that of a
        change which was stopped half-way."""
        client, keys = self._runner.client, self._runner.keys
        ids = [codec.text(node_id) for node_id in await client.command("ZRANGE", keys.nodes, 0, -1)]
        listed: dict[str, tuple[str, str, str]] = {}
        for first in range(0, len(ids), READ_A_STEP):
            chunk = ids[first : first + READ_A_STEP]
            hashes = await client.pipeline(
                [("HMGET", keys.node(node_id), "endpoint", "discovery", f"labels_{source}") for node_id in chunk]
            )
            for node_id, (endpoint, discovery, told) in zip(chunk, hashes, strict=True):
                listed[node_id] = (codec.text(endpoint or b""), codec.text(discovery or b""), codec.text(told or b""))
        return listed

    # -- reports ----------------------------------------------------------------------------------------------

    async def heartbeat(self, heartbeat: Heartbeat, deadline_ms: int | None = None) -> HeartbeatResult:
        """Install one report, then apply its roster. Raises NodeNotListed.

        A report without a sequence is dropped when its caller's deadline (10 s when none is given) passed before the
        ledger was reached: the node has sent another one by then."""
        with deadline.within((deadline_ms or HEARTBEAT_DEADLINE_MS) / 1000):
            return await self._heartbeat(heartbeat)

    async def _heartbeat(self, heartbeat: Heartbeat) -> HeartbeatResult:
        roster = clean_roster(heartbeat.sandbox_ids)
        digest = "" if roster is None else codec.roster_digest(roster)
        change, edits = RosterChange(), ""
        offer = report_arguments(heartbeat, digest, "offer", edits, change)
        status, reply = await self._runner.run("record_heartbeat", *offer)
        while status == "roster":
            # Another call may change the installed roster between these two; then it is read again.
            edits, change = codec.text(reply[0]), await difference_to(self._runner, heartbeat.node_id, roster or ())
            stage = "whole" if fits_one_call(change) else "sliced"
            status, reply = await self._runner.run(
                "record_heartbeat", *report_arguments(heartbeat, digest, stage, edits, change)
            )
        if status == "unlisted":
            raise NodeNotListed(NOT_LISTED)
        generation = int(reply[0])
        self._runner.note_sequence(generation)
        if status == "stale":
            return HeartbeatResult(generation, stale=True)
        follows, edits, template_due, more, unlabelled, changes, *contested = reply[1:]
        self._runner.memory.remember_changes(changes)
        if int(follows) == 1:
            slices = (digest, generation, codec.text(edits), change)
            contested = await apply_roster(self._runner, heartbeat.node_id, *slices)
        elif int(more) == 1:
            await finish_report(self._runner, heartbeat.node_id, digest, generation, codec.text(edits))
        if self._upstream is not None and (change.added or change.removed):
            await self._upstream.follow(change.added)
            await self._upstream.follow(change.removed, lost_by=heartbeat.node_id)
        return HeartbeatResult(
            generation,
            template_due=int(template_due) == 1,
            contested=tuple(map(codec.text, contested)),
            unlabelled=int(unlabelled) == 1,
        )

    async def record_events(self, node_id: str, service_instance_id: str, events: Sequence[SandboxEvent]) -> int:
        """Record events; returns how many were new, 0 for those of a replaced process. Raises NodeNotListed."""
        counted = 0
        for first in range(0, len(events), EVENTS_A_CALL):
            arguments: list[Any] = []
            for event in events[first : first + EVENTS_A_CALL]:
                arguments += [event.event_type.value, event.sandbox_id]
                arguments += [event.requested_cpu, event.requested_memory_bytes]
            status, reply = await self._runner.run("record_events", node_id, service_instance_id, *arguments)
            if status == "unlisted":
                raise NodeNotListed(NOT_LISTED)
            if status == "stale":
                return counted
            counted += int(reply[0])
            self._runner.memory.remember_changes(reply[1])
        if self._upstream is not None:
            begun = (SandboxEventType.CREATE, SandboxEventType.FORK)
            await self._upstream.follow([event.sandbox_id for event in events if event.event_type in begun])
            deleted = [event.sandbox_id for event in events if event.event_type is SandboxEventType.DELETE]
            await self._upstream.follow(deleted, lost_by=node_id)
        return counted

    # -- views ------------------------------------------------------------------------------------------------

    async def get(self, node_id: str) -> Node:
        """One discovered node, whether or not it has reported. Raises NotFound."""
        found, _ = await read_nodes(self._runner, NodeQuery(), "", 1, [node_id])
        if not found:
            raise NotFound(f"node {node_id!r} is not known")
        return found[0]

    async def page(self, query: NodeQuery, limit: int, cursor: str = "") -> tuple[tuple[Node, ...], str | None]:
        """At most `limit` of the nodes that were asked for, and the cursor of the next page (None at the end).

        In id order this reads no more than it answers, as far as the filters allow; in any other order it reads a line
        of every node. Raises InvalidRequest for a cursor of another order."""
        return await read_page(self._runner, query, limit, cursor)

    async def tally(self) -> FleetTally:
        """Nodes by status, and their total load. Read in slices, so not of a single instant."""
        tally, after = FleetTally(), b""
        while True:
            _, (after, *slice_reply) = await self._runner.run("tally_nodes", after)
            tally = codec.add_nodes(tally, slice_reply)
            if not after:
                return tally

    async def list(self, cluster_id: str = "") -> tuple[Node, ...]:
        """Every discovered node in id order, or those whose report names this cluster."""
        nodes: tuple[Node, ...] = ()
        after: str | None = ""
        while after is not None:
            page, after = await self.page(NodeQuery(cluster_id=cluster_id), NODES_A_STEP, after)
            nodes += page
        return nodes
