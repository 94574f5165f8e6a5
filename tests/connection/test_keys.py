"""Key names, and that the two languages agree on them."""

import re
from pathlib import Path

import pytest

from scheduler.connection.keys import Keys
from scheduler.connection.scripts import find_folder
from scheduler.errors import ConfigurationError
from tests.support.backends import Backend

# key('name'), key('name:' .. id), node_key(id), node_key(id, 'part'), reservation_key(id)
_KEY = re.compile(r"(?<![\w.])key\(\s*'([^']+)'\s*(\.\.)?")
_NODE_PART = re.compile(r"(?<![\w.])node_key\([^()',]+(?:\([^()]*\)[^()',]*)?,\s*'([^']+)'")


def names_in_lua(text: str) -> set[str]:
    """Every key name the Lua text spells out, `{}` standing for an id."""
    names = {f"{name}{{}}" if joined else name for name, joined in _KEY.findall(text)}
    return names | {f"node:{{}}:{part}" for part in _NODE_PART.findall(text)}


def names_in_scripts() -> set[str]:
    texts = [path.read_text(encoding="utf-8") for path in sorted(find_folder().rglob("*.lua"))]
    return set().union(*map(names_in_lua, texts))


@pytest.mark.parametrize("domain", ["default", "a", "A.b_c-9", "x" * 64])
def test_a_domain_is_the_hash_tag_of_every_key(domain: str) -> None:
    keys = Keys(domain)
    assert keys.settings == f"aenv:{{{domain}}}:shared_settings"
    assert keys.groups_recent == f"aenv:{{{domain}}}:groups:recent"
    assert keys.reservation("r{1}") == f"aenv:{{{domain}}}:reservation:r{{1}}"
    assert keys.pattern == f"aenv:{{{domain}}}:*"


@pytest.mark.parametrize("domain", ["", "x" * 65, "a b", "a}b", "ü", "a:b", "a*", "a\n"])
def test_a_domain_that_makes_no_clean_tag_is_refused(domain: str) -> None:
    with pytest.raises(ConfigurationError, match="1 to 64 letters"):
        Keys(domain)


def test_an_id_with_braces_does_not_change_its_key() -> None:
    assert Keys("d").node("{}") == "aenv:{d}:node:{}"


@pytest.mark.parametrize("node_id", ["a", "a:claims", "a%3Aclaims", "a{b}", "ü%"])
async def test_both_languages_name_the_keys_of_a_node_alike(node_id: str, backend: Backend) -> None:
    script = (find_folder() / "include" / "keys.lua").read_text(
        encoding="utf-8"
    ) + "return { node_key(ARGV[1]), node_key(ARGV[1], 'claims'), key('groups:recent'), reservation_key('r') }"
    keys = Keys("d")
    client = backend.client()
    found = await client.eval(script, 1, keys.settings, node_id)
    await client.aclose()
    assert found == [keys.node(node_id), keys.node_claims(node_id), keys.groups_recent, keys.reservation("r")]


def test_no_node_id_reaches_into_the_parts_of_another() -> None:
    keys = Keys("d")
    assert keys.node("a:claims") != keys.node_claims("a")
    assert keys.node("a%3Aclaims") != keys.node("a:claims")


def test_the_name_of_a_key_is_found_for_this_domain_only() -> None:
    assert Keys("d").name_of(b"aenv:{d}:node:a") == "node:a"
    assert Keys("d").name_of("aenv:{e}:node:a") is None


def test_the_keys_beside_a_settings_key_are_those_of_its_domain() -> None:
    assert Keys.beside(Keys("d").settings).rotations == Keys("d").rotations


def test_no_name_is_given_twice() -> None:
    assert len(set(Keys.names())) == len(Keys.names())


def test_lua_names_are_read_in_all_their_forms() -> None:
    text = "key('loads') key('row:' .. s) node_key(node_id, 'claims') node_key(f(id), 'x') node_key(id) monkey('no')"
    assert names_in_lua(text) == {"loads", "row:{}", "node:{}:claims", "node:{}:x"}


def test_lua_uses_no_key_that_python_does_not_name() -> None:
    assert names_in_scripts() - set(Keys.names()) == set()


def test_python_names_no_key_that_nothing_uses() -> None:
    lua = "".join(path.read_text(encoding="utf-8") for path in find_folder().rglob("*.lua"))
    package = Path(__file__).parents[2] / "scheduler"
    python = "".join(path.read_text(encoding="utf-8") for path in package.rglob("*.py") if path.name != "keys.py")
    used = names_in_scripts()
    idle = {
        attribute
        for attribute, part in vars(Keys).items()
        if hasattr(part, "name")
        and part.name not in used
        # Some scripts keep a name in a variable first, put a label set behind that of a pool's set, or are told it.
        and f"'{part.name.removesuffix(':{}')}'" not in lua
        and not re.search(rf"^-- ARGV.*\b{re.escape(part.name)}\b", lua, re.MULTILINE)
        and not re.search(rf"keys\.{attribute}\b", python)
    }
    # These two are built by functions of their own in lua/include/keys.lua.
    assert idle - {"node", "reservation"} == set()


def test_lua_derives_the_prefix_from_the_settings_key() -> None:
    text = (find_folder() / "include" / "keys.lua").read_text(encoding="utf-8")
    assert "string.sub(KEYS[1], 1, -1 - #'shared_settings')" in text
    assert "'node:'" in text
    assert "'reservation:'" in text
