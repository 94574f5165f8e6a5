"""Scripts that stop half-way: any one `redis.call` of any script can be made to fail, once.

A prefix shadows `redis` for one call of one script, counts, and raises at the command whose number a key beside the
ledger holds: one text a script, compiled once. What came before it stays written, as when an ACL, a full memory or a
bug of the server's stops a script.
"""

from __future__ import annotations

import functools
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from scheduler.connection.client import StoreClient
from scheduler.connection.scripts import Script, ScriptLibrary, find_folder

_FAILING = "half-way"
# The text is that of a server without memory, so that it is judged as one: unavailable, and not tried again.
_PREFIX = f"""\
local redis = (function(real)
  local failing = tonumber(real.call('GET', '{_FAILING}'))
  local calls = 0
  local function call(...)
    calls = calls + 1
    if calls == failing then error('-OOM command number ' .. failing .. ' was made to fail') end
    return real.call(...)
  end
  local function pcall_(...)
    calls = calls + 1
    return real.pcall(...)
  end
  return {{ call = call, pcall = pcall_, error_reply = real.error_reply, acl_check_cmd = false }}
end)(redis)
"""


@dataclass
class Stop:
    """`script` fails at its `failing`-th command, once: the `run`-th time that it runs."""

    script: str
    failing: int
    run: int = 1


class StoppingLibrary(ScriptLibrary):
    """The product's scripts, one of which fails once. `bounds`: numbers of theirs (`local NAME = 500`) that are others
    here, so that few things are many."""

    def __init__(self, bounds: Mapping[str, int] | None = None, stop: Stop | None = None) -> None:
        super().__init__(find_folder())
        self.bounds = bounds or {}
        self.stop = stop
        self.runs_left = stop.run if stop else 0

    def get(self, name: str) -> Script:
        script = ScriptLibrary.load().get(name)
        text = _with_bounds(script.text, tuple(self.bounds.items()))
        if self.stop is not None and self.stop.script == name:
            self.runs_left -= 1
            if self.runs_left == 0:
                text = stopping(text)
        if text == script.text:
            return script
        return Script(name=name, text=text, origins=script.origins, source=script.source)


def stopping(text: str) -> str:
    return _PREFIX + text


@functools.cache
def _with_bounds(text: str, bounds: tuple[tuple[str, int], ...]) -> str:
    for bound, number in bounds:
        text = re.sub(rf"\blocal {bound} = \d+\b", f"local {bound} = {number}", text)
    return text


@asynccontextmanager
async def stopped(client: StoreClient, stop: Stop, bounds: Mapping[str, int] | None = None) -> AsyncIterator[None]:
    """Within the block one script stops once."""
    await client.command("SET", _FAILING, stop.failing)
    # Known before it runs, so that its run is not spent on finding that it is unknown.
    known = StoppingLibrary(bounds).get(stop.script)
    await client.command("SCRIPT", "LOAD", stopping(known.text))
    before, client.scripts = client.scripts, StoppingLibrary(bounds, stop)
    try:
        yield
    finally:
        client.scripts = before
