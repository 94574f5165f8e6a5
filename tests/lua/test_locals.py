"""Lua allows 200 locals in one function, and the top level of a script with all that it includes is one function."""

from __future__ import annotations

import pytest
import redis

from scheduler.connection.lua_names import read_names
from scheduler.connection.scripts import ScriptLibrary, find_folder
from tests.support.servers import RedisServer

LIBRARY = ScriptLibrary(find_folder())
ALLOWED = 200
TO_SPARE = {"record_heartbeat": 80}  # of the others 20


def loads_with(client: redis.Redis, text: str, more: int) -> bool:
    """Whether the server still compiles the script when it begins with so many locals more."""
    names = ", ".join(f"spare_{number}" for number in range(more))
    try:
        client.script_load(f"local {names}\n{text}" if more else text)
    except redis.ResponseError as refused:
        if "200 local variables" not in str(refused):
            raise
        return False
    return True


@pytest.mark.parametrize("name", LIBRARY.names)
def test_a_script_has_locals_to_spare(name: str, real_server: RedisServer) -> None:
    text = LIBRARY.render(name)
    with real_server.client() as client:
        left = 0
        for step in (128, 64, 32, 16, 8, 4, 2, 1):
            if left + step <= ALLOWED and loads_with(client, text, left + step):
                left += step
        client.script_flush()
    print(f"{name}: {left} locals to spare")
    advice = "put helpers that one file alone uses into a do block, what is seldom needed inline into a function"
    assert left >= TO_SPARE.get(name, 20), f"{name}: {left} left; {advice}"
    # Counted by reading the text: so many are alive at once where most are.
    assert left == ALLOWED - read_names(text).most_locals
