"""The console, the API's document for people, and the files that both load."""

from __future__ import annotations

from typing import Any

from scheduler.access.roles import FOR_EVERYONE
from scheduler.api.http.pages import show_file, show_page
from scheduler.api.http.route import Call, noun_router, reach
from scheduler.errors import NotFound

router = noun_router("pages")


@router.get("/", include_in_schema=False)
@reach(FOR_EVERYONE)
async def console(call: Call) -> Any:
    return show_page("index.html", call.headers, call.options.root_path)


@router.get("/docs", include_in_schema=False)
@reach(FOR_EVERYONE)
async def docs(call: Call) -> Any:
    return show_page("docs.html", call.headers, call.options.root_path)


@router.get("/console/{version}/{name:path}", include_in_schema=False)
@reach(FOR_EVERYONE)
async def page_file(call: Call, version: str, name: str) -> Any:
    found = show_file(version, name, call.headers)
    if found is None:
        raise NotFound("there is nothing at this path")
    return found
