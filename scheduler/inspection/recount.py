"""The whole ledger counted anew: does what it says add up, and is every key explained?

Each node, reservation, binding, group, artifact and slice of the index is judged by a script that reads it at one
moment (`lua/recount_*.lua`), so a check is right under load. What is found is reported only if a second look finds
it again. Nothing is written.

    keys          SCAN: unknown ones, and what keeps each from piling up
    numbers       text where a number belongs; while there is any, nothing below is counted
    nodes         row ↔ report, settings, sets, open reservations, claims
    reservations  hash ↔ lists, deadline, node, name
    bindings      sandbox ↔ roster or assignment, both ways
    groups        charges ↔ reservations
    spreads       counts ↔ reservations and records of sandboxes
    artifacts     provider ↔ offer, both ways
    warm keys     node ↔ image or template, both ways
    resources     order of free ones ↔ rows, both ways
    index         rows and heads of each class ↔ rows of its nodes
    totals        sizes of lists that must agree, sums ↔ rows and reservations
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from scheduler.inspection.finding import UNEXPLAINED, Finding, findings_in
from scheduler.inspection.key_bounds import judge_keys
from scheduler.inspection.key_table import FoundKey, explain_key
from scheduler.inspection.spreads import SpreadWalk
from scheduler.inspection.tallies import recount_tallies
from scheduler.inspection.walks import SLICE, in_slices, keys_of, members_of, members_of_each
from scheduler.ledger import codec
from scheduler.ledger.ledger import Ledger
from scheduler.ledger.odd_hashes import NODE_NUMBERS, RESERVATION_NUMBERS, odd_numbers

# Small, because everybody else waits while a script runs.
RESERVATIONS_AT_ONCE = 100
BINDINGS_AT_ONCE = 200
ARTIFACTS_AT_ONCE = 200
GROUP_ATTEMPTS = 5
CHUNKS_AT_ONCE = 16

_NODE_LISTS = (
    *("nodes", "candidates", "ready", "waiting", "unhealthy", "last_resort", "lingering", "over_limit"),
    *("avoided", "avoided_ready", "avoided_last_resort", "avoided_until", "seen", "silent", "loads"),
)
_SORTED_SETS = (
    *_NODE_LISTS[:-1],
    *("reservations", "expiry", "finished", "assigned", "templates", "artifacts", "groups:recent"),
)
_HASHES = ("loads", "bindings", "classes", "groups", "spreads")
_LISTS = dict.fromkeys(_SORTED_SETS, "ZSCAN") | dict.fromkeys(_HASHES, "HSCAN")


@dataclass(frozen=True, slots=True)
class Report:
    """`violations` held up on a second look. `looked_at` counts things, each once however often it was judged.
    `notes`: no violations, but what in the server's configuration may cost the ledger keys."""

    violations: tuple[Finding, ...] = ()
    looked_at: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.violations


async def recount(ledger: Ledger) -> list[str]:
    """What is wrong with the ledger, one sentence each; empty when all of it adds up."""
    return [str(violation) for violation in (await check(ledger)).violations]


async def check(ledger: Ledger) -> Report:
    """`recount` with what was looked at. Raises StoreUnavailable when the ledger was never opened."""
    first = Look(ledger)
    suspicious = {finding.identity for finding in await first.everything()}
    again = await Look(ledger).everything() if suspicious else []
    standing = tuple(sorted({finding for finding in again if finding.identity in suspicious}))
    return Report(standing, dict(first.looked_at), await ledger.client.hazards())


