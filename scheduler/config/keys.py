"""The table of every configuration key, one line each, from which reading, `config`, the docs and `Settings` are made.

A key's place in a file is its path under `scheduler` (the two of logging are at the top, as in AgentENV's file). Its
environment variable is `SCHEDULER_` and the path in capitals, unless the table names another.
"""

from __future__ import annotations

from scheduler.config.addresses import ledger_address, listen_address
from scheduler.config.groups import DiscoveryMode, LogFormat, LogLevel, Settings
from scheduler.config.key import Apart, Key
from scheduler.config.kinds import (
    boolean,
    choice,
    duration,
    file,
    integer,
    label_names,
    names,
    optional,
    overcommit,
    password_file,
    share,
    share_or_off,
    text,
)
from scheduler.config.structured import nodes, templates
from scheduler.domain.limits import KEYS_PER_NODE_MAX, MEMORY_MB_MAX, SAFE_INTEGER_MAX, UINT32_MAX
from scheduler.domain.path_prefix import PATH_PREFIX_FORM, PATH_PREFIX_PATTERN
from scheduler.domain.placement import Strategy
from scheduler.domain.resources import RESOURCES_MAX, TAKEN_NAMES
from scheduler.domain.settings import Admission, GroupPlacement, Limits

TOP_LEVEL = frozenset({"log_level", "log_format"})
"""Keys beside the section `scheduler`, not in it."""

_PORT = integer(0, 65535)

_PLACING = (
    Key("strategy", choice(Strategy), "ledger.strategy", "How a node is chosen.", "--strategy"),
    Key("admission", choice(Admission), "ledger.admission",
        "`strategy`: least_loaded refuses what does not fit, the others do not; `always`: all do."),
    Key("overcommit.cpu", overcommit(), "ledger.overcommit_cpu",
        "Effective CPU capacity = floor(advertised × this); `unlimited` excludes no node for CPU."),
    Key("overcommit.memory", overcommit(), "ledger.overcommit_memory", "The same for memory."),
    Key("fill_to", share(), "ledger.fill_to",
        "Under least_loaded: fill a node to this share of its capacity before another is begun; 0 = always the least "
        "loaded, 1 = the fullest that fits."),
    Key("cold_defaults.cpu_count", integer(0, UINT32_MAX), "ledger.cold_default_cpu_count",
        "CPUs of a cold request that states none; 0 = unknown."),
    Key("cold_defaults.memory_mb", integer(0, MEMORY_MB_MAX), "ledger.cold_default_memory_mb",
        "The same for memory, in MiB."),
    Key("grouped_round_robin.max_sandbox_count", integer(0, UINT32_MAX), "ledger.groups.max_sandbox_count",
        "Sandboxes of one group; must be above 0 when that strategy is selected."),
    Key("grouped_round_robin.max_cpu_count", integer(0, UINT32_MAX), "ledger.groups.max_cpu_count",
        "CPUs of one group; 0 = not limited."),
    Key("grouped_round_robin.max_memory_mb", integer(0, MEMORY_MB_MAX), "ledger.groups.max_memory_mb",
        "MiB of one group; 0 = not limited."),
    Key("grouped_round_robin.group_placement", choice(GroupPlacement), "ledger.groups.group_placement",
        "Where a new group opens."),
    Key("grouped_round_robin.max_open_groups", integer(1, 1_000_000), "ledger.groups.max_open_groups",
        "Open groups at most; beyond it the least recently used is closed."),
    Key("templates.declared", templates(), "ledger.templates",
        "What creating from a template takes, by template id. Those that leave the table with a higher "
        "`settings.revision` are forgotten."),
    Key("templates.learn", boolean(), "ledger.templates_learn", "Learn those sizes from create events too."),
    Key("locality.enabled", boolean(), "ledger.locality_enabled",
        "Prefer nodes that already hold the artifacts a template needs."),
    Key("resources", label_names(RESOURCES_MAX, TAKEN_NAMES), "ledger.resources",
        "Names of resources beside CPUs, memory and `disk` that nodes report and hints may ask for, such as `gpu`."),
    Key("scarce", label_names(), "ledger.scarce",
        "Names of labels and resources that are scarce: a node with one takes a sandbox that does not ask for it only "
        "when no other node can."),
    Key("hints.lenient", boolean(), "hints.lenient",
        "Over HTTP, a bad member of a sandbox request drops only itself instead of the whole hint."),
)  # fmt: skip

