"""Derives a placement hint from a sandbox API request's method, path and body.

    POST /sandboxes-cold   a cold sandbox: image, cpuCount, memoryMB, metadata, attachedDrives[].source.image
    POST /sandboxes        a sandbox from a template: templateID, metadata
    anything else          no sandbox, no hint

The body is read in one of two ways. The strict one is AgentENV's gateway's: one wrong member leaves every field of
the hint empty. The lenient one drops only the wrong member. Both list in words what was not read. The kind of the
hint never depends on the body.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from scheduler.domain.placement import Hint, HintKind
from scheduler.service.go_json import (
    MalformedBody,
    Members,
    NotThatType,
    Value,
    each_member,
    parse,
    read_list,
    read_object,
    read_text,
    read_uint,
)

BODY_BYTES_MAX = 65_536
CPU_COUNT_BITS = 32
MEMORY_MB_BITS = 64

_KIND_BY_PATH = {"/sandboxes-cold": HintKind.COLD_SANDBOX, "/sandboxes": HintKind.SANDBOX}


@dataclass(frozen=True, slots=True)
class HintReading:
    """`hint` None: the request creates no sandbox. `warnings` say what was not read, and why."""

    hint: Hint | None
    warnings: tuple[str, ...] = ()


class HintService:
    def __init__(self, *, lenient: bool = True) -> None:
        self._lenient = lenient

    def read(self, method: str, path: str, body: str, strict: bool | None = None) -> HintReading:
        """The hint of one request; `strict` None uses this service's default."""
        kind = _KIND_BY_PATH.get(path.partition("?")[0].rstrip("/")) if method == "POST" else None
        if kind is None:
            return HintReading(None)
        return _read_body(kind, body, strict=not self._lenient if strict is None else strict)

    @staticmethod
    def body_text(body: Any) -> str:
        """A body given as a JSON value, as the text that a client would have sent."""
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


def _read_body(kind: HintKind, body: str, strict: bool) -> HintReading:
    nothing = Hint(kind)
    size = len(body.encode("utf-8", "replace"))
    if size > BODY_BYTES_MAX:
        return HintReading(nothing, (f"body not read: {size} bytes, more than {BODY_BYTES_MAX}",))
    if not body:
        return HintReading(nothing)
    reader = _HintReader(strict)
    try:
        value = parse(body)
        if value is not None and not isinstance(value, Members):
            raise MalformedBody("not an object")
        hint = reader.read(kind, value or Members())
    except (MalformedBody, NotThatType) as problem:
        return HintReading(nothing, (f"body not read: {problem}",))
    return HintReading(hint, tuple(reader.warnings))


class _HintReader:
    """Fills in a hint member by member, as Go's encoding/json fills in a struct: a repeated member is read over the
    earlier value, and null leaves a text or number as it was."""

    def __init__(self, strict: bool) -> None:
        self.warnings: list[str] = []
        self._strict = strict
        self._image = ""
        self._cpu_count = 0
        self._memory_mb = 0
        self._template_id = ""
        self._metadata: dict[str, str] = {}
        self._drive_images: list[str] = []

    def read(self, kind: HintKind, body: Members) -> Hint:
        if kind is HintKind.SANDBOX:
            each_member(body, {"templateid": self._read_template_id, "metadata": self._read_metadata})
            return Hint(kind, template_id=self._template_id, metadata=self._metadata)
        each_member(
            body,
            {
                "image": self._read_image,
                "cpucount": self._read_cpu_count,
                "memorymb": self._read_memory_mb,
                "metadata": self._read_metadata,
                "attacheddrives": self._read_drives,
            },
        )
        images = tuple(image for image in (self._image, *self._drive_images) if image)
        return Hint(kind, cpu_count=self._cpu_count, memory_mb=self._memory_mb, images=images, metadata=self._metadata)

    def _read_image(self, value: Value) -> None:
        with self._losing_only_itself():
            self._image = read_text("image", value, self._image)

    def _read_template_id(self, value: Value) -> None:
        with self._losing_only_itself():
            self._template_id = read_text("templateID", value, self._template_id)

    def _read_cpu_count(self, value: Value) -> None:
        with self._losing_only_itself():
            self._cpu_count = read_uint("cpuCount", value, self._cpu_count, CPU_COUNT_BITS)

    def _read_memory_mb(self, value: Value) -> None:
        with self._losing_only_itself():
            self._memory_mb = read_uint("memoryMB", value, self._memory_mb, MEMORY_MB_BITS)

    def _read_metadata(self, value: Value) -> None:
        if value is None:
            self._metadata = {}
            return
        with self._losing_only_itself():
            for name, member in read_object("metadata", value):
                with self._losing_only_itself():
                    self._metadata[name] = read_text(f"metadata.{name}", member, "")

    def _read_drives(self, value: Value) -> None:
        if value is None:
            self._drive_images = []
            return
        with self._losing_only_itself():
            drives = read_list("attachedDrives", value)
            # A repeated list is read over the earlier one, drive by drive; drives beyond its end are dropped.
            earlier = self._drive_images[: len(drives)]
            self._drive_images = earlier + [""] * (len(drives) - len(earlier))
            for index, drive in enumerate(drives):
                with self._losing_only_itself():
                    self._read_drive(index, drive)

    def _read_drive(self, index: int, drive: Value) -> None:
        def read_source(source: Value) -> None:
            with self._losing_only_itself():
                each_member(read_object(f"{where}.source", source), {"image": read_image})

        def read_image(image: Value) -> None:
            with self._losing_only_itself():
                self._drive_images[index] = read_text(f"{where}.source.image", image, self._drive_images[index])

        where = f"attachedDrives[{index}]"
        each_member(read_object(where, drive), {"source": read_source})

    @contextmanager
    def _losing_only_itself(self) -> Iterator[None]:
        """A wrong member leaves its field unchanged; in the strict reading it ends the reading."""
        try:
            yield
        except NotThatType as problem:
            if self._strict:
                raise
            self.warnings.append(f"not read: {problem}")
