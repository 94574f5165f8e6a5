"""Every script is held to the contract at its head, and to the rules that keep Lua on Redis safe."""

import re

import pytest

from scheduler.connection.client import StoreClient, StoreOptions, connect
from scheduler.connection.scripts import Script, ScriptLibrary, find_folder
from tests.support.backends import Backend
from tests.support.servers import RedisServer

LIBRARY = ScriptLibrary(find_folder())
SCRIPTS = pytest.mark.parametrize("name", LIBRARY.names)
FILES = pytest.mark.parametrize(
    "file", sorted(str(path.relative_to(find_folder())) for path in find_folder().rglob("*.lua"))
)

_TRAILING_COMMENT = re.compile(r"\s+--\s.*$", re.MULTILINE)


def code_of(script: Script) -> str:
    """What is sent, without the comments behind code."""
    return _TRAILING_COMMENT.sub("", script.text)


def literal_indexes(table: str, code: str) -> set[int]:
    return {int(index) for index in re.findall(rf"\b{table}\[(\d+)\]", code)}


def computed_indexes(table: str, code: str) -> bool:
    """Whether the code reads `table` at an index that is not a plain number, or as a whole."""
    return bool(re.search(rf"\b{table}\[[^\]\d]|\b{table}\[\d+[^\d\]]|#{table}\b|[(,=]\s*{table}\s*[,)\n]", code))


def starts_of_runs(indexes: set[int]) -> list[int]:
    return sorted(index for index in indexes if index - 1 not in indexes)


@SCRIPTS
def test_a_contract_is_complete_and_named_like_its_file(name: str) -> None:
    contract = LIBRARY.get(name).contract
    assert contract.name == name
    assert contract.summary
    assert [(key.index, key.name) for key in contract.keys] == [(1, "settings")]


@SCRIPTS
def test_every_argument_that_is_read_is_documented(name: str) -> None:
    script = LIBRARY.get(name)
    arguments = script.contract.arguments
    documented = {argument.index for argument in arguments}
    beyond = {index for index in literal_indexes("ARGV", code_of(script)) if index not in documented}
    if arguments and arguments[-1].tail:
        beyond = {index for index in beyond if index < arguments[-1].index}
    assert not beyond


@SCRIPTS
def test_every_documented_argument_is_read(name: str) -> None:
    script = LIBRARY.get(name)
    code = code_of(script)
    # Every script is handed the time first, also the few that have no use for it.
    documented = {argument.index for argument in script.contract.arguments if argument.name != "now_ms"}
    unread = documented - literal_indexes("ARGV", code)
    if not unread:
        return
    assert computed_indexes("ARGV", code), f"nothing reads ARGV{sorted(unread)}"
    # A run of arguments read by computed indexes starts at a number that the script hands on, loops from, or adds to.
    # Some of a run may be read by number as well, by a part of the script that asks for no more.
    for start in starts_of_runs(unread):
        assert any(reads_from(earlier, code) for earlier in range(start, 1, -1)), f"nothing reads ARGV from {start} on"


def reads_from(start: int, code: str) -> bool:
    handed_on, loop = rf"\((?:ARGV, )?{start}\s*[,)]", rf"for \w+ = {start},"
    return bool(re.search(rf"{handed_on}|{loop}|\bARGV\[{start - 1} \+", code))


@SCRIPTS
def test_no_key_but_the_documented_one_is_read(name: str) -> None:
    script = LIBRARY.get(name)
    assert literal_indexes("KEYS", code_of(script)) == {key.index for key in script.contract.keys}
    assert not computed_indexes("KEYS", code_of(script))


@FILES
def test_lua_keeps_to_the_rules_of_this_house(file: str) -> None:
    text = (find_folder() / file).read_text(encoding="utf-8")
    code = "\n".join(
        _TRAILING_COMMENT.sub("", line) for line in text.splitlines() if not line.lstrip().startswith("--")
    )
    forbidden = {
        r"math\.random": "Redis seeds it the same for every script",
        r"(?<![\w.])error\(|\berror_reply\b": "what a script refuses is a reply, whose first word says so",
        r"'KEYS'": "KEYS walks the whole server",
        r"\[\[|--\[": "the loader drops comment lines and reads no long brackets",
        r"\bcmsgpack\b|\bstruct\b|\bbit\.": "the embedded ledger lacks it",
        r"return string\.(?:match|find|gsub)\(": "several values returned at once crash the embedded ledger",
    }
    if file == "include/packing.lua":  # which does without it there
        del forbidden[r"\bcmsgpack\b|\bstruct\b|\bbit\."]
    for pattern, reason in forbidden.items():
        found = re.search(pattern, code)
        assert not found, f"{file}: {found and found[0]}: {reason}"


@FILES
def test_every_file_opens_with_what_it_is_for_and_fits_a_screen(file: str) -> None:
    text = (find_folder() / file).read_text(encoding="utf-8")
    assert text.startswith("-- ")
    assert text.endswith("\n")
    assert not [line for line in text.splitlines() if len(line) > 125]


async def test_every_script_compiles(backend: Backend) -> None:
    client = await connect(backend.redis_addr, StoreOptions(fake_server=backend.fake_server), library=LIBRARY)
    assert await client.load_scripts() == len(LIBRARY.names)
    await client.close()


async def test_every_script_compiles_with_the_shebang(real_server: RedisServer) -> None:
    client: StoreClient = await connect(real_server.address, StoreOptions(shebang=True))
    assert await client.load_scripts() == len(LIBRARY.names)
    await client.close()