_LIMITS = tuple(
    Key(f"node_resource_limit.{name}", optional(integer(0, most)), f"ledger.node_resource_limit.{name}",
        f"A node with more {what} is not chosen.")
    for name, most, what in (
        ("max_sandbox_count", UINT32_MAX, "sandboxes, the paused ones aside,"),
        ("max_sandbox_starting_count", UINT32_MAX, "starting sandboxes"),
        ("max_cpu_used_percent", UINT32_MAX, "CPU in use, in percent,"),
        ("max_cpu_allocated_percent", UINT32_MAX, "CPU allocated, in percent of its capacity,"),
        ("max_memory_used_percent", UINT32_MAX, "memory in use, in percent,"),
        ("max_memory_allocated_percent", UINT32_MAX, "memory allocated, in percent of its capacity,"),
        ("max_sandbox_count_including_paused", UINT32_MAX, "sandboxes, paused ones included,"),
        ("max_allocated_cpu_including_paused", UINT32_MAX, "CPUs allocated, paused included,"),
        ("max_allocated_memory_bytes_including_paused", SAFE_INTEGER_MAX, "bytes allocated, paused included,"),
    )
)  # fmt: skip

_AVOID = (
    Key("avoid.refusals", integer(0, UINT32_MAX), "ledger.avoid.refusals",
        "A node that refuses or fails as many creations in a report or a second, and more than succeed, is avoided: "
        "chosen only when nothing else fits; 0 = never."),
    Key("avoid.first", duration(), "ledger.avoid.first_ms",
        "For how long, before it is tried with one creation; doubled each time that is refused too."),
    Key("avoid.longest", duration(), "ledger.avoid.longest_ms", "How long at most."),
    Key("avoid.share", integer(0, 100), "ledger.avoid.share_percent",
        "Of the nodes that may be chosen, how many percent are avoided at once at most; one always may be."),
)  # fmt: skip

_AFFINITY = (
    Key("affinity.slack", share_or_off(), "ledger.affinity.slack",
        "Under strategies that rank: a node that holds the request's image or template is chosen although it is fuller "
        "than the least loaded one, by this share of its capacity at most; `off`: it is not preferred."),
    Key("affinity.keys_per_node", integer(1, KEYS_PER_NODE_MAX), "ledger.affinity.keys_per_node",
        "How many images and templates a node is taken to hold: those that it was given last. As many as your nodes "
        "keep."),
)  # fmt: skip

_TIME = (
    Key("report_ttl", duration(default_instead_of_none_ms=Settings().ledger.report_ttl_ms), "ledger.report_ttl_ms",
        "A node silent for longer is unhealthy."),
    Key("binding_ttl", duration(default_instead_of_none_ms=Settings().ledger.binding_ttl_ms), "ledger.binding_ttl_ms",
        "How long a binding stays valid after the last report that lists it. AgentENV's 30s is shorter than a node's"
        " 60 s back-off."),
    Key("binding_grace", duration(least_ms=0), "ledger.binding_grace_ms",
        "A roster that lacks a sandbox younger than this does not unbind it."),
    Key("placement_reservation_ttl", duration(), "ledger.placement_reservation_ttl_ms",
        "How long a reservation is held without a confirm, cancel or report."),
)  # fmt: skip

