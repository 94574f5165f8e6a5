"""Globals of the embedded ledger's scripts, looked for by Lua.

fakeredis compares all names in the interpreter with those it knows before every command of a script, name by name in
Python, which takes as long as the command: a third of what the embedded ledger costs the suite. The same question is
put to Lua; only when it finds a global does fakeredis look, clear it away, and refuse, as ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fakeredis.commands_mixins import scripting_mixin

_LOOK = """
function(known)
    local next, all = next, _G
    return function()
        for name in next, all do
            if not known[name] then return true end
        end
        return false
    end
end
"""
# More than are in use at once; an interpreter that is kept here keeps all its scripts.
_KEPT = 16

_lookers: dict[int, tuple[set[Any], Callable[[], bool]]] = {}


def look_in_lua() -> None:
    """For this process. Without the function that is replaced, fakeredis is only slower."""
    refuse = getattr(scripting_mixin, "_check_for_lua_globals", None)
    if refuse is None:
        return

    def check(runtime: Any, expected: set[Any]) -> None:
        found = _lookers.get(id(expected))
        if found is None or found[0] is not expected:
            if len(_lookers) >= _KEPT:
                _lookers.clear()
            found = expected, runtime.eval(_LOOK)(runtime.table_from(dict.fromkeys(expected, True)))
            _lookers[id(expected)] = found
        if found[1]():
            refuse(runtime, expected)

    scripting_mixin._check_for_lua_globals = check
