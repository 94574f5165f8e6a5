"""The Dockerfile without Docker: what its last stage says, and its files and commands as local processes.

Only the layout of the image is stood in for: its Python is this interpreter, its package this repository, and the files
that it writes itself are written into a folder.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYTHON = "/opt/scheduler/bin/python"
PROGRAM = "agentenv-scheduler"


@dataclass(slots=True)
class Image:
    """`files`: target in the image → (content, whether it is executable); `copied`: target → file of the repository.
    `links`: symbolic link → what it leads to."""

    environment: dict[str, str] = field(default_factory=dict)
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health_command: list[str] = field(default_factory=list)
    ports: set[int] = field(default_factory=set)
    files: dict[str, tuple[str, bool]] = field(default_factory=dict)
    copied: dict[str, Path] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)

    def unpack(self, folder: Path) -> dict[str, str]:
        """Write its own files under `folder`. Returns path in the image → path here."""
        paths = {target: str(source) for target, source in self.copied.items()}
        paths |= {target: str(folder / target.lstrip("/")) for target in self.files}
        for target, (text, is_executable) in self.files.items():
            content = text
            local = Path(paths[target])
            local.parent.mkdir(parents=True, exist_ok=True)
            for inside, here in (self.copied | {PYTHON: Path(sys.executable)}).items():
                content = content.replace(inside, str(here))
            local.write_text(content, encoding="utf-8")
            local.chmod(0o755 if is_executable else 0o644)
        return paths


def program(words: Sequence[str]) -> list[str]:
    """A command with the image's own program as this very interpreter runs it."""
    return [sys.executable, "-m", "scheduler", *words[1:]] if words[0] == PROGRAM else list(words)


def read_image(path: Path = ROOT / "Dockerfile") -> Image:
    """Of the last stage; an instruction that is not known is a ValueError, so that nothing is overlooked."""
    image = Image()
    for name, rest, heredoc in _instructions(path.read_text(encoding="utf-8")):
        if name == "FROM":
            image = Image()
        elif name == "ENV":
            image.environment |= dict(re.findall(r"(\w+)=(\S+)", rest))
        elif name in {"ENTRYPOINT", "CMD"}:
            setattr(image, "entrypoint" if name == "ENTRYPOINT" else "command", json.loads(rest))
        elif name == "HEALTHCHECK":
            image.health_command = json.loads(rest.partition("CMD ")[2])
        elif name == "EXPOSE":
            image.ports |= {int(port) for port in rest.split()}
        elif name == "COPY":
            words = rest.split()
            if heredoc is not None:
                image.files[words[-1]] = (heredoc, "--chmod=755" in words)
            elif not words[0].startswith("--from"):
                image.copied[words[-1]] = ROOT / words[-2]
        elif name == "RUN" and (link := re.fullmatch(r"ln -s (\S+) (\S+)", rest)):
            image.links[link[2]] = link[1]
        elif name not in {"LABEL", "USER", "WORKDIR", "RUN"}:
            raise ValueError(f"{path}: {name} is not read here")
    return image


def _instructions(text: str) -> Iterator[tuple[str, str, str | None]]:
    """Instruction, its words, and the text that follows it as a heredoc."""
    lines = iter(line for line in text.splitlines())
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        whole = line
        while whole.endswith("\\"):
            whole = whole[:-1].rstrip() + " " + next(lines).strip()
        name, _, rest = whole.partition(" ")
        if (mark := re.search(r"<<'(\w+)' ", rest)) is None:
            yield name, rest.strip(), None
            continue
        body = []
        while (inside := next(lines)) != mark[1]:
            body.append(inside)
        yield name, rest.replace(mark[0], ""), "\n".join(body) + "\n"
