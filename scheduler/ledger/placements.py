"""Placing a sandbox: one script chooses the node and reserves on it."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from typing import Any

from scheduler.connection.budget import Budget
from scheduler.domain.node import NodeAddress, NodeStatus, PendingTotals, Pressure
from scheduler.domain.placement import (
    BatchDecision,
    BatchRequest,
    Decision,
    Explanation,
    LabelMismatch,
    NodeExplanation,
    OverLimit,
    Placed,
    Refused,
    ScheduleRequest,
    Strategy,
)
from scheduler.domain.reservation import Reservation
from scheduler.errors import Conflict, InvalidRequest, NoNodes, Overloaded
from scheduler.ledger import codec, request_codec
from scheduler.ledger.runner import Runner, unexpected
from scheduler.ledger.several import SeveralPlacements

EXPLAIN_PAGE = 100

# What explain ranks a node by: how many with the request's spread key are there, a number, what breaks ties, its id.
Place = tuple[int, float, bytes, bytes]


class PlacementStore:
    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._several = SeveralPlacements(runner)

    async def schedule(self, request: ScheduleRequest) -> Decision:
        """Choose a node and, for a creation, reserve on it.

        Raises NoNodes, Conflict (the idempotency key belongs to another or a finished request, or the sandbox id
        to another sandbox), Overloaded.
        """
        if request.idempotency_key is None:
            # Nobody else knows the id, so no other request can come with it.
            return await self._schedule(request, os.urandom(16).hex(), "")
        reservation_id = request_codec.keyed_reservation_id(request.caller, request.idempotency_key)
        return await self._schedule(request, reservation_id, request_codec.fingerprint(request))

    async def _schedule(self, request: ScheduleRequest, reservation_id: str, fingerprint: str) -> Decision:
        status, reply = await self._decide(request, reservation_id, fingerprint)
        if status == "refused":
            raise _no_nodes(reply)
        if status == "conflict" and not reply[0]:
            raise Conflict("the idempotency key belongs to a batch")
        if status == "conflict":
            former = request_codec.former_fingerprint(request)
            if former != fingerprint and codec.texts(reply[0]).get("fingerprint") == former:
                return await self._schedule(request, reservation_id, former)
            self._runner.memory.remember(reservation_id, reply[0])
            found = codec.reservation(reservation_id, reply[0])
            raise Conflict(f"the idempotency key belongs to {_whose(found.state)}", reservation=found)
        if status == "taken":
            raise _taken(str(request.sandbox_id), reply[0])
        _raise_unless_decided(status, reply)
        if status not in ("placed", "replayed"):
            raise unexpected("schedule_sandbox", status)
        node_id, endpoint, strategy, degraded, *told = reply
        reservation = None
        if told:
            reservation = self._reserved(reservation_id, node_id, told, request, fingerprint, strategy)
        return Decision(
            NodeAddress(codec.text(node_id), codec.text(endpoint)),
            Strategy(codec.text(strategy)),
            replayed=status == "replayed" and request.idempotency_key is not None,
            degraded=degraded == b"1",
            reservation=reservation,
        )

    async def _decide(self, request: ScheduleRequest, reservation_id: str, fingerprint: str) -> tuple[str, list[Any]]:
        """The reply of lua/schedule_sandbox: together with others of the same turn, or alone."""
        terms = (
            reservation_id,
            fingerprint,
            request.lifecycle.value,
            "" if request.reservation_ttl_ms is None else request.reservation_ttl_ms,
            request.request_id,
            request.caller,
        )
        several, budget = self._several, None
        several.under_way += 1
        try:
            form = request_codec.request_arguments(request, self._runner.entropy())
            if several.takes(request):
                budget = self._runner.budget()
                answer = await several.answer((*terms, *request_codec.ordinary_arguments(form)), budget)
                if answer is not None:
                    return answer
            arguments = (*terms, request.sandbox_id or "", *form)
            return await self._run("schedule_sandbox", arguments, durable=request.hint is not None, budget=budget)
        finally:
            several.under_way -= 1

    async def schedule_batch(self, batch: BatchRequest) -> BatchDecision:
        """Place all creations of a batch in one step, each as if it were asked for after the one before it.

        Raises NoNodes when all or none are wanted and one does not fit, Conflict (the idempotency key belongs to
        another request, or a sandbox id to another sandbox), Overloaded."""
        first = batch.requests[0]
        keyed = batch.idempotency_key is not None
        base_id = request_codec.batch_id(first.caller, batch.idempotency_key or "") if keyed else os.urandom(16).hex()
        fingerprint = request_codec.batch_fingerprint(batch)
        arguments = (
            base_id,
            fingerprint,
            "all" if batch.all_or_none else "some",
            int(keyed),
            first.lifecycle.value,
            "" if first.reservation_ttl_ms is None else first.reservation_ttl_ms,
            first.request_id,
            first.caller,
            *request_codec.batch_arguments(batch, base_id, self._runner.entropy()),
        )
        status, reply = await self._run("schedule_batch", arguments, durable=True)
        if status == "refused":
            raise _no_nodes(reply)
        if status == "conflict":
            single = codec.text(reply[0])
            raise Conflict(f"the idempotency key belongs to {_whose(single) if single else 'another batch'}")
        if status == "taken":
            raise _taken(str(batch.requests[int(reply[0])].sandbox_id), reply[1])
        _raise_unless_decided(status, reply)
        if status != "decided":
            raise unexpected("schedule_batch", status)
        strategy, replayed, placed, refused = reply
        return BatchDecision(
            placed=tuple(
                Placed(
                    int(index),
                    NodeAddress(codec.text(node_id), codec.text(endpoint)),
                    self._reserved(
                        f"{base_id}-{int(index)}", node_id, told, batch.requests[int(index)], fingerprint, strategy
                    ),
                    int(degraded) == 1,
                )
                for index, node_id, endpoint, degraded, *told in placed
            ),
            refused=tuple(
                Refused(int(index), codec.counts(reasons), _over_limit(figures)) for index, figures, *reasons in refused
            ),
            strategy=Strategy(codec.text(strategy)),
            replayed=int(replayed) == 1 and keyed,
        )

    def _reserved(
        self,
        reservation_id: str,
        node_id: bytes,
        told: list[Any],
        request: ScheduleRequest,
        fingerprint: str,
        strategy: bytes,
    ) -> Reservation:
        """The reservation, which is remembered: its fields where it was there already, else what its reply told."""
        if isinstance(told[0], list):
            fields = told[0]
            self._runner.note_sequence(codec.sequence_of(fields))
            self._runner.memory.remember(reservation_id, fields)
            found = codec.reservation(reservation_id, fields)
            return replace(
                found, caller=found.caller or request.caller, request_id=found.request_id or request.request_id or None
            )
        self._runner.note_sequence(int(told[0]))
        if self._runner.memory.limit:
            fields = codec.new_fields(node_id, told, request, fingerprint, strategy)
            self._runner.memory.remember(reservation_id, fields)
        return codec.new_reservation(reservation_id, node_id, told, request)

    async def explain(self, request: ScheduleRequest) -> Explanation:
        """Rank or refusal reason of every node for this request; reserves nothing and moves no cursor."""
        tail = request_codec.request_arguments(request, self._runner.entropy())
        first: list[Any] | None = None
        nodes: list[NodeExplanation] = []
        order: dict[bytes, Place] = {}
        after = ""
        while True:
            status, reply = await self._run("explain_schedule", (after, EXPLAIN_PAGE, *tail))
            _raise_unless_decided(status, reply)
            first = first or reply[:5]
            nodes += [_explained(entry) for entry in reply[5:]]
            order.update({entry[0]: _order(entry) for entry in reply[5:] if entry[3]})
            if len(reply) - 5 < EXPLAIN_PAGE:
                break
            after = nodes[-1].node_id
        strategy, node_id, endpoint, degraded, refusal = first
        node = NodeAddress(codec.text(node_id), codec.text(endpoint)) if node_id else None
        return Explanation(
            strategy=Strategy(codec.text(strategy)),
            node=node,
            degraded=int(degraded) == 1,
            nodes=_ranked(nodes, order),
            reasons=_no_nodes(refusal[1:]).reasons if refusal else {},
            over_limit=_over_limit(refusal[2]) if refusal else None,
        )

    async def _run(
        self, script: str, arguments: tuple[Any, ...], durable: bool = False, budget: Budget | None = None
    ) -> tuple[str, list[Any]]:
        budget = budget or self._runner.budget()
        while True:
            if durable:
                await self._runner.client.replicas.wait_until_enough(budget)
            status, reply = await self._runner.run(script, *arguments, durable=durable, budget=budget)
            if status != "refresh":
                return status, reply
            # Settings changed: node rows are recomputed before anything is decided on them.
            await self._runner.run("refresh_rows")
            budget = self._runner.budget()


def _raise_unless_decided(status: str, reply: list[Any]) -> None:
    if status == "unadmitted":
        name = codec.text(reply[0])
        raise InvalidRequest.field(
            f"hint.resources.{name}", name, "a resource that the setting `resources` lists, or disk"
        )
    if status == "overloaded":
        if reply[0] == b"spread":
            raise Overloaded("10,000 spread keys are in use, and the request's is none of them")
        raise Overloaded("too many nodes hold these resources to be looked at")


def _whose(state: str) -> str:
    return f"a reservation that is {state}" if state in ("cancelled", "expired") else "another request"


def _taken(sandbox_id: str, fields: list[Any]) -> Conflict:
    if not fields:
        return Conflict(f"sandbox {sandbox_id!r} runs already, or did a moment ago")
    # It may be another caller's reservation, so its id and node are not shown.
    return Conflict(f"sandbox {sandbox_id!r} belongs to another reservation")


def _no_nodes(reply: list[Any]) -> NoNodes:
    exceeded = _over_limit(reply[1])
    return NoNodes(int(reply[0]), codec.counts(reply[2:]), None if exceeded is None else asdict(exceeded))


def _over_limit(reply: list[Any]) -> OverLimit | None:
    return OverLimit(codec.text(reply[0]), *map(int, reply[1:])) if reply else None


def _explained(entry: list[Any]) -> NodeExplanation:
    node_id, status, reason, _, cpu_pressure, memory_pressure, cpu, memory, count, exceeded, mismatch, _ = entry
    return NodeExplanation(
        node_id=codec.text(node_id),
        status=NodeStatus(codec.text(status)),
        rank=None,
        reason=codec.text(reason) or None,
        pressure=Pressure(codec.fraction(cpu_pressure), codec.fraction(memory_pressure)),
        pending=PendingTotals(int(cpu), int(memory), int(count)),
        over_limit=_over_limit(exceeded),
        label=_mismatch(mismatch),
    )


def _mismatch(reply: list[Any]) -> LabelMismatch | None:
    if not reply:
        return None
    label, asked, found = map(codec.text, reply)
    return LabelMismatch(label, tuple(asked.split(",")), found or None)


def _order(entry: list[Any]) -> Place:
    number, _, ties = entry[3].partition(b" ")
    return int(entry[11]), float(number), ties, entry[0]


def _ranked(nodes: list[NodeExplanation], order: dict[bytes, Place]) -> tuple[NodeExplanation, ...]:
    """The nodes with their places, without gaps for those that may not be chosen."""
    places = {codec.text(node_id): place for place, node_id in enumerate(sorted(order, key=order.__getitem__))}
    return tuple(replace(node, rank=places.get(node.node_id)) for node in nodes)
