"""The types of members and parameters, with their limits.

Numbers, durations, pages and cursors are checked here. Ids and texts are only described, for the OpenAPI document:
the services clean them, for gRPC too."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, create_model
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from scheduler.domain.address import ENDPOINT_PATTERN
from scheduler.domain.duration import DURATION_FORM, LENGTH_MAX, parse_duration, parse_duration_ms
from scheduler.domain.labels import LABEL_PATTERN, LABEL_VALUES_MAX, LABELS_MAX
from scheduler.domain.limits import (
    BATCH_MAX,
    GROUP_KEY_BYTES_MAX,
    ID_BYTES_MAX,
    MEMORY_MB_MAX,
    PAGE_DEFAULT,
    PAGE_MAX,
    SAFE_INTEGER_MAX,
    SANDBOX_CPU_MAX,
    SANDBOX_MEMORY_MB_MAX,
    TEXT_BYTES_MAX,
    UINT32_MAX,
)
from scheduler.domain.node import FIGURES
from scheduler.domain.resources import RESOURCES_MAX
from scheduler.domain.text import clean_id, has_unfit_character, trim
from scheduler.service.artifacts import KEY_BYTES_MAX

__all__ = ["PAGE_DEFAULT", "PAGE_MAX"]


class Body(BaseModel):
    """A request body: unknown members are refused, and no value is converted to another type. A member that need not be
    there may be null, which is the same as absent."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        optional = [field for field in cls.model_fields.values() if not field.is_required()]
        for field in optional:
            if field.get_default(call_default_factory=True) is not None:
                _admit_null(field)
        if optional:
            cls.model_rebuild(force=True)


def _admit_null(field: FieldInfo) -> None:
    """Take null in a member that has a default; the value is then the default."""
    kind: Any = field.annotation
    for mark in field.metadata:
        kind = Annotated[kind, mark]

    def given(value: Any) -> Any:
        return field.get_default(call_default_factory=True) if value is None else value

    field.annotation = kind | None
    field.metadata = [AfterValidator(given)]


def _documented(**schema: Any) -> Any:
    """A constraint for the document that the services check, not pydantic."""
    return Field(json_schema_extra=schema)


_ID_SCHEMA = {
    "minLength": 1,
    "maxLength": ID_BYTES_MAX,
    # Not blank, and no control character: C0, DEL, C1. White space around it is trimmed, whatever it is.
    "pattern": r"^[^\u0000-\u001f\u007f-\u009f]*[^\u0000-\u0020\u007f-\u00a0][^\u0000-\u001f\u007f-\u009f]*$",
}
Id = Annotated[str, _documented(**_ID_SCHEMA)]
# Compared with the node list, so any text is accepted; only blank is invalid.
ListedEndpoint = Annotated[str, _documented(minLength=1, maxLength=TEXT_BYTES_MAX, pattern=_ID_SCHEMA["pattern"])]
ArtifactName = Annotated[str, _documented(minLength=1, maxLength=KEY_BYTES_MAX, pattern=_ID_SCHEMA["pattern"])]
OptionalGroupKey = Annotated[
    str, _documented(maxLength=GROUP_KEY_BYTES_MAX, pattern=r"^[^\u0000-\u001f\u007f-\u009f]*$")
]
_OPTIONAL_ID_SCHEMA = {"maxLength": ID_BYTES_MAX, "pattern": r"^[^\u0000-\u001f\u007f-\u009f]*$"}
OptionalId = Annotated[str, _documented(**_OPTIONAL_ID_SCHEMA)]
Text = Annotated[str, _documented(maxLength=TEXT_BYTES_MAX)]
Endpoint = Annotated[str, _documented(format="uri", pattern=f"^{ENDPOINT_PATTERN}$", maxLength=TEXT_BYTES_MAX)]


def _whole_float(value: Any) -> Any:
    # JSON knows one kind of number: 4096.0 is the whole number 4096, and some encoders write it so.
    return int(value) if isinstance(value, float) and value.is_integer() else value


Uint32 = Annotated[int, Field(ge=0, le=UINT32_MAX), BeforeValidator(_whole_float)]
ByteCount = Annotated[int, Field(ge=0, le=SAFE_INTEGER_MAX), BeforeValidator(_whole_float)]
_Model = TypeVar("_Model", bound=BaseModel)


def with_figures(model: type[_Model]) -> type[_Model]:
    """The model with a member for each figure of a node's report: checked in a body, which may lack it."""
    checked = issubclass(model, Body)
    members: dict[str, Any] = {}
    for name, figure in FIGURES.items():
        kind: Any = (Uint32 if figure.most == UINT32_MAX else ByteCount) if checked else int
        members[name] = (Annotated[kind, Field(description=figure.meaning)], 0 if checked else ...)
    return create_model(model.__name__, __base__=model, __module__=model.__module__, __doc__=model.__doc__, **members)


_LABEL_SCHEMA: dict[str, Any] = {"type": "string", "pattern": f"^{LABEL_PATTERN}$"}
_LABEL_NAMES = {"maxProperties": LABELS_MAX, "propertyNames": _LABEL_SCHEMA}
Labels = Annotated[dict[str, str], _documented(**_LABEL_NAMES, additionalProperties=_LABEL_SCHEMA)]


