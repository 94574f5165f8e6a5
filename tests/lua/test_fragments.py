"""What the files of a script may know of each other, and that each fragment says what it reads and sets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from scheduler.connection.fragments import check_script, faults_of
from scheduler.connection.lua_names import read_names
from scheduler.connection.lua_tokens import LuaSyntaxError
from scheduler.connection.scripts import ScriptLibrary, find_folder
from scheduler.errors import ConfigurationError

LIBRARY = ScriptLibrary(find_folder())
FRAGMENT = "-- inline/part.lua: a part.\n-- Reads: before\n-- Sets: after, total\n"
Faults = Callable[..., list[str]]


@pytest.fixture
def faults(tmp_path: Path) -> Faults:
    """What is wrong with script `a` of the given files."""

    def faults_among(**files: str) -> list[str]:
        for name, text in files.items():
            path = tmp_path / f"{name.replace('__', '/')}.lua"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return list(faults_of(ScriptLibrary(tmp_path).get("a")))

    return faults_among


@pytest.mark.parametrize("name", LIBRARY.names)
def test_the_files_of_a_script_fit_together(name: str) -> None:
    check_script(LIBRARY.get(name))


def test_every_fragment_and_library_is_put_in_somewhere() -> None:
    used = {piece.path for script in LIBRARY for piece in script.pieces}
    assert set(find_folder().rglob("*/*.lua")) == used


def test_a_fragment_that_tells_the_truth_passes(faults: Faults) -> None:
    body = "local after = before + 1\ntotal = after\ndo local mine = 1 end\n"
    script = 'local before, total = 1, 0\n-- @inline "inline/part"\nreturn after + total\n'
    assert faults(a=script, inline__part=FRAGMENT + body) == []


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("local after = 1\ntotal = after", "Reads: before; true is: nothing"),
        ("local after = before + more\ntotal = after", "Reads: before; true is: before, more"),
        ("local after = before", "Sets: after, total; true is: after"),
        ("local after, mine = before\ntotal = after", "Sets: after, total; true is: after, mine, total"),
        ("local function after() return before end\ntotal, more = after, 1", "true is: after, more, total"),
    ],
)
def test_a_fragment_is_held_to_its_head(faults: Faults, body: str, told: str) -> None:
    script = 'local before, total, more = 1, 0, 2\ndo\n-- @inline "inline/part"\nend\nreturn total\n'
    found = faults(a=script, inline__part=FRAGMENT + body)
    assert len(found) == 1
    assert found[0].startswith("lua/inline/part.lua, put in at lua/a.lua:3: the head says ")
    assert found[0].endswith(told)


@pytest.mark.parametrize(
    ("head", "told"),
    [
        ("-- a part.\n", r"^lua/inline/part\.lua:1: a fragment begins with -- inline/part\.lua: what it does$"),
        ("-- inline/other.lua: a part.\n", "a fragment begins with"),
        ("-- inline/part.lua: a part.\n-- Reads: nothing\n", "the head lacks Sets"),
        ("-- inline/part.lua: a part.\n-- Reads: x\n-- Sets: y\n-- Reads: z\n", r":4: Reads appears twice$"),
    ],
)
def test_a_head_that_breaks_the_form_is_refused(faults: Faults, head: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        faults(a='local x = 1\n-- @inline "inline/part"\nreturn x\n', inline__part=head + "local y = x\n")


def test_a_library_knows_libraries_and_nothing_else(faults: Faults) -> None:
    files = {
        "a": '-- @include "include/x"\nlocal mine = 1\n-- @include "include/y"\nreturn y()\n',
        "include__x": "local function x(inner) return inner end\n",
        "include__y": "local function y() return x(1) end\n",
    }
    assert faults(**files) == []
    files["include__y"] = "local function y() return x(mine) end\n"
    (told,) = faults(**files)
    assert told.startswith(
        "lua/include/y.lua:1: a library knows nothing of what stands around it, but uses mine of lua/a.lua:2"
    )
    inside = 'local function x(inner)\n  -- @inline "include/y"\n  return y() + inner\nend\n'
    assert len(faults(a=files["a"], include__x=inside, include__y="local function y() return inner end\n")) == 2


def test_an_include_inside_a_block_and_a_library_put_in_twice_are_told(faults: Faults) -> None:
    script = 'do\n-- @include "include/x"\nend\nreturn 1\n'
    assert "@include stands at the top level of a file" in faults(a=script, include__x="local x = 1\n")[0]
    twice = '-- @inline "include/x"\nif x then\n-- @inline "include/x"\nend\nreturn x\n'
    assert faults(a=twice) == ["lua/a.lua:3: include/x.lua is put in twice: include it where both places see it"]
    either = 'if 1 then\n-- @inline "include/x"\nelse\n-- @inline "include/x"\nend\nreturn 1\n'
    assert faults(a=either) == []


def test_a_name_that_nobody_declares_is_told(faults: Faults) -> None:
    assert faults(a="local x = 1\nfor i = 1, x do y = i end\nreturn i\n") == [
        "lua/a.lua:2: y is declared nowhere: an include is missing, or `local`",
        "lua/a.lua:3: i is declared nowhere: an include is missing, or `local`",
    ]


def test_scopes_are_those_of_lua() -> None:
    names = read_names(
        "local a = a\n"  # the second is a global yet
        "local function f(b, ...) return f(b, a) end\n"
        "for i, v in pairs(a) do local c = { a = i, [v] = b, c } end\n"
        "repeat local d = f('end', \"-- do\") until d == nil\n"
        "if a then local e = -1 elseif e then f{ 1 } else f'x' end\n"
        "function a.b:c() return self end\n"
        "a.x, y, a[1] = 1, 2 -- function\n"
        "return d\n"
    )
    globals_used = [(use.name, use.line, use.assigned) for use in names.uses if use.local is None]
    assert globals_used == [
        ("a", 1, False), ("pairs", 3, False), ("b", 3, False), ("c", 3, False), ("e", 5, False), ("y", 7, True),
        ("d", 8, False),
    ]  # fmt: skip
    assert names.most_locals == 8  # a, f, i, v, c, and three of the loop


@pytest.mark.parametrize("text", ["local = 1", "if a then", "f(", "end", "local a = $"])
def test_what_is_no_lua_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(LuaSyntaxError, match=r"^line 2: "):
        read_names(f"\n{text}")
