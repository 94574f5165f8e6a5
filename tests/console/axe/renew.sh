#!/bin/sh
# Takes the newest axe-core from npm and puts what the tests need of it here; say the version in README.md.
set -eu
cd "$(dirname -- "$0")"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
npm pack --silent --pack-destination "$work" axe-core
tar -xzf "$work"/axe-core-*.tgz -C "$work"
cp "$work/package/axe.min.js" "$work/package/LICENSE" "$work/package/LICENSE-3RD-PARTY.txt" .
head -n 1 axe.min.js
