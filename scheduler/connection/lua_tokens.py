"""The tokens of a Lua 5.1 text. The scripts use neither long brackets nor long comments, so this reads none."""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*)
      | (?P<name>[A-Za-z_]\w*)
      | (?P<value>0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
      | (?P<sign>\.\.\.|\.\.|==|~=|<=|>=|[-+*/%^\#<>=(){}\[\];:,.])""",
    re.VERBOSE | re.DOTALL,
)
_RESERVED = "and break do else elseif end false for function if in local nil not or repeat return then true until while"
_KEYWORDS = frozenset(re.findall(r"\w+", _RESERVED))


class LuaSyntaxError(Exception):
    """The text is none that this reader understands. `line` counts from 1."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"line {line}: {what}")
        self.line = line


def tokens_of(text: str) -> list[tuple[str, str, int]]:
    """Kind, text and line of each; the last one is empty. Raises LuaSyntaxError."""
    tokens, at, line = list[tuple[str, str, int]](), 0, 1
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise LuaSyntaxError(line, f"cannot read {text[at : at + 20]!r}")
        kind, found = str(token.lastgroup), token[0]
        if kind != "space":
            tokens.append(("keyword" if kind == "name" and found in _KEYWORDS else kind, found, line))
        line += found.count("\n")
        at = token.end()
    tokens.append(("end", "", line))
    return tokens
