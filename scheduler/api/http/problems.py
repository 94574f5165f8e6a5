"""Turns validation errors into HTTP answers that a person can act on."""

from __future__ import annotations

from typing import Any

from pydantic_core import ErrorDetails, ValidationError

from scheduler.errors import FieldError, InvalidRequest, Malformed
from scheduler.service.checks import shown

_HINT_KINDS = frozenset({"cold_sandbox", "sandbox"})
ERRORS_SHOWN = 20
# Each error that is listed costs an object, and a body may hold millions of broken values: of more none is listed.
ERRORS_LISTED_MAX = 1000

# What is allowed, by pydantic's error type. Types with bounds are in `_allowed`.
_ALLOWED = {
    "missing": "present: this field is required",
    "extra_forbidden": "absent: there is no such field",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of a sane size",
    "int_from_float": "a whole number without fraction",
    "string_type": "text",
    "string_unicode": "text in UTF-8",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "text_or_list": "text, or a list of texts",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "invalid_key": "an object whose keys are text",
}


def invalid_body(error: ValidationError) -> InvalidRequest:
    """Malformed when the body could not be parsed at all, else InvalidRequest with every broken field."""
    if error.error_count() > ERRORS_LISTED_MAX:
        broken = FieldError("body", f"{error.error_count()} values that are not valid", "a body as the document has it")
        return InvalidRequest(f"not valid: the body, in {error.error_count()} places", [broken])
    details = error.errors(include_url=False)
    first = details[0]
    if first["type"] == "json_invalid":
        return Malformed(f"the body is not JSON: {first.get('ctx', {}).get('error', 'invalid')}")
    return _invalid(details)


def invalid_parameter(name: str, error: ValidationError) -> InvalidRequest:
    """A query parameter or header with an invalid value."""
    return _invalid(error.errors(include_url=False), root=name)


def _invalid(details: list[ErrorDetails], root: str = "") -> InvalidRequest:
    fields = [
        FieldError(_path(detail["loc"] + _step_inside(detail), root), _found(detail), _allowed(detail))
        for detail in details[:ERRORS_SHOWN]
    ]
    more = f" and {len(details) - ERRORS_SHOWN} more" if len(details) > ERRORS_SHOWN else ""
    summary = ", ".join(dict.fromkeys(field.field for field in fields))
    return InvalidRequest(f"not valid: {summary}{more}", fields)


def _step_inside(detail: ErrorDetails) -> tuple[str, ...]:
    """For a union, the member that selects the kind is what is wrong."""
    return (detail["ctx"]["discriminator"].strip("'"),) if detail["type"].startswith("union_tag_") else ()


def _path(location: tuple[int | str, ...], root: str) -> str:
    # A union's tag, which follows `hint`, is not part of the path in the document.
    before = ("", *location)
    steps = [str(step) for index, step in enumerate(location) if before[index] != "hint" or step not in _HINT_KINDS]
    return str(shown(".".join([root, *steps] if root else steps) or "body"))


def _found(detail: ErrorDetails) -> Any:
    if detail["type"] in {"missing", "union_tag_not_found"}:
        return None
    found = detail["input"]
    for step in _step_inside(detail):
        found = found[step]
    return shown(found)


def _allowed(detail: ErrorDetails) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    match kind:
        case "union_tag_not_found":
            return _ALLOWED["missing"]
        case "greater_than_equal":
            return f"at least {context['ge']}"
        case "greater_than":
            return f"above {context['gt']}"
        case "less_than_equal":
            return f"at most {context['le']}"
        case "literal_error" | "enum" | "union_tag_invalid":
            return f"one of {context.get('expected', context.get('expected_tags'))}"
        case "too_long" | "string_too_long":
            return f"at most {context['max_length']} long"
        case "too_short" | "string_too_short":
            return f"at least {context['min_length']} long"
        case "value_error":
            return str(context.get("error", detail["msg"]))
        case _:
            return _ALLOWED.get(kind, str(detail["msg"]))
