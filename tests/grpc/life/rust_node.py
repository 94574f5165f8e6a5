"""A node as AgentENV's Rust node behaves towards the scheduler: which calls, when, with what in them.

Deliberately faithful where it hurts: one instance id for all nodes and restarts, a CPU template sent
only until a report succeeds, growth before success, back-off up to a minute, events sent once.
"""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import grpc

from scheduler.api.grpc.generated import scheduler_v1_pb2
from tests.grpc.life.timeline import Timeline

v1: Any = scheduler_v1_pb2

INTERVAL_MS = 5_000
BACKOFF_MAX_MS = 60_000
FIRST_REPORT_MS = 100
REPORT_DEADLINE_SECONDS = 10
P2P_DEADLINE_SECONDS = 5
PEERS_DEADLINE_SECONDS = 10
UNREGISTER_PAUSES_MS = (200, 400, 600)
BOOT_MS = 2_000
MIB = 1024 * 1024

# config/default.toml pins it, and no shipped deployment overrides it.
INSTANCE_ID = "service-instance-a"
CLUSTER_ID = "0190c0de-0000-7000-8000-000000000001"


class State(Enum):
    CREATING = "creating"
    RUNNING = "running"
    PAUSED = "paused"


@dataclass
class Sandbox:
    sandbox_id: str
    cpu_count: int
    memory_mb: int
    state: State = State.CREATING
    reported: bool = False


