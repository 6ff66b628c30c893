#!/usr/bin/env bash
# Builds and runs the programs in Examples/; each ends with an error if something is not as it says.
set -euo pipefail
export TILECACHE_TOOLS=1
cd "$(dirname "$0")/.."
scratch=${SCRATCH:-.build}
[ -n "${NO_BUILD:-}" ] || swift build -c release --product OfflineMap --scratch-path "$scratch"
bin=$(swift build -c release --scratch-path "$scratch" --show-bin-path)
output=$("$bin/OfflineMap" Sample/world) || {
    printf '%s\n' "$output" >&2
    echo "check-examples: OfflineMap failed" >&2
    exit 1
}
printf '%s\n' "$output"
echo "check-examples: ok"
