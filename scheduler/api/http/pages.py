"""The two web pages and the files they load: package data, read once, with the headers browsers get.

A page names its files by the digest of all of them (`console/<version>/main.js`), so a browser keeps them for a year
and an upgraded replica is never shown with the files of another version. Paths in a page are relative, unless a proxy
or the configuration says below which path the scheduler is shown: then the page has a `<base>`.
"""

from __future__ import annotations

import hashlib
import html
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import Response

from scheduler.domain.path_prefix import clean_path_prefix

_FOLDER = Path(__file__).parent / "console"
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Nothing inline, nothing from elsewhere, and no text ever becomes markup or script.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'self'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_SAFETY = {
    "Content-Security-Policy": PAGE_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
PREFIX_HEADER = "X-Forwarded-Prefix"


@dataclass(frozen=True, slots=True)
class PageFile:
    content: bytes
    media_type: str

    def answer(self, headers: dict[str, str], request: Headers) -> Response:
        """The file, or 304 when the browser has it."""
        tag = f'"{_digest(self.content)}"'
        known = tag in {each.strip().removeprefix("W/") for each in request.get("if-none-match", "").split(",")}
        content, status = (b"", 304) if known else (self.content, 200)
        return Response(content, status, {**_SAFETY, **headers, "ETag": tag}, media_type=self.media_type)


def show_page(name: str, request: Headers, root_path: str) -> Response:
    """A page, with the prefix that a proxy tells, else the configured one."""
    prefix = clean_path_prefix(request.get(PREFIX_HEADER, "")) or root_path
    base = f'<base href="{html.escape(prefix)}/">' if prefix else ""
    text = files()[name].content.decode()
    text = text.replace("<!-- base -->", base).replace("console/version/", f"console/{version()}/")
    page = PageFile(text.encode(), _MEDIA_TYPES[".html"])
    return page.answer({"Cache-Control": "no-cache", "Vary": PREFIX_HEADER}, request)


def show_file(wanted_version: str, name: str, request: Headers) -> Response | None:
    """A file that a page loads; None when there is none of that name. To the page of another version, which another
    replica served, this version is shown until it is loaded anew."""
    found = files().get(name)
    if found is None:
        return None
    kept = "public, max-age=31536000, immutable" if wanted_version == version() else "no-store"
    return found.answer({"Cache-Control": kept}, request)


@cache
def files() -> dict[str, PageFile]:
    """Every file that the pages load, by its path below the console's folder."""
    return {
        path.relative_to(_FOLDER).as_posix(): PageFile(path.read_bytes(), _MEDIA_TYPES[path.suffix])
        for path in sorted(_FOLDER.rglob("*"))
        if path.suffix in _MEDIA_TYPES
    }


@cache
def version() -> str:
    """A digest of all files: it changes when one of them does."""
    return _digest(b"\0".join(name.encode() + b"\0" + file.content for name, file in files().items()))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