@dataclass
class RustNode:
    """`stub` is replaced when the scheduler moves. `refused` remembers what the scheduler answered badly."""

    node_id: str
    timeline: Timeline
    stub: Any
    chance: random.Random
    cpu_count: int = 64
    memory_mb: int = 128 * 1024
    sandboxes: dict[str, Sandbox] = field(default_factory=dict)
    create_successes: int = 0
    create_fails: int = 0
    running: bool = False
    templates_received: list[str] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    peers: list[str] = field(default_factory=list)
    _process: int = 0
    _told_template: bool = False
    _ever_reported: bool = False
    _backoff_ms: int = INTERVAL_MS

    def start(self) -> None:
        """A new process: counters at zero, nothing in its store, its CPU template untold."""
        self._process += 1
        self.running, self._told_template, self._ever_reported = True, False, False
        self.create_successes = self.create_fails = 0
        self._backoff_ms = INTERVAL_MS
        self.timeline.after(FIRST_REPORT_MS, self._in_process(self._report))
        self.timeline.after(self.chance.randrange(INTERVAL_MS), self._in_process(self._list_peers))

    async def shut_down(self) -> None:
        """Loops stop, UnregisterNode is tried three times, then the sandboxes are stopped."""
        self.running = False
        if self._ever_reported:
            for pause_ms in UNREGISTER_PAUSES_MS:
                request = v1.UnregisterNodeRequest(node_id=self.node_id, service_instance_id=INSTANCE_ID)
                if await self._call("UnregisterNode", request, REPORT_DEADLINE_SECONDS):
                    break
                await self.timeline.run_for(pause_ms)
        self.sandboxes.clear()

    def crash(self) -> None:
        """Nobody is told anything."""
        self.running = False
        self.sandboxes.clear()

    # ── what the gateway asks of it over HTTP ────────────────────────────────

    def create(self, sandbox: Sandbox, done: Callable[[Sandbox], Awaitable[None]]) -> None:
        """In the store from VM start on, and counted as allocated; a success only once it runs."""

        async def begin() -> None:
            self.sandboxes[sandbox.sandbox_id] = sandbox
            self.timeline.after(BOOT_MS, self._in_process(finish))

        async def finish() -> None:
            if sandbox.sandbox_id not in self.sandboxes:
                return
            sandbox.state = State.RUNNING
            self.create_successes += 1
            await self._tell("CREATE", sandbox)
            await done(sandbox)

        # The image is pulled before the VM starts; no field of a report shows it.
        self.timeline.after(self.chance.choice([0, 0, 500, 3_000]), self._in_process(begin))

    async def fork(self, parent: Sandbox, child_ids: list[str]) -> list[Sandbox]:
        children = [Sandbox(child_id, parent.cpu_count, parent.memory_mb, State.RUNNING) for child_id in child_ids]
        for child in children:
            self.sandboxes[child.sandbox_id] = child
            self.create_successes += 1
            await self._tell("FORK", child)
        return children

    async def pause(self, sandbox: Sandbox) -> None:
        sandbox.state = State.PAUSED
        await self._tell("PAUSE", sandbox)

    async def resume(self, sandbox: Sandbox) -> None:
        sandbox.state = State.RUNNING
        await self._tell("RESUME", sandbox)

    async def delete(self, sandbox: Sandbox) -> None:
        del self.sandboxes[sandbox.sandbox_id]
        await self._tell("DELETE", sandbox)

    # ── towards the scheduler ────────────────────────────────────────────────

    async def _report(self) -> None:
        """Sampled now, received a moment later: creates and assignments may fall in between."""
        request, listed = self._heartbeat(), list(self.sandboxes.values())

        async def deliver() -> None:
            answer = await self._call("Heartbeat", request, REPORT_DEADLINE_SECONDS)
            if answer is None:
                self.timeline.after(self._backoff_ms, self._in_process(self._report))
                self._backoff_ms = min(self._backoff_ms * 2, BACKOFF_MAX_MS)
                return
            self._told_template = self._ever_reported = True
            self._backoff_ms = INTERVAL_MS
            if answer.cpu_config_json:
                self.templates_received.append(answer.cpu_config_json)
            for sandbox in listed:
                sandbox.reported = True
            self.timeline.after(INTERVAL_MS, self._in_process(self._report))

        self.timeline.after(self.chance.randrange(1, 300), self._in_process(deliver))

    def _heartbeat(self) -> Any:
        paused = [sandbox for sandbox in self.sandboxes.values() if sandbox.state is State.PAUSED]
        active = [sandbox for sandbox in self.sandboxes.values() if sandbox.state is not State.PAUSED]
        return v1.HeartbeatRequest(
            node_id=self.node_id,
            cluster_id=CLUSTER_ID,
            service_instance_id=INSTANCE_ID,
            version="0.1.3",
            commit="e3dcc6a",
            machine_info=v1.MachineInfo(
                cpu_family="6",
                cpu_model="143",
                cpu_model_name="a CPU",
                cpu_architecture="x86_64",
                cpu_config_json="" if self._told_template else self._template(),
            ),
            snapshot=v1.NodeSnapshot(
                status=v1.NODE_STATUS_READY,
                cpu_count=self.cpu_count,
                memory_total_bytes=self.memory_mb * MIB,
                memory_used_bytes=sum(sandbox.memory_mb for sandbox in active) * MIB // 2,
                cpu_percent=min(100, 3 * len(active)),
                allocated_cpu=sum(sandbox.cpu_count for sandbox in active),
                allocated_memory_bytes=sum(sandbox.memory_mb for sandbox in active) * MIB,
                paused_sandbox_count=len(paused),
                paused_allocated_cpu=sum(sandbox.cpu_count for sandbox in paused),
                paused_allocated_memory_bytes=sum(sandbox.memory_mb for sandbox in paused) * MIB,
                sandbox_count=len(active),
                sandbox_starting_count=sum(1 for sandbox in active if sandbox.state is State.CREATING),
                create_successes=self.create_successes,
                create_fails=self.create_fails,
                reported_at_unix_ms=self.timeline.now_ms,
                disks=[v1.DiskMetric(mount_point="/", device="/dev/vda", filesystem_type="ext4", total_bytes=1 << 40)],
            ),
            sandbox_ids=list(self.sandboxes),
            p2p_endpoint=v1.P2pEndpoint(backend="iroh", address=json.dumps({"node": self.node_id})),
        )

    def _template(self) -> str:
        register = {"register": "eax", "bitmap": "0b11111111" if self.node_id == "a" else "0b01111111"}
        entry = {"leaf": "0x7", "subleaf": "0x0", "flags": 0, "modifiers": [register]}
        return json.dumps({"kvm_capabilities": [], "cpuid_modifiers": [entry], "msr_modifiers": []})

    async def _tell(self, kind: str, sandbox: Sandbox) -> None:
        """Once; a node can do nothing with a failure but log it."""
        event = v1.SandboxEvent(
            sandbox_id=sandbox.sandbox_id,
            event_type=v1.SandboxEventType.Value(f"SANDBOX_EVENT_TYPE_{kind}"),
            requested_cpu=sandbox.cpu_count,
            requested_memory_bytes=sandbox.memory_mb * MIB,
        )
        request = v1.ReportSandboxEventRequest(
            node_id=self.node_id, cluster_id=CLUSTER_ID, service_instance_id=INSTANCE_ID, events=[event]
        )
        await self._call("ReportSandboxEvent", request, REPORT_DEADLINE_SECONDS)

    async def _list_peers(self) -> None:
        request = v1.ListP2pPeersRequest(cluster_id=CLUSTER_ID, backend="iroh", exclude_node_id=self.node_id)
        answer = await self._call("ListP2pPeers", request, PEERS_DEADLINE_SECONDS)
        if answer is not None:
            self.peers = [peer.node_id for peer in answer.peers]
        self.timeline.after(INTERVAL_MS, self._in_process(self._list_peers))

    async def publish(self, key: str) -> None:
        request = v1.RecordP2pArtifactRequest(cluster_id=CLUSTER_ID, backend="iroh", key=key, node_id=self.node_id)
        await self._call("RecordP2pArtifact", request, P2P_DEADLINE_SECONDS)

    async def _call(self, method: str, request: Any, seconds: float) -> Any:
        """The answer, or None: failures are logged there, and that is all."""
        try:
            return await getattr(self.stub, method)(request, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            self.refused.append((method, error.code().name))
            return None

    def _in_process(self, happening: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """What a process had planned dies with it."""
        process = self._process

        async def unless_gone() -> None:
            if self.running and self._process == process:
                await happening()

        return unless_gone