_LEDGER = (
    Key("redis_addr", ledger_address(), "store.redis_addr",
        "Where the ledger is; `embedded` keeps it inside the process.", "--redis-addr"),
    Key("redis_read_addr", optional(ledger_address()), "store.redis_read_addr",
        "A replica of it that is asked first where a sandbox runs, and may lag; with or without `query_only`."),
    Key("domain", text("1 to 64 of the characters A-Z a-z 0-9 . _ -", r"[A-Za-z0-9._-]{1,64}"), "store.domain",
        "One ledger; replicas of one domain serve one cluster.", "--domain"),
    Key("settings.revision", integer(0, SAFE_INTEGER_MAX), "ledger.revision",
        "When replicas are configured differently, the higher revision wins."),
    Key("store.pool_size", integer(1, 10_000), "store.pool_size",
        "Connections to the ledger, at most, beside the one that scripts share: for plain commands and durable "
        "writes."),
    Key("store.connect_timeout", duration(), "store.connect_timeout_ms", "How long a connection may take."),
    Key("store.operation_timeout", duration(), "store.operation_timeout_ms",
        "How long one operation may take, its retries and the wait for a connection included."),
    Key("store.attempt_timeout", duration(), "store.attempt_timeout_ms",
        "How long one attempt waits for its reply before another is made on a new connection."),
    Key("store.password_file", optional(password_file()), "store.password_file",
        "The file of the password for `redis_addr` and `redis_read_addr`, where none is inside them; read for each new "
        "connection."),
    Key("store.sentinel_password_file", optional(password_file()), "store.sentinel_password_file",
        "The file of the password for the sentinels of `sentinel://`, likewise."),
    Key("store.tls.ca_file", optional(file()), "store.tls_ca_file",
        "The authority that signed the server's certificate, the only one trusted then. Without it: the system's."),
    Key("store.tls.cert_file", optional(file()), "store.tls_cert_file", "The certificate shown to the server."),
    Key("store.tls.key_file", optional(file()), "store.tls_key_file", "Its private key."),
    Key("store.tls.check_hostname", boolean(), "store.tls_check_hostname",
        "Whether the server's certificate must name the host."),
    Key("durability.wait_replicas", integer(0, 100), "store.wait_replicas",
        "Redis replicas that must have a write before it is acknowledged; 0 = none."),
    Key("rebuild.remember", integer(0, 10_000_000), "replica.remember",
        "Reservations a replica remembers, to put them back into a ledger that lost them; about 500 bytes each."),
    Key("compat.upstream_bindings", boolean(), "store.upstream_bindings",
        "Also write bindings under AgentENV's own keys. Not possible on a Redis Cluster."),
    Key("compat.limits", choice(Limits), "ledger.limits",
        "`pending`: `node_resource_limit` counts reports, reservations and the creation itself; "
        "`reported`: reports alone, as AgentENV does."),
    Key("artifact_store_capacity", integer(1, SAFE_INTEGER_MAX), "ledger.artifact_store_capacity",
        "Entries of the artifact index, at most."),
    Key("artifact_lookup_node_limit", integer(-(2**63), SAFE_INTEGER_MAX), "ledger.artifact_lookup_node_limit",
        "Nodes in one artifact answer, at most; 0 or less = not limited."),
)  # fmt: skip

_FLEET = (
    Key("discovery.mode", choice(DiscoveryMode), "discovery.mode",
        "Where nodes come from: this file and the API, Kubernetes, or their own first heartbeat. Reports over gRPC, as "
        "AgentENV's nodes send them, name no endpoint: `heartbeat` is for nodes that report over HTTP."),
    Key("nodes", nodes(), "discovery.nodes",
        "Nodes known from the start, in every mode. Those that leave the list with a higher `settings.revision` are "
        "taken off."),
    Key("discovery.kubernetes.namespace", text(), Apart(""), "Where the nodes' Service is; needed in that mode."),
    Key("discovery.kubernetes.service_name", text(), Apart(""), "The nodes' Service; needed in that mode."),
    Key("discovery.kubernetes.port", integer(0, 65535), Apart(0), "The port that nodes serve; needed in that mode."),
    Key("discovery.kubernetes.scheme", text("http or https", "https?"), Apart("http"),
        "The scheme of their endpoints."),
    Key("discovery.kubernetes.ignore_pod_selector", text(), Apart(""), "Pods with these labels are not nodes."),
    Key("discovery.kubernetes.no_schedule_pod_selector", text(), Apart(""), "Pods with these labels only drain."),
    Key("discovery.kubernetes.node_labels", label_names(), Apart(()),
        "Labels of pods that become labels of their nodes, by name; `topology.kubernetes.io/zone` is the pod's zone."),
)  # fmt: skip

