"""The configuration in small frozen groups. Each part of the process is passed the one it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from scheduler.domain.address import is_loopback
from scheduler.domain.node import NodeAddress
from scheduler.domain.settings import LedgerSettings


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """`host` "" is every interface; `port` 0 takes a free one."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """PEM files. With `client_ca_file` a client must show a certificate of that authority (mTLS)."""

    cert_file: Path
    key_file: Path
    client_ca_file: Path | None = None


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where the ledger is, and the time limits of calls to it."""

    redis_addr: str = "embedded"
    redis_read_addr: str | None = None
    domain: str = "default"
    pool_size: int = 64
    connect_timeout_ms: int = 1_000
    operation_timeout_ms: int = 5_000
    attempt_timeout_ms: int = 2_000
    wait_replicas: int = 0
    upstream_bindings: bool = False
    password_file: Path | None = None
    sentinel_password_file: Path | None = None
    tls_ca_file: Path | None = None
    tls_cert_file: Path | None = None
    tls_key_file: Path | None = None
    tls_check_hostname: bool = True

    @property
    def is_embedded(self) -> bool:
        return self.redis_addr == "embedded"


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """The HTTP port. `connections_max` None: as many as the limit of open files leaves."""

    listen: ListenAddress = ListenAddress("127.0.0.1", 8090)
    api_keys_file: Path | None = None
    insecure: bool = False
    allowed_hosts: tuple[str, ...] = ()
    root_path: str = ""
    tls: TlsSettings | None = None
    request_timeout_ms: int = 10_000
    body_bytes_max: int = 8 * 1024 * 1024
    in_flight_max: int = 1024
    metrics_need_admin: bool = False
    connections_max: int | None = None
    # Applies to the metrics port too; the two timeouts apply to every port.
    head_bytes_max: int = 16 * 1024
    head_timeout_ms: int = 10_000
    idle_timeout_ms: int = 75_000


@dataclass(frozen=True, slots=True)
class GrpcSettings:
    """`api_keys`: whether `scheduler.v1` needs API keys too, which AgentENV's own clients do not send."""

    enabled: bool = True
    listen: ListenAddress = ListenAddress("127.0.0.1", 9090)
    tls: TlsSettings | None = None
    api_keys: bool = False
    reflection: bool = False
    message_bytes_max: int = 4 * 1024 * 1024
    in_flight_max: int = 1024
    connections_max: int | None = None


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """The separate port that AgentENV's scrape configurations expect; `/metrics` over HTTP is always there."""

    enabled: bool = True
    listen: ListenAddress = ListenAddress("127.0.0.1", 9101)


class DiscoveryMode(StrEnum):
    STATIC = "static"
    KUBERNETES = "kubernetes"
    HEARTBEAT = "heartbeat"


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """Which EndpointSlices list the nodes. Both selectors are label selectors of pods. `node_labels`: the labels of a
    pod that are labels of its node; its zone has the name that Kubernetes gives it."""

    namespace: str
    service_name: str
    port: int
    scheme: str = "http"
    ignore_pod_selector: str = ""
    no_schedule_pod_selector: str = ""
    node_labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DiscoverySettings:
    """`nodes` are listed at start-up in every mode, in place of those that an earlier revision listed."""

    mode: DiscoveryMode = DiscoveryMode.STATIC
    nodes: tuple[NodeAddress, ...] = ()
    kubernetes: KubernetesSettings | None = None


class LogFormat(StrEnum):
    """`auto`: console on a terminal, JSON elsewhere."""

    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class LoggingSettings:
    """What is logged, and how. `decisions`: a line for every placement and refusal."""

    level: LogLevel = LogLevel.INFO
    format: LogFormat = LogFormat.AUTO
    calls_per_second: int = 20
    decisions: bool = False


@dataclass(frozen=True, slots=True)
class TracingSettings:
    """OpenTelemetry."""

    enabled: bool = False


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """One process. `replica_id`: the name that its id begins with; None: host name and process id.

    `drain_ms`: how long a stopping replica still answers after it reported not ready. `grace_ms`: how long requests
    in flight may take after that. `remember`: the most reservations it remembers, to restore a lost ledger."""

    replica_id: str | None = None
    query_only: bool = False
    drain_ms: int = 1_000
    grace_ms: int = 10_000
    remember: int = 200_000


@dataclass(frozen=True, slots=True)
class HintSettings:
    """How a sandbox request over HTTP is read: `lenient` drops a bad member, not the whole hint."""

    lenient: bool = True


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole configuration of one process, built once by `scheduler.config.load_settings`."""

    ledger: LedgerSettings = field(default_factory=LedgerSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    grpc: GrpcSettings = field(default_factory=GrpcSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    discovery: DiscoverySettings = field(default_factory=DiscoverySettings)
    logging: LoggingSettings = field(default_factory=LoggingSettings)
    tracing: TracingSettings = field(default_factory=TracingSettings)
    replica: ReplicaSettings = field(default_factory=ReplicaSettings)
    hints: HintSettings = field(default_factory=HintSettings)
    # Where the members of `ledger` come from, by their path below it: `option`, `environment NAME`, `file NAME`,
    # `image NAME`. What is not named is the default.
    ledger_sources: Mapping[str, str] = field(default_factory=dict, compare=False)
