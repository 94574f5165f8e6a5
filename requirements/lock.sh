#!/bin/sh
# Writes the files beside it from pyproject.toml: every package to be installed, its exact version and the hashes of its
# files, for each version of Python and each system. `make lock` runs it.
#
#   build.txt   what builds this package              run.txt     what `make demo` needs
#   image.txt   what the image has                    dev.txt     what works on it, `make test` and the like
#   tools.txt   what `make lock`, `make audit` and `make manifests` need beside
#
# Versions that still do are kept, and the files agree about each. Arguments are those of `uv pip compile`: --upgrade
# takes the newest of all, --upgrade-package NAME of one. No index is named in the files: pip uses its own.
set -eu
cd "$(dirname -- "$0")/.."
all="$(mktemp)"
trap 'rm -f "$all"' EXIT

compile() {
    "${UV:-uv}" pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes --no-annotate \
        --custom-compile-command 'make lock' "$@"
}

cat requirements/*.txt >"$all" 2>/dev/null || true
compile pyproject.toml --all-extras --group build --group tools --output-file "$all" "$@"
for file in build run image dev tools; do
    case $file in
    build | tools) of="--group $file" ;;
    run) of="pyproject.toml" ;;
    image) of="pyproject.toml --extra kubernetes --extra otel" ;;
    dev) of="pyproject.toml --extra dev" ;;
    esac
    # Nothing is kept from the file itself, since all that is decided stands in "$all".
    rm -f "requirements/$file.txt"
    # shellcheck disable=SC2086 # words, not one word
    compile $of --constraints "$all" --output-file "requirements/$file.txt"
done
