"""The two web pages and their files: headers, paths below a proxy, and what a page may not hold."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from scheduler.api.http import HttpOptions
from scheduler.api.http.pages import PAGE_POLICY, files, version
from scheduler.config import load_configuration
from scheduler.errors import ConfigurationError
from scheduler.ledger.ledger import Ledger
from scheduler.service import build_services
from tests.http.conftest import open_client

PAGES = {"/": "main.js", "/docs": "docs.js"}


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_runs_its_own_files_alone(embedded_api: httpx.AsyncClient, path: str) -> None:
    page = await embedded_api.get(path)
    assert page.headers["content-security-policy"] == PAGE_POLICY
    assert "unsafe" not in PAGE_POLICY
    assert page.headers["cache-control"] == "no-cache"
    assert page.headers["vary"] == "X-Forwarded-Prefix"
    assert page.headers["referrer-policy"] == "no-referrer"
    assert not re.search(r"<base|https?://", page.text)
    named = re.findall(r'(?:src|href)="(console/[^"]+)"', page.text)
    assert f"console/{version()}/{PAGES[path]}" in named
    for file in named:
        answer = await embedded_api.get(f"/{file}")
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_what_a_browser_has_is_not_sent_again(embedded_api: httpx.AsyncClient) -> None:
    for path in ("/", "/docs", f"/console/{version()}/main.js"):
        page = await embedded_api.get(path)
        again = await embedded_api.get(path, headers={"If-None-Match": f'"other", W/{page.headers["etag"]}'})
        assert (again.status_code, again.content) == (304, b"")
        assert (await embedded_api.get(path, headers={"If-None-Match": '"other"'})).status_code == 200


async def test_the_page_of_another_version_gets_files_that_are_not_kept(embedded_api: httpx.AsyncClient) -> None:
    answer = await embedded_api.get("/console/0123456789abcdef/main.js")
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("name", ["none.js", "../pages.py", "..%2Fpages.py", "views", "views/", "%2e%2e/pages.py"])
async def test_nothing_but_those_files_is_served(embedded_api: httpx.AsyncClient, name: str) -> None:
    assert (await embedded_api.get(f"/console/{version()}/{name}")).json()["code"] == "not_found"


@pytest.mark.parametrize(
    ("told", "base"),
    [
        ("/scheduler", "/scheduler/"),
        ("/a/b-c/", "/a/b-c/"),
        ("//evil.test", None),
        ("/a/../b", None),
        ('/"><script>', None),
        ("https://evil.test", None),
        ("/", None),
    ],
)
async def test_the_prefix_that_a_proxy_tells_is_a_path_or_nothing(
    embedded_api: httpx.AsyncClient, told: str, base: str | None
) -> None:
    page = await embedded_api.get("/", headers={"X-Forwarded-Prefix": told})
    assert re.findall(r'<base href="([^"]*)">', page.text) == ([base] if base else [])
    assert "evil" not in page.text


async def test_below_root_path_everything_is_found_with_and_without_it(embedded_ledger: Ledger) -> None:
    options = HttpOptions(root_path="/ops/scheduler")
    async with open_client(build_services(embedded_ledger), options) as client:
        for path in ("/", "/ops/scheduler", "/ops/scheduler/"):
            assert '<base href="/ops/scheduler/">' in (await client.get(path)).text
        elsewhere = await client.get("/", headers={"X-Forwarded-Prefix": "/other"})
        assert '<base href="/other/">' in elsewhere.text
        assert (await client.get("/ops/scheduler/v1/nodes")).json()["nodes"] == []
        assert (await client.get("/v1/nodes")).status_code == 200
        assert (await client.get("/ops/schedulers/v1/nodes")).status_code == 404


def test_root_path_is_a_path_or_the_replica_does_not_start() -> None:
    def root_path(text: str) -> str:
        return load_configuration(options={"http.root_path": text}, environment={}).settings.http.root_path

    assert (root_path(""), root_path("/a/b")) == ("", "/a/b")
    for text in ("a", "/a/", "//a", "/a/..", "/a?b", "/"):
        with pytest.raises(ConfigurationError, match=r"http\.root_path"):
            root_path(text)


def test_no_file_writes_markup_or_keeps_anything_unasked() -> None:
    """What the policy would stop, and what a reader should not have to look for."""
    for name, file in files().items():
        text = file.content.decode()
        if name.endswith(".html"):
            assert not re.search(r"<style|<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=", text), name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), (
            name
        )
        assert not re.search(r"localStorage|indexedDB|document\.cookie", text), name
        if name != "key.js":
            assert "sessionStorage" not in text, name


def test_every_module_names_its_imports_as_they_are() -> None:
    """Without a build step nothing else would say that a name is misspelt before a browser does."""
    modules = {name: file.content.decode() for name, file in files().items() if name.endswith(".js")}
    for name, text in modules.items():
        for names, path in re.findall(r'^import \{([^}]*)\} from "([^"]+)";$', text, re.MULTILINE):
            found = (Path("/") / Path(name).parent / path).resolve().relative_to("/").as_posix()
            exported = re.findall(r"^export (?:async )?(?:function|const|class) (\w+)", modules[found], re.MULTILINE)
            assert {each.strip() for each in names.split(",") if each.strip()} <= set(exported), (name, path)
