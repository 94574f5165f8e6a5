"""Scripts that stop half-way: any one `redis.call` of any script can be made to fail, once.

A rendered prefix shadows `redis` for one call of one script, counts, and raises at the chosen command. What came
before it stays written, as when an ACL, a full memory or a bug of the server's stops a script.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from scheduler.store.client import StoreClient
from scheduler.store.scripts import Script, ScriptLibrary, find_folder

# The text is that of a server without memory, so that it is judged as one: unavailable, and not tried again.
_PREFIX = """\
local redis = (function(real)
  local calls = 0
  local function call(...)
    calls = calls + 1
    if calls == {failing} then error('-OOM command number {failing} was made to fail') end
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
    """`script` fails at its `failing`-th command. `met`: it came that far."""

    script: str
    failing: int
    met: bool = False


class StoppingLibrary(ScriptLibrary):
    """The product's scripts, one of which fails the next time it runs."""

    def __init__(self) -> None:
        super().__init__(find_folder())
        self.stop: Stop | None = None

    def get(self, name: str) -> Script:
        script = super().get(name)
        if self.stop is None or self.stop.script != name:
            return script
        prefix = _PREFIX.format(failing=self.stop.failing)
        self.stop = None
        return Script(name=name, text=prefix + script.text, origins=script.origins, source=script.source)


@contextmanager
def stopped(client: StoreClient, script: str, failing: int) -> Iterator[StoppingLibrary]:
    """Within the block the next run of `script` stops at its `failing`-th command."""
    before, library = client.scripts, StoppingLibrary()
    library.stop = Stop(script, failing)
    client.scripts = library
    try:
        yield library
    finally:
        client.scripts = before