_EDGES = (
    Key("http.host", text(), "http.listen.host", "The address HTTP listens on.", "--host"),
    Key("http.port", _PORT, "http.listen.port", "Its port; 0 takes a free one.", "--port"),
    Key("http.api_keys", optional(file()), "http.api_keys_file",
        "The file of API keys for HTTP and gRPC; without it both are open on loopback only.",
        variables=("SCHEDULER_API_KEYS_FILE",)),
    Key("http.insecure", boolean(), "http.insecure",
        "Allow listening beyond loopback without API keys, over HTTP and gRPC.", "--insecure"),
    Key("http.allowed_hosts", names(), "http.allowed_hosts",
        "Names by which browsers may call HTTP on loopback without API keys, beside this machine's own."),
    Key("http.root_path", text(PATH_PREFIX_FORM, PATH_PREFIX_PATTERN), "http.root_path",
        "The path below which a proxy shows it, where the proxy does not say so (X-Forwarded-Prefix)."),
    Key("http.tls.cert_file", optional(file()), Apart(), "PEM certificate chain; HTTP is plain without it."),
    Key("http.tls.key_file", optional(file()), Apart(), "Its private key."),
    Key("http.tls.client_ca_file", optional(file()), Apart(), "Clients must show a certificate of this authority."),
    Key("http.request_timeout", duration(), "http.request_timeout_ms", "The deadline of a request that states none."),
    Key("http.body_bytes_max", integer(1024, 2**31), "http.body_bytes_max", "A larger body is refused."),
    Key("http.in_flight_max", integer(1, 1_000_000), "http.in_flight_max",
        "Requests answered at once, at most; further ones are refused early."),
    Key("http.metrics_need_admin", boolean(), "http.metrics_need_admin",
        "Whether `/metrics` over HTTP asks for a key of role admin."),
    Key("http.connections_max", optional(integer(32, 1_000_000)), "http.connections_max",
        "Open HTTP connections, at most, and never more than the limit of descriptors leaves; 10,000 when not given. "
        "At the limit the one that has waited longest without a request is closed."),
    Key("http.head_bytes_max", integer(1024, 1024 * 1024), "http.head_bytes_max",
        "A request whose line and headers are larger is refused, on the port of the metrics too."),
    Key("http.head_timeout", duration(), "http.head_timeout_ms",
        "How long a connection may take until its request's line and headers are whole, on every port; over gRPC "
        "until it speaks HTTP/2."),
    Key("http.idle_timeout", duration(), "http.idle_timeout_ms",
        "How long a connection is kept open between two requests, on every port."),
    Key("grpc.enabled", boolean(), "grpc.enabled", "Serve AgentENV's own gRPC interface.", "--grpc/--no-grpc"),
    Key("grpc_listen_addr", listen_address(), "grpc.listen", "Where; `:9090` is every interface.",
        "--grpc-listen-addr"),
    Key("grpc.port", optional(_PORT), Apart(), "Replaces the port of grpc_listen_addr.", "--grpc-port"),
    Key("grpc.tls.cert_file", optional(file()), Apart(), "PEM certificate chain; gRPC is plain without it."),
    Key("grpc.tls.key_file", optional(file()), Apart(), "Its private key."),
    Key("grpc.tls.client_ca_file", optional(file()), Apart(), "Clients must show a certificate of this authority."),
    Key("grpc.api_keys", boolean(), "grpc.api_keys",
        "Whether `scheduler.v1` asks for API keys too. AgentENV's own clients send none."),
    Key("grpc.reflection", boolean(), "grpc.reflection",
        "Let tools such as grpcurl ask for the services' descriptions; needs the extra `reflection`."),
    Key("grpc.message_bytes_max", integer(64 * 1024, 2**30), "grpc.message_bytes_max",
        "A larger message is refused. AgentENV's nodes need 4 MiB."),
    Key("grpc.in_flight_max", integer(1, 1_000_000), "grpc.in_flight_max",
        "Calls answered at once, at most; further ones are answered UNAVAILABLE early."),
    Key("grpc.connections_max", optional(integer(32, 1_000_000)), "grpc.connections_max",
        "Open gRPC connections, at most, and never more than the limit of descriptors leaves; a share of those when "
        "not given. One more is closed at once."),
    Key("metrics.enabled", boolean(), "metrics.enabled", "Serve metrics on a port of their own, on any path.",
        "--metrics-listener/--no-metrics-listener"),
    Key("metrics_listen_addr", listen_address(), "metrics.listen", "Where; `:9101` is every interface."),
    Key("metrics.port", optional(_PORT), Apart(), "Replaces the port of metrics_listen_addr.", "--metrics-port"),
)  # fmt: skip