def named_by_labels(most: int) -> Any:
    """For the document: a table whose names are as labels have them."""
    return _documented(maxProperties=most, propertyNames=_LABEL_SCHEMA)


# Of a name that no setting lists the ledger tells.
Resources = Annotated[dict[str, ByteCount], _documented(maxProperties=RESOURCES_MAX)]


def _as_list(value: Any) -> list[Any]:
    # One value may stand for a list of one.
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return value
    raise PydanticCustomError("text_or_list", "neither text nor a list of texts")


_VALUES_SCHEMA = {"type": "array", "items": _LABEL_SCHEMA, "minItems": 1, "maxItems": LABEL_VALUES_MAX}
Require = Annotated[
    dict[str, Annotated[list[str], BeforeValidator(_as_list)]],
    _documented(**_LABEL_NAMES, additionalProperties={"anyOf": [_LABEL_SCHEMA, _VALUES_SCHEMA]}),
]


Label = Annotated[str, _documented(**_LABEL_SCHEMA)]
BatchCount = Annotated[int, Field(ge=1, le=BATCH_MAX), BeforeValidator(_whole_float)]
SpreadBound = Annotated[int, Field(ge=1, le=UINT32_MAX), BeforeValidator(_whole_float)]
SandboxCpu = Annotated[int, Field(ge=0, le=SANDBOX_CPU_MAX), BeforeValidator(_whole_float)]
SandboxMemoryMb = Annotated[int, Field(ge=0, le=SANDBOX_MEMORY_MB_MAX), BeforeValidator(_whole_float)]
MemoryMb = Annotated[int, Field(ge=0, le=MEMORY_MB_MAX), BeforeValidator(_whole_float)]


@lru_cache(maxsize=1024)
def duration_ms(text: str) -> int:
    """Milliseconds of a duration; cached, because callers send the same few again and again."""
    return parse_duration_ms(text)


def _duration(value: Any) -> Any:
    try:
        # A long text is looked at no further, and above all not remembered.
        duration_ms(value if isinstance(value, str) and len(value) <= LENGTH_MAX else "")
    except ValueError:
        raise ValueError(DURATION_FORM) from None
    if 0 < parse_duration(value) < 1:
        raise ValueError("a duration of at least 1ms")
    return value


# Text until the endpoint converts it, so that the document shows what is sent.
Duration = Annotated[
    str,
    BeforeValidator(_duration),  # before, so that the error for 90 says "a duration", not "text"
    _documented(format="duration-go", examples=["30s", "1m30s", "10m"]),
]


def _age(value: str) -> str:
    if value.strip().startswith("-"):
        raise ValueError("a duration of 0 or more")
    return value


Age = Annotated[Duration, AfterValidator(_age)]


def _whole(value: Any) -> Any:
    # A query parameter is text; only plain digits are a number there, not " 1", "1_000" or "1.0".
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 20:
        return int(value)
    raise ValueError(f"a whole number from 1 to {PAGE_MAX}")


PageLimit = Annotated[int, Field(ge=1, le=PAGE_MAX), BeforeValidator(_whole)]


_CURSOR_FORM = "the cursor of an earlier page"
_SEQUENCE = re.compile(r"[0-9]{1,16}")


def _sequence_cursor(value: str) -> str:
    if not _SEQUENCE.fullmatch(value):
        raise ValueError(_CURSOR_FORM)
    return value


def _id_cursor(value: str) -> str | None:
    cleaned = clean_id(value)
    if trim(value) and cleaned is None:
        raise ValueError(_CURSOR_FORM)
    return cleaned


# Opaque to callers; this is the form in lists ordered by the ledger's sequence, and below in lists ordered by id.
Cursor = Annotated[str, AfterValidator(_sequence_cursor), _documented(pattern="^[0-9]{0,16}$")]
IdCursor = Annotated[str, AfterValidator(_id_cursor), _documented(**_OPTIONAL_ID_SCHEMA)]
_PLACE_BYTES_MAX = 2 * ID_BYTES_MAX + 40


def _place_cursor(value: str) -> str:
    if len(value.encode(errors="replace")) > _PLACE_BYTES_MAX or has_unfit_character(value):
        raise ValueError(_CURSOR_FORM)
    return value


# In lists that can be sorted: an id, or what is sorted by and an id.
PlaceCursor = Annotated[
    str,
    AfterValidator(_place_cursor),
    _documented(maxLength=_PLACE_BYTES_MAX, pattern=_OPTIONAL_ID_SCHEMA["pattern"]),
]


def some_of(allowed: Sequence[str]) -> tuple[AfterValidator, Any]:
    """The constraint and its description of names from a list, separated by commas."""

    def check(value: str) -> str:
        if not set(value.split(",")) <= set(allowed):
            raise ValueError(f"names separated by commas: {', '.join(allowed)}")
        return value

    name = f"({'|'.join(allowed)})"
    return AfterValidator(check), _documented(pattern=f"^({name}(,{name})*)?$")
