"""Compares what callers were answered with what the ledger says in the end.

    once      no key got two reservations, no reservation two nodes
    kept      every acknowledged placement is in the ledger
    bound     every acknowledged confirm is recorded, and its sandbox is bound to that node
    free      every acknowledged cancel holds nothing
    admitted  replaying the recorded reservations, no node was ever over its capacity
    sound     the ledger agrees with a recount of itself
    honest    every answer was one of those the contract names

A ledger that lost its data may have lost placements. The documented rule is then that whoever asks gets an error that
says so: `not_rebuilt` for one binding_ttl, afterwards `not_found`; never another truth.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import httpx

from scheduler.connection.keys import DEFAULT_DOMAIN, Keys
from scheduler.inspection.recount import recount
from scheduler.ledger.ledger import open_ledger
from tests.replicas.harness.fleet import MIB, Fleet
from tests.replicas.harness.history import Answer, History
from tests.replicas.harness.rig import Rig
from tests.replicas.harness.watcher import Watch, recount_once
from tests.support.servers import RedisServer

HOLDING = ("pending", "confirmed")
_ALLOWED = {
    "schedule": {
        (200, ""),
        (503, "no_nodes"),
        (503, "store_unavailable"),
        (503, "overloaded"),
        (504, "deadline_exceeded"),
    },
    "confirm": {(200, ""), (503, "store_unavailable"), (503, "overloaded"), (504, "deadline_exceeded")},
}
_ALLOWED["cancel"] = _ALLOWED["confirm"]
_ALLOWED_AFTER_LOSS = {(503, "not_rebuilt"), (404, "not_found"), (409, "conflict")}


@dataclass(slots=True)
class Verdict:
    """`faults` is empty when all was kept. `lost`: acknowledged placements that the ledger no longer has."""

    placed: int = 0
    confirmed: int = 0
    cancelled: int = 0
    replayed: int = 0
    unanswered: int = 0
    recounts: int = 0
    lost: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def line(self) -> str:
        return (
            f"{self.placed} placed, {self.confirmed} confirmed, {self.cancelled} cancelled, "
            f"{self.replayed} told again, {self.unanswered} attempts without an answer, "
            f"{self.recounts} recounts, {len(self.lost)} lost, {len(self.faults)} faults"
        )


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the judge looks at. `loss_allowed`: the ledger was lost or rolled back on purpose."""

    history: History
    rig: Rig
    server: RedisServer
    fleet: Fleet
    watch: Watch | None = None
    loss_allowed: bool = False
    domain: str = DEFAULT_DOMAIN


async def judge(evidence: Evidence) -> Verdict:
    """Asks a living replica about every placement, and the server about everything. Prints one line."""
    history, verdict = evidence.history, Verdict()
    placements = history.placements()
    verdict.placed = len(placements)
    verdict.confirmed = len(history.last_acknowledged("confirm"))
    verdict.cancelled = len(history.last_acknowledged("cancel"))
    verdict.replayed = sum(answer.replayed for answer in history.answers)
    verdict.unanswered = sum(answer.status is None for answer in history.answers)
    verdict.faults += _dishonest(history, evidence.loss_allowed)
    verdict.faults += _placed_twice(placements, evidence.loss_allowed)
    await _ask_about_everything(evidence, placements, verdict)
    ledger = await asyncio.to_thread(_recorded, evidence)
    if not evidence.fleet.living:
        verdict.faults += _replay(ledger, evidence.fleet)
    else:
        verdict.faults += _overfilled(evidence.fleet)
    if not evidence.loss_allowed:
        verdict.faults += _made_up(ledger, placements, history)
    pinned = not evidence.fleet.living
    verdict.faults += await asyncio.to_thread(
        recount_once, evidence.server, admission=pinned and not evidence.loss_allowed, domain=evidence.domain
    )
    verdict.faults += await _inspected(evidence)
    if evidence.watch is not None:
        verdict.recounts = evidence.watch.recounts
        verdict.faults += evidence.watch.violations
    print(f"seed {evidence.rig.seed}: {verdict.line()}\n  {history.tally()}")
    return verdict


async def _inspected(evidence: Evidence) -> list[str]:
    """What `agentenv-scheduler inspect check` finds: lists, indexes, bindings, keys without a bound."""
    ledger = await open_ledger(evidence.server.url, domain=evidence.domain)
    try:
        return await recount(ledger)
    finally:
        await ledger.close()


def assert_kept(verdict: Verdict, evidence: Evidence) -> None:
    """Nothing placed twice, overdrawn or lost; the history is left for reading when that is not so."""
    found = verdict.faults + ([] if evidence.loss_allowed else [f"lost: {what}" for what in verdict.lost])
    if found:
        kept = Path(gettempdir()) / f"history-{evidence.rig.seed}.jsonl"
        evidence.history.save(kept)
        shown = "\n  ".join(found[:20])
        raise AssertionError(f"seed {evidence.rig.seed}, history in {kept}: {len(found)} faults\n  {shown}")


def _dishonest(history: History, loss_allowed: bool) -> Iterable[str]:
    for answer in history.answers:
        still_putting_back = answer.code == "not_rebuilt" and answer.fault == "waiting"
        if answer.status is None or still_putting_back:
            continue
        said = (answer.status, answer.code)
        if said not in _ALLOWED[answer.call] and not (loss_allowed and said in _ALLOWED_AFTER_LOSS):
            yield f"{answer.call} {answer.key} was answered {answer.status} {answer.code} by {answer.replica}"


