"""Configuration: every key in one table, read once into frozen `Settings`.

    groups.py     Settings and the small groups it is made of
    kinds.py      how one value is read: durations, addresses, numbers, …
    structured.py the same for nodes and templates
    keys.py       the table: key, kind, default, environment variable, option
    sources.py    options, environment, file, an image's defaults → raw values
    checks.py     what does not go together
    assemble.py   judged values → Settings
    load.py       the way through all of it

Read by the command line and the replica process only; every other layer is handed its group.
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
