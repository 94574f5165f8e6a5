"""The ledger of one domain: all stores in one object, one per replica."""

from __future__ import annotations

from scheduler.connection.client import StoreClient, StoreOptions, connect
from scheduler.connection.keys import DEFAULT_DOMAIN, Keys
from scheduler.connection.scripts import ScriptLibrary
from scheduler.ledger.artifacts import ArtifactStore
from scheduler.ledger.bindings import BindingStore
from scheduler.ledger.conversion import Conversion
from scheduler.ledger.cpu_configs import CpuConfigStore
from scheduler.ledger.groups import GroupStore
from scheduler.ledger.journals import JournalStore
from scheduler.ledger.leases import LeaseStore
from scheduler.ledger.ledger_time import LedgerTime
from scheduler.ledger.nodes import NodeStore
from scheduler.ledger.placements import PlacementStore
from scheduler.ledger.rebuild import RebuildStore
from scheduler.ledger.reservations import ReservationStore
from scheduler.ledger.runner import Clock, Runner, server_clock
from scheduler.ledger.settings import SettingsStore
from scheduler.ledger.summary import SummaryStore
from scheduler.ledger.templates import TemplateStore
from scheduler.ledger.upstream_bindings import UpstreamBindings
from scheduler.ledger.warm_keys import WarmKeyStore


class Ledger:
    """Every method is one script or one read; none keeps state between calls."""

    def __init__(self, client: StoreClient, domain: str = DEFAULT_DOMAIN, clock: Clock = server_clock) -> None:
        runner = Runner(client, Keys(domain), clock)
        self.runner = runner
        self.client = client
        self.keys = runner.keys
        self.domain = domain
        self.clock = clock
        self.settings = SettingsStore(runner)
        self.conversion = Conversion(runner)
        self.time = LedgerTime(runner)
        self.upstream_bindings = UpstreamBindings(runner) if client.options.upstream_bindings else None
        self.nodes = NodeStore(runner, self.upstream_bindings)
        self.placements = PlacementStore(runner)
        self.reservations = ReservationStore(runner, self.upstream_bindings)
        self.bindings = BindingStore(runner, self.upstream_bindings)
        self.templates = TemplateStore(runner)
        self.groups = GroupStore(runner)
        self.warm_keys = WarmKeyStore(runner)
        self.journals = JournalStore(runner)
        self.summary = SummaryStore(runner, domain)
        self.artifacts = ArtifactStore(runner)
        self.cpu_configs = CpuConfigStore(runner)
        self.leases = LeaseStore(runner)
        self.rebuild = RebuildStore(runner)

    async def ping(self) -> None:
        """Raises StoreUnavailable when the server does not answer."""
        await self.client.ping()

    async def close(self) -> None:
        await self.client.close()


async def open_ledger(
    redis_addr: str = "embedded",
    *,
    domain: str = DEFAULT_DOMAIN,
    options: StoreOptions | None = None,
    clock: Clock = server_clock,
    library: ScriptLibrary | None = None,
) -> Ledger:
    """A ledger at `redis_addr`; nothing is sent before the first call. Without `library` all scripts are assembled."""
    client = await connect(redis_addr, options, library=library, home_key=Keys(domain).settings)
    return Ledger(client, domain, clock)