def _placed_twice(placements: dict[str, list[Answer]], loss_allowed: bool) -> Iterable[str]:
    owner: dict[str, str] = {}
    for key, answers in placements.items():
        told = {(answer.reservation_id, answer.node_id) for answer in answers}
        if len(told) > 1 and not loss_allowed:
            yield f"{key} was placed {len(told)} times: {sorted(told)}"
        for reservation_id, _ in told:
            if owner.setdefault(reservation_id, key) != key:
                yield f"{reservation_id} was given to {owner[reservation_id]} and to {key}"


async def _ask_about_everything(evidence: Evidence, placements: dict[str, list[Answer]], verdict: Verdict) -> None:
    confirmed = evidence.history.last_acknowledged("confirm")
    cancelled = evidence.history.last_acknowledged("cancel")
    slots = asyncio.Semaphore(16)
    async with httpx.AsyncClient(base_url=evidence.rig.urls[0], trust_env=False, timeout=20) as client:

        async def ask(key: str, answers: list[Answer]) -> None:
            async with slots:
                async for fault in _judge_placement(
                    client, answers[-1], confirmed.get(key), cancelled.get(key), evidence
                ):
                    (verdict.lost if fault.startswith("not there") else verdict.faults).append(f"{key}: {fault}")

        await asyncio.gather(*(ask(key, answers) for key, answers in placements.items()))


async def _judge_placement(
    client: httpx.AsyncClient, placed: Answer, confirmed: Answer | None, cancelled: Answer | None, evidence: Evidence
) -> Any:
    response = await client.get(f"/v1/reservations/{placed.reservation_id}")
    body = response.json()
    if response.status_code != 200:
        reported = (response.status_code, body.get("code")) in {(503, "not_rebuilt"), (404, "not_found")}
        yield f"not there ({response.status_code} {body.get('code')})" if reported else f"asked, it says {body}"
        return
    now = body["reservation"]
    if now["node_id"] != placed.node_id:
        yield f"placed on {placed.node_id}, recorded on {now['node_id']}"
    if cancelled is not None and now["state"] in HOLDING and not evidence.loss_allowed:
        yield f"cancelled, but {now['state']}"
    if confirmed is None:
        return
    if now["sandbox_id"] != f"sandbox-{placed.key}" or now["state"] not in ("confirmed", "settled"):
        if evidence.loss_allowed:
            yield f"not there any more: its confirm (now {now['state']})"
        else:
            yield f"confirmed, but {now['state']} with {now['sandbox_id']}"
        return
    binding = await client.get(f"/v1/bindings/sandbox-{placed.key}")
    if binding.status_code != 200 and evidence.loss_allowed:
        yield f"not there: its binding ({binding.status_code})"
    elif binding.status_code != 200 or binding.json()["node"]["node_id"] != placed.node_id:
        yield f"confirmed on {placed.node_id}, but its binding answers {binding.status_code} {binding.text}"


def _recorded(evidence: Evidence) -> dict[str, dict[str, str]]:
    """Every reservation the ledger holds, read past the product."""
    keys = Keys(evidence.domain)
    prefix = keys.reservation("")
    with evidence.server.client(socket_timeout=15) as client:
        names = sorted(set(client.scan_iter(match=f"{prefix}*", count=1000)))
        return {name.removeprefix(prefix): client.hgetall(name) for name in names}


def _made_up(ledger: dict[str, dict[str, str]], placements: dict[str, list[Answer]], history: History) -> Iterable[str]:
    """Reservations that nobody was told of may only stem from attempts that got no answer."""
    told = {answer.reservation_id for answers in placements.values() for answer in answers}
    in_doubt = {answer.key for answer in history.answers if answer.call == "schedule"} - set(placements)
    untold = set(ledger) - told
    if len(untold) > len(in_doubt):
        yield f"{len(untold)} reservations nobody was told of, but only {len(in_doubt)} keys are in doubt"


def _replay(ledger: dict[str, dict[str, str]], fleet: Fleet) -> Iterable[str]:
    """Pinned nodes report nothing, so what is admitted is what is reserved: add and subtract it in time's order.

    What ends and what begins in the same millisecond is taken in the order that the ledger must have had."""
    steps: dict[str, list[tuple[int, int, int, int]]] = defaultdict(list)
    for reservation in ledger.values():
        if reservation.get("orphaned") == "1" or reservation.get("tombstone"):
            continue
        cpu, memory = int(reservation["cpu_count"]), int(reservation["memory_bytes"])
        steps[reservation["node_id"]].append((int(reservation["created_at_ms"]), 1, cpu, memory))
        if reservation.get("finished_at_ms"):
            steps[reservation["node_id"]].append((int(reservation["finished_at_ms"]), 0, -cpu, -memory))
    for node_id, changes in steps.items():
        node, cpu, memory = fleet.nodes[node_id], 0, 0
        for moment, _, cpu_change, memory_change in sorted(changes):
            cpu, memory = cpu + cpu_change, memory + memory_change
            if cpu > node.cpu_count or memory > node.memory_mb * MIB:
                yield f"{node_id} had {cpu} CPUs and {memory} bytes reserved at {moment}"
                break


def _overfilled(fleet: Fleet) -> Iterable[str]:
    """What really ran on living nodes."""
    for node in fleet.nodes.values():
        if node.most_cpu > node.cpu_count or node.most_memory_mb > node.memory_mb:
            yield f"{node.node_id} ran {node.most_cpu} CPUs and {node.most_memory_mb} MiB at once"