_PROCESS = (
    Key("query_only", boolean(), "replica.query_only",
        "Serve only LookupNode and health, over gRPC; needs redis_addr.", "--query-only"),
    Key("replica_id", optional(text("1 to 128 visible ASCII characters", r"[!-~]{1,128}")), "replica.replica_id",
        "What the id of this process among the replicas begins with. Each process adds a random part, so replicas may "
        "have the same. Host name and process id when not given."),
    Key("shutdown.drain", duration(least_ms=0), "replica.drain_ms",
        "How long a stopping replica still answers after it has reported not ready."),
    Key("shutdown.grace", duration(least_ms=0), "replica.grace_ms", "How long requests in flight may take after that."),
    Key("log_level", choice(LogLevel, {"warn": LogLevel.WARNING}), "logging.level", "What is logged.", "--log-level",
        ("SCHEDULER_LOG_LEVEL", "LOG_LEVEL")),
    Key("log_format", choice(LogFormat), "logging.format", "`auto`: console on a terminal, JSON elsewhere.",
        "--log-format", ("SCHEDULER_LOG_FORMAT", "LOG_FORMAT")),
    Key("logging.calls_per_second", integer(0, 1_000_000), "logging.calls_per_second",
        "Of placements, refusals, confirms, cancels, assignments and doubtful heartbeats at most so many lines a "
        "second each keep their level; the next one says how many were left out. `debug` shows them all."),
    Key("decisions.keep", integer(0, 10_000), "ledger.decisions_keep",
        "How many of the last decisions the ledger keeps for `GET /v1/decisions`; 0 = none."),
    Key("decisions.log", boolean(), "logging.decisions",
        "Whether each placement and each refusal is a line of the log, with its hint and its reasons."),
    Key("tracing.enabled", boolean(), "tracing.enabled",
        "Whether spans of requests and of calls of the ledger are exported; needs the extra `otel`."),
)  # fmt: skip

SECTIONS: dict[str, tuple[Key, ...]] = {
    "Placing": _PLACING,
    "Keeping warm": _AFFINITY,
    "Limits of a node": _LIMITS,
    "Nodes that refuse": _AVOID,
    "Time": _TIME,
    "The ledger": _LEDGER,
    "The fleet": _FLEET,
    "Where it listens": _EDGES,
    "The process": _PROCESS,
}
KEYS: dict[str, Key] = {key.path: key for section in SECTIONS.values() for key in section}
