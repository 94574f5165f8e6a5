"""The loader: includes, what is sent, and where a line came from."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from scheduler.connection import scripts
from scheduler.connection.scripts import ScriptLibrary
from scheduler.errors import ConfigurationError

Write = Callable[..., ScriptLibrary]

HEADER = """\
-- place_one.lua: places one.
-- Guarantee: it is placed once,
--   whoever else places.
-- KEYS[1]: settings  the ledger's settings key
-- ARGV[1]: now_ms  milliseconds,
--   or empty
-- ARGV[2..]: node_ids  one per node
-- Reply: {'placed', node_id}
-- Cost: O(log n)
return { 'placed' }
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A library of the given files, `{"include/x": text}`."""

    def write_files(files: dict[str, str], *, shebang: bool = False) -> ScriptLibrary:
        for name, text in files.items():
            path = tmp_path / f"{name}.lua"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return ScriptLibrary(tmp_path, shebang=shebang)

    return write_files


def code_of(library: ScriptLibrary) -> list[str]:
    """The lines of script `a`, without the comments that tell where they come from."""
    return [line for line in library.render("a").splitlines() if not line.startswith("-- lua/")]


def test_an_include_stands_where_it_is_named(write: Write) -> None:
    library = write({"a": 'local before\n-- @include "include/x"\nreturn x', "include/x": "local x = 1"})
    assert library.render("a") == (
        "-- lua/a.lua:1\nlocal before\n-- lua/include/x.lua:1\nlocal x = 1\n-- lua/a.lua:3\nreturn x\n"
    )


def test_an_include_is_taken_once_however_often_it_is_named(write: Write) -> None:
    library = write(
        {
            "a": '-- @include "include/x"\n-- @include "include/y"\n-- @include "include/x"\nreturn y',
            "include/x": "local x = 1",
            "include/y": '-- @include "include/x"\nlocal y = x',
        }
    )
    assert code_of(library) == ["local x = 1", "local y = x", "return y"]


def test_white_space_decides_nothing(write: Write) -> None:
    files = {"include/x": "local x = 1", "inline/y": "local y = x"}
    plain = write({"a": '-- @include "include/x"\n-- @inline "inline/y"\nreturn y', **files})
    assert code_of(plain) == ["local x = 1", "local y = x", "return y"]
    indented = write({"a": '    -- @include "include/x"\n\t--@inline   "inline/y"  \nreturn y', **files})
    assert code_of(indented) == code_of(plain)


def test_a_fragment_stands_wherever_it_is_named(write: Write) -> None:
    library = write({"a": 'do\n-- @inline "inline/x"\nend\n-- @inline "inline/x"\nreturn', "inline/x": "x()"})
    assert code_of(library) == ["do", "x()", "end", "x()", "return"]


def test_what_an_inlined_file_brings_is_known_in_it_alone(write: Write) -> None:
    library = write(
        {
            "a": '-- @include "include/x"\nif y then\n-- @inline "include/z"\nend\n-- @include "include/y"\nreturn',
            "include/x": "x()",
            "include/y": "y()",
            "include/z": '-- @include "include/x"\n-- @include "include/y"\nz()',
        }
    )
    assert code_of(library) == ["x()", "if y then", "y()", "z()", "end", "y()", "return"]


def test_an_include_may_name_its_suffix(write: Write) -> None:
    library = write({"a": '-- @include "include/x.lua"\nreturn x', "include/x": "local x = 1"})
    assert code_of(library) == ["local x = 1", "return x"]


def test_a_missing_include_is_reported_with_file_and_line(write: Write) -> None:
    library = write({"a": 'local one\n\n-- @include "include/gone"\n'})
    with pytest.raises(ConfigurationError, match=r"^lua/a\.lua:3: included file lua/include/gone\.lua does not exist$"):
        library.render("a")


def test_circular_includes_are_reported_with_their_chain(write: Write) -> None:
    library = write(
        {
            "a": '-- @include "include/x"',
            "include/x": '-- @include "include/y"',
            "include/y": 'local y\n-- @include "include/x"',
        }
    )
    way = r"lua/include/x\.lua → lua/include/y\.lua → lua/include/x\.lua"
    with pytest.raises(ConfigurationError, match=rf"^lua/include/y\.lua:2: circular include: {way}$"):
        library.render("a")


def test_a_file_that_includes_itself_is_a_circle(write: Write) -> None:
    library = write({"a": '-- @include "include/x"', "include/x": '-- @include "include/x"'})
    with pytest.raises(ConfigurationError, match="circular include"):
        library.render("a")


@pytest.mark.parametrize("argument", ["include/x", '"../secret"', '"include/x" "include/y"', ""])
def test_a_malformed_include_is_refused(write: Write, argument: str) -> None:
    library = write({"a": f"-- @include {argument}", "include/x": "local x"})
    with pytest.raises(ConfigurationError, match=r"^lua/a\.lua:1: an include is written"):
        library.render("a")


def test_a_directive_that_there_is_not_and_an_included_fragment_are_refused(write: Write) -> None:
    with pytest.raises(ConfigurationError, match=r"^lua/a\.lua:2: there is @include and @inline, found: @insert$"):
        write({"a": 'local a\n-- @insert "include/x"'}).render("a")
    library = write({"a": '-- @include "inline/x"', "inline/x": "x()"})
    with pytest.raises(ConfigurationError, match=r"^lua/a\.lua:1: inline/x depends on where it stands: write @inline$"):
        library.render("a")


def test_comments_and_empty_lines_are_not_sent_and_code_is_left_as_it_is(write: Write) -> None:
    library = write({"a": "-- what\n\nlocal a = 1 -- why\n  -- more\n  return '-- text'\n"})
    assert library.render("a") == "-- lua/a.lua:3\nlocal a = 1 -- why\n  return '-- text'\n"


def test_every_line_sent_remembers_where_it_was_written(write: Write) -> None:
    library = write({"a": '-- a\n-- @include "include/x"\nreturn x\n', "include/x": "-- x\n\nlocal x = 1\n"})
    script = library.get("a")
    assert script.text == "-- lua/include/x.lua:3\nlocal x = 1\n-- lua/a.lua:3\nreturn x\n"
    assert [str(script.origin(line)) for line in (2, 3, 4)] == ["lua/include/x.lua:3", "lua/a.lua:3", "lua/a.lua:3"]
    assert script.origin(0) is None
    assert script.origin(5) is None


def test_the_shebang_is_the_first_line_and_moves_no_origin(write: Write) -> None:
    script = write({"a": "-- a\nreturn 1"}, shebang=True).get("a")
    assert script.text == "#!lua\n-- lua/a.lua:2\nreturn 1\n"
    assert str(script.origin(3)) == "lua/a.lua:2"


def test_the_sha_is_the_one_redis_computes(write: Write) -> None:
    script = write({"a": "return 'ü'"}).get("a")
    assert script.sha == hashlib.sha1(script.text.encode()).hexdigest()


def test_a_script_is_put_together_once(write: Write) -> None:
    library = write({"a": "return 1"})
    assert library.get("a") is library.get("a")


@pytest.mark.parametrize("name", ["b", "../a", "include/x", "A", ""])
def test_an_unknown_script_is_refused_with_those_there_are(write: Write, name: str) -> None:
    library = write({"a": "return 1", "include/x": "local x"})
    with pytest.raises(ConfigurationError, match=r"there are a$"):
        library.get(name)


def test_names_are_those_of_the_top_folder_in_order(write: Write) -> None:
    library = write({"b": "return 1", "a": "return 1", "include/x": "local x"})
    assert library.names == ("a", "b")
    assert "a" in library
    assert "include/x" not in library
    assert [script.name for script in library] == ["a", "b"]


def test_the_folder_inside_the_package_comes_before_the_one_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, beside = tmp_path / "scheduler" / "lua", tmp_path / "lua"
    monkeypatch.setattr(scripts, "_FOLDERS", (inside, beside))
    with pytest.raises(ConfigurationError, match="Lua scripts are missing"):
        scripts.find_folder()
    beside.mkdir()
    assert scripts.find_folder() == beside
    inside.mkdir(parents=True)
    assert scripts.find_folder() == inside


def test_a_contract_is_read_from_the_header(write: Write) -> None:
    contract = write({"place_one": HEADER}).get("place_one").contract
    assert contract.name == "place_one"
    assert contract.summary == "places one."
    assert contract.guarantee == "it is placed once, whoever else places."
    assert [(key.index, key.name) for key in contract.keys] == [(1, "settings")]
    assert [(part.index, part.name, part.meaning, part.tail) for part in contract.arguments] == [
        (1, "now_ms", "milliseconds, or empty", False),
        (2, "node_ids", "one per node", True),
    ]
    assert contract.cost == "O(log n)"


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("-- place_one.lua: places one.", "-- places one", r"^lua/place_one\.lua:1: a script begins with"),
        ("-- Guarantee: it is", "-- It is", "lacks Guarantee"),
        ("-- Reply: {'placed', node_id}\n", "", "lacks Reply"),
        ("-- Cost: O(log n)\n", "", "lacks Cost"),
        ("-- Cost: O(log n)\n", "-- Cost: O(1)\n-- Cost: O(log n)\n", r":10: Cost appears twice"),
        ("ARGV[2..]", "ARGV[3..]", r"ARGV\[3\] stands where ARGV\[2\] is due"),
        ("ARGV[1]", "ARGV[1..]", r"ARGV\[1\.\.\] is not the last"),
        ("KEYS[1]: settings  the", "KEYS[1]: The", r"KEYS\[1\] needs a name in small letters"),
    ],
)
def test_a_header_that_breaks_the_form_is_refused(write: Write, before: str, after: str, message: str) -> None:
    library = write({"place_one": HEADER.replace(before, after)})
    with pytest.raises(ConfigurationError, match=message):
        _ = library.get("place_one").contract
