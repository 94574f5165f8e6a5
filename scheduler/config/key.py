"""One configuration key: where it stands, how its value is read, what it is for."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from scheduler.config.addresses import redact_url
from scheduler.config.groups import Settings
from scheduler.config.kinds import Kind

_DEFAULTS = Settings()


@dataclass(frozen=True, slots=True)
class Apart:
    """Marks a key that is no field of `Settings` by itself: `assemble` makes something of its value."""

    default: Any = None


@dataclass(frozen=True, slots=True)
class Key:
    """`field` names the field of `Settings` that takes the value and has the default. `option` is the switch of `serve`
    that sets it; every key can be set with `--set` too."""

    path: str
    kind: Kind[Any]
    field: str | Apart
    summary: str
    option: str = ""
    variables: tuple[str, ...] = ()

    @property
    def default(self) -> Any:
        return self.field.default if isinstance(self.field, Apart) else attrgetter(self.field)(_DEFAULTS)

    @property
    def environment(self) -> tuple[str, ...]:
        """Its variables; the first that is set wins."""
        return self.variables or ("SCHEDULER_" + self.path.upper().replace(".", "_"),)

    @property
    def default_variable(self) -> str:
        """The variable with which an image replaces the default."""
        return "SCHEDULER_DEFAULT_" + self.path.upper().replace(".", "_")

    def shown(self, value: Any) -> Any:
        """The value as a file would write it, without secrets."""
        shown = self.kind.show(value)
        return redact_url(shown) if isinstance(shown, str) and "://" in shown else shown
