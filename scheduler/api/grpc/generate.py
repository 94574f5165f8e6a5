"""Regenerates the protobuf code from `proto/`: `python -m scheduler.api.grpc.generate`.

The generated modules are part of this package and import each other from it: each .proto is passed to protoc under
the path that its module shall have, because a package path of `scheduler/v1` would collide with this package. Needs
`grpcio-tools`, a development dependency.
"""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = "scheduler/api/grpc/generated"
SOURCES = {
    "scheduler_v1": "proto/scheduler/v1/scheduler.proto",
    "reservations_v1alpha": "proto/agentenv/scheduler/v1alpha/reservations.proto",
}


def generate(into: Path, root: Path = ROOT) -> list[Path]:
    """Writes the modules under `into` and returns their paths. Raises RuntimeError when protoc fails."""
    # Imported here: a running scheduler never needs the compiler.
    from grpc_tools import protoc

    well_known = str(files("grpc_tools") / "_proto")
    arguments = ["protoc", f"-I{well_known}"]
    arguments += [f"-I{PACKAGE}/{module}.proto={root / source}" for module, source in SOURCES.items()]
    arguments += [f"--{kind}_out={into}" for kind in ("python", "pyi", "grpc_python")]
    arguments += [f"{PACKAGE}/{module}.proto" for module in SOURCES]
    if protoc.main(arguments) != 0:
        raise RuntimeError("protoc refused the .proto files; its message is above")
    return sorted((into / PACKAGE).glob("*_pb2*.py*"))


def main() -> None:
    for path in generate(ROOT):
        sys.stdout.write(f"{path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
