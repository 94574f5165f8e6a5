"""Writes the blocking client from the one for asyncio, by replacing words: `python clients/python/generate_sync.py`.

Every file of `_async` but `waiting.py` has its counterpart in `_sync`; what differs between the flavours beyond words
is in `waiting.py`, which is written by hand for both.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE = Path(__file__).parent / "agentenv_scheduler_client"
SETTINGS = Path(__file__).parents[2] / "pyproject.toml"
BY_HAND = {"__init__.py", "waiting.py"}
HEADER = "# Written by generate_sync.py from _async/{name}; change that one.\n"

WORDS = (
    (r"\basync (?=def|with|for)", ""),
    (r"\bawait ", ""),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\b_async\b", "_sync"),
    (r"\b__a(?=enter__|exit__)", "__"),
    (r"\baclose\b", "close"),
)


def written() -> dict[Path, str]:
    """The files of `_sync` that are written, with their contents."""
    sources = [path for path in (PACKAGE / "_async").glob("*.py") if path.name not in BY_HAND]
    with tempfile.TemporaryDirectory() as folder:
        for source in sources:
            Path(folder, source.name).write_text(_blocking(source), encoding="utf-8")
        for words in (["check", "--select", "I", "--fix"], ["format"]):
            ruff = [sys.executable, "-m", "ruff", *words, "--quiet", "--no-cache", "--config", str(SETTINGS), folder]
            subprocess.run(ruff, check=True)  # noqa: S603 - our own words
        return {PACKAGE / "_sync" / path.name: path.read_text(encoding="utf-8") for path in Path(folder).glob("*.py")}


def _blocking(source: Path) -> str:
    text = source.read_text(encoding="utf-8")
    for pattern, replacement in WORDS:
        text = re.sub(pattern, replacement, text)
    return HEADER.format(name=source.name) + text


if __name__ == "__main__":
    for path, content in written().items():
        path.write_text(content, encoding="utf-8")
