"""The commands that README and docs tell people to type, taken out of their code blocks.

A command block is a fence marked `sh`, `bash` or `console` (there only lines after `$ ` count),
or an indented block whose lines start with a program the tests know.
"""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
SHELL_LANGUAGES = {"sh", "bash", "shell", "console"}
REDIRECTIONS = {"<", ">", ">>", "2>"}
PROGRAMS = {"agentenv-scheduler", "make", "redis-cli", "curl", "pip", "python", "docker", "kubectl", "git"}


@dataclass(frozen=True)
class Command:
    """`words` are as the shell would split them, without comments, redirections and leading assignments."""

    path: Path
    line: int
    text: str
    words: tuple[str, ...]

    @property
    def id(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line} {self.text[:60]}"


def documents() -> list[Path]:
    return [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "clients/python/README.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
    ]


@functools.cache
def commands_in(path: Path) -> tuple[Command, ...]:
    return tuple(_commands_in(path))


def _commands_in(path: Path) -> Iterator[Command]:
    for token in _blocks_in(path):
        if token.map is None:
            continue
        if token.type == "fence" and token.info.split(" ")[0] in SHELL_LANGUAGES:
            prompted = token.info.startswith("console")
            yield from _commands(path, token.map[0] + 2, token.content, prompted, known_only=False)
        elif token.type == "code_block":
            yield from _commands(path, token.map[0] + 1, token.content, prompted=False, known_only=True)


def _blocks_in(path: Path) -> list[Token]:
    """What stands inside of a line is left unread."""
    return MarkdownIt().disable("inline").parse(path.read_text(encoding="utf-8"))


def _commands(path: Path, first_line: int, content: str, prompted: bool, known_only: bool) -> Iterator[Command]:
    for offset, text in _logical_lines(content):
        if prompted and not text.startswith("$ "):
            continue  # what the command printed
        for part in _simple_commands(text.removeprefix("$ ")):
            words = tuple(shlex.split(part, comments=True))
            while words and re.fullmatch(r"[A-Z_][A-Z0-9_]*=.*", words[0]):
                words = words[1:]
            words = _without_redirections(words)
            if words and not (known_only and words[0] not in PROGRAMS):
                yield Command(path, first_line + offset, part.strip(), words)


def _without_redirections(words: tuple[str, ...]) -> tuple[str, ...]:
    kept = [index for index, word in enumerate(words) if word not in REDIRECTIONS]
    return tuple(words[index] for index in kept if index == 0 or words[index - 1] not in REDIRECTIONS)


def scripts_in(path: Path) -> list[str]:
    """The whole blocks of shell, those inside lists too, as they would be pasted."""
    return [token.content for token in _blocks_in(path) if token.type == "fence" and token.info.split(" ")[0] == "sh"]


def _logical_lines(content: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations joined, and the number of their first line."""
    held, start = "", 0
    for number, line in enumerate(content.splitlines()):
        if not held:
            start = number
        # An open quote runs on, as in the body of a curl request.
        held = f"{held}\n{line}" if held else line
        if held.endswith("\\"):
            held = held[:-1].rstrip()
            continue
        try:
            shlex.split(held, comments=True)
        except ValueError:
            continue
        if held.strip():
            yield start, held.strip()
        held = ""
    assert not held, f"an unfinished command: {held}"


def _simple_commands(text: str) -> list[str]:
    """The parts of `a && b | c`; quotes protect what is inside them."""
    lexer = shlex.shlex(text, posix=False, punctuation_chars="|&;")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    parts: list[list[str]] = [[]]
    for word in lexer:
        if set(word) <= set("|&;"):
            parts.append([])
        else:
            parts[-1].append(word)
    return [" ".join(part) for part in parts if part]