class Look:
    """One pass over everything. Keys that were scanned lead to what they belong to, listed or not."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._keys: dict[str, list[FoundKey]] = defaultdict(list)
        self._lists: dict[str, list[str]] = {}
        self._found: list[Finding] = []
        self.looked_at: Counter[str] = Counter()

    async def everything(self) -> list[Finding]:
        await self._read_lists(await self._scan_keys())
        if await self._odd_numbers():
            return self._found  # nothing else can be counted
        await self._nodes()
        await self._reservations()
        await self._bindings()
        await self._groups()
        await self._spreads()
        await self._templates()
        await self._artifacts()
        await self._warm_keys()
        await self._resources()
        await self._index()
        await self._judge("recount_totals", self._clusters())
        self._found += await recount_tallies(self._ledger)
        return self._found

    async def _judge(self, script: str, arguments: Sequence[str]) -> str:
        """Runs one recount script, keeps what it found, and gives its status."""
        status, reply = await self._ledger.runner.run(script, *arguments)
        if status == "recounted":
            self._found += findings_in(reply)
        return status

    # -- keys -------------------------------------------------------------------------------------------------

    async def _scan_keys(self) -> set[str]:
        seen: set[str] = set()
        async for page in keys_of(self._ledger):
            fresh = [key for key in dict.fromkeys(page) if key not in seen]
            seen.update(fresh)
            explained = []
            for key in fresh:
                found = explain_key(self._ledger.keys, key)
                if found is None:
                    self._found.append(Finding(f"key {key}", UNEXPLAINED, "is one that nothing explains"))
                else:
                    explained.append(found)
                    self._keys[found.kind.name].append(found)
            for some in in_slices(explained, SLICE):
                self._found += await judge_keys(self._ledger, some)
        self.looked_at["keys"] = len(seen)
        return seen

    async def _read_lists(self, there: set[str]) -> None:
        """Whom the domain's lists name. One that the scan did not find was empty then; most are."""
        keys = {name: self._ledger.keys.named(name) for name in _LISTS}
        asked = {name: (_LISTS[name], key) for name, key in keys.items() if key in there}
        found = await members_of_each(self._ledger, list(asked.values()))
        self._lists = defaultdict(list, zip(asked, found, strict=True))

    def _ids(self, *kinds: str) -> Iterable[str]:
        """The ids in the scanned keys of these kinds."""
        return (found.identity for kind in kinds for found in self._keys[kind])

    def _clusters(self) -> list[str]:
        return sorted(set(self._ids("cpu_configs:{}", "cpu_config_counts:{}", "cpu_config_result:{}")))

    async def _odd_numbers(self) -> bool:
        """Whether a node or reservation has text where a number belongs."""
        keys, count = self._ledger.keys, len(self._found)
        for kind, key_of, numbers in (
            ("node", keys.node, NODE_NUMBERS),
            ("reservation", keys.reservation, RESERVATION_NUMBERS),
        ):
            for some in in_slices(dict.fromkeys(self._ids(f"{kind}:{{}}")), SLICE):
                rows = await odd_numbers(self._ledger.client, [key_of(identity) for identity in some], numbers)
                self._found += [
                    Finding(f"{kind} {identity}", name, f"has {text!r} as {name}, which is no number")
                    for identity, row in zip(some, rows, strict=True)
                    for name, text in row.items()
                ]
        return len(self._found) > count

    # -- what scripts judge -----------------------------------------------------------------------------------

    async def _nodes(self) -> None:
        node_parts = [kind for kind in self._keys if kind.startswith("node:{}")]
        node_ids = set(self._ids(*node_parts))
        for name in _NODE_LISTS:
            node_ids.update(self._lists[name])
        self.looked_at["nodes"] = len(node_ids)
        for node_id in sorted(node_ids):
            await self._judge("recount_node", [node_id])

    async def _reservations(self) -> None:
        ids = dict.fromkeys(self._ids("reservation:{}"))
        for name in ("reservations", "expiry", "finished"):
            ids |= dict.fromkeys(self._lists[name])
        self.looked_at["reservations"] = len(ids)
        for some in in_slices(ids, RESERVATIONS_AT_ONCE):
            await self._judge("recount_reservations", some)

    async def _bindings(self) -> None:
        # A pair for everyone who names the sandbox: several are one binding.
        pairs = [("", sandbox_id) for sandbox_id in self._lists["bindings"]]
        self.looked_at["bindings"] = len(set(pairs))
        pairs += [("", sandbox_id) for sandbox_id in self._lists["assigned"]]
        for kind, command in (("node:{}:sandboxes", "SSCAN"), ("node:{}:assigned", "ZSCAN")):
            for found in self._keys[kind]:
                listed = members_of(self._ledger, command, found.key)
                pairs += [(found.identity, sandbox_id) async for sandbox_id in listed]
        await self._judge_pairs("recount_bindings", dict.fromkeys(pairs), BINDINGS_AT_ONCE)

    async def _judge_pairs(self, script: str, pairs: Iterable[tuple[str, str]], at_once: int) -> None:
        for some in in_slices(pairs, at_once):
            await self._judge(script, [part for pair in some for part in pair])

    async def _templates(self) -> None:
        keys, client = self._ledger.keys, self._ledger.client
        for some in in_slices(self._lists["templates"], SLICE):
            there = await client.pipeline([("EXISTS", keys.template(template_id)) for template_id in some])
            for template_id, exists in zip(some, there, strict=True):
                if not int(exists):
                    self._found.append(Finding(f"template {template_id}", "absent", "is listed but does not exist"))

    async def _artifacts(self) -> None:
        pairs = [("", artifact) for artifact in self._ids("artifact:{}")]
        pairs += [("", artifact) for artifact in self._lists["artifacts"]]
        for found in self._keys["node:{}:artifacts"]:
            pairs += [(found.identity, artifact) async for artifact in members_of(self._ledger, "SSCAN", found.key)]
        self.looked_at["artifacts"] = len({artifact for _, artifact in pairs})
        await self._judge_pairs("recount_artifacts", dict.fromkeys(pairs), ARTIFACTS_AT_ONCE)

    async def _warm_keys(self) -> None:
        pairs: list[tuple[str, str]] = []
        for found in self._keys["node:{}:warm"]:
            pairs += [(found.identity, origin) async for origin in members_of(self._ledger, "ZSCAN", found.key)]
        for found in self._keys["warm:{}"]:
            pairs += [(node_id, found.identity) async for node_id in members_of(self._ledger, "ZSCAN", found.key)]
        await self._judge_pairs("recount_warm", dict.fromkeys(pairs), ARTIFACTS_AT_ONCE)

    async def _resources(self) -> None:
        """Each resource leads to nodes that have some of it; nodes lead to theirs in recount_node."""
        for found in self._keys["resource:{}"]:
            size = int(await self._ledger.client.command("ZCARD", found.key))
            for first in range(0, size, SLICE):
                await self._judge("recount_resource", [found.identity, str(first)])

    async def _index(self) -> None:
        """Each row leads to its nodes, each class to its rows; nodes lead to their rows in recount_node."""
        for kind in ("row", "unknown"):
            for found in self._keys[f"{kind}:{{}}"]:
                size = int(await self._ledger.client.command("ZCARD", found.key))
                for first in range(0, size, SLICE):
                    await self._judge("recount_row", [kind, found.identity, str(first)])
        classes = dict.fromkeys(self._lists["classes"])
        self.looked_at["classes"] = len(classes)
        for name in classes:
            first = 0
            while await self._judge("recount_class", [name, str(first)]) != "done":
                first += CHUNKS_AT_ONCE

    async def _groups(self) -> None:
        names = dict.fromkeys([*self._lists["groups"], *self._lists["groups:recent"]])
        self.looked_at["groups"] = len(names)
        charges = _Charges(self._ledger)
        for name in names:
            for _ in range(GROUP_ATTEMPTS):
                await charges.read_on()
                if await self._judge("recount_group", [name, *charges.of(name)]) != "moved":
                    break

    async def _spreads(self) -> None:
        walk = SpreadWalk(self._ledger)
        await walk.read()
        names = walk.keys | set(self._ids("spread:{}"))
        names.update(self._lists["spreads"])
        self.looked_at["spreads"] = len(names)
        for name in sorted(names):
            status, reply = await walk.judge("recount_spread", name)
            if status == "recounted":
                self._found += findings_in(reply)


class _Charges:
    """Which reservations name which group, by sequence as far as it was read."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._by_group: dict[str, list[str]] = defaultdict(list)
        self._walked_to = 0

    def of(self, group_key: str) -> list[str]:
        """The arguments of recount_group."""
        return [str(self._walked_to), *self._by_group[group_key]]

    async def read_on(self) -> None:
        keys, client = self._ledger.keys, self._ledger.client
        while True:
            after = f"({self._walked_to}"
            page = await client.command(
                "ZRANGEBYSCORE", keys.reservations, after, "+inf", "WITHSCORES", "LIMIT", 0, SLICE
            )
            if not page:
                return
            ids = [codec.text(reservation_id) for reservation_id in page[0::2]]
            groups = await client.pipeline([("HGET", keys.reservation(found), "group_key") for found in ids])
            for reservation_id, group_key in zip(ids, groups, strict=True):
                if group_key is not None:
                    self._by_group[codec.text(group_key)].append(reservation_id)
            self._walked_to = int(float(page[-1]))
            if len(ids) < SLICE:
                return
