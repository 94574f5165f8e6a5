"""Configuration: every key in one table, read once into frozen `Settings`.

    groups.py     Settings and the small groups it is made of
    kinds.py addresses.py   how one value is read: durations, numbers, addresses, …
    structured.py the same for nodes and templates
    members.py    the members of a table, by name
    key.py keys.py   the table: key, kind, default, environment variable, option
    sources.py    raw values from options, environment, file and an image's defaults
    checks.py     values that do not go together
    assemble.py   checked values → Settings
    load.py       runs all of these in order

Only the command line and the replica process read it; every other layer is passed its group.
"""

from scheduler.config.groups import (
    DiscoveryMode,
    DiscoverySettings,
    GrpcSettings,
    HintSettings,
    HttpSettings,
    KubernetesSettings,
    ListenAddress,
    LogFormat,
    LoggingSettings,
    LogLevel,
    MetricsSettings,
    ReplicaSettings,
    Settings,
    StoreSettings,
    TlsSettings,
    TracingSettings,
)
from scheduler.config.load import Configuration, DescribedKey, load_configuration, load_settings

__all__ = [
    "Configuration",
    "DescribedKey",
    "DiscoveryMode",
    "DiscoverySettings",
    "GrpcSettings",
    "HintSettings",
    "HttpSettings",
    "KubernetesSettings",
    "ListenAddress",
    "LogFormat",
    "LogLevel",
    "LoggingSettings",
    "MetricsSettings",
    "ReplicaSettings",
    "Settings",
    "StoreSettings",
    "TlsSettings",
    "TracingSettings",
    "load_configuration",
    "load_settings",
]
