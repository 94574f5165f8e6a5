"""Every image that a deployment names is one exact version: what is tried is what runs."""

from __future__ import annotations

import re
from pathlib import Path

from scheduler import __version__

ROOT = Path(__file__).parents[2]
EXACT = re.compile(r"\S+:v?\d+\.\d+\.\d+(-[a-z0-9.-]+)?(@sha256:[0-9a-f]{64})?")
OWN = "agentenv-scheduler"


def named_images() -> dict[str, str]:
    """Where → image; what a Dockerfile builds from itself is left out."""
    found: dict[str, str] = {}
    for path in (ROOT / "Dockerfile", ROOT / "docker-compose.yml", *sorted((ROOT / "deploy").rglob("*.yaml"))):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if named := re.search(r"^# syntax=(\S+)|^FROM (\S+)|^\s*(?:- )?image: (\S+)", line):
                found[f"{path.relative_to(ROOT)}:{number}"] = next(filter(None, named.groups()))
    return found


def test_every_image_has_an_exact_version() -> None:
    images = named_images()
    assert len(images) > 7
    for where, image in images.items():
        assert EXACT.fullmatch(image), f"{where}: {image} may be another tomorrow"


def test_one_program_has_one_version_everywhere() -> None:
    versions: dict[str, str] = {}
    for where, image in named_images().items():
        name = image.partition(":")[0]
        assert versions.setdefault(name, image) == image, where
    assert versions[OWN] == f"{OWN}:{__version__}"


def test_what_floats_is_found_out() -> None:
    for image in ("redis", "redis:latest", "redis:7", "redis:7.4-alpine", "agentenv-scheduler:latest"):
        assert not EXACT.fullmatch(image)
