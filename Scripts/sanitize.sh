#!/usr/bin/env bash
# Runs the tests under a sanitizer, in a build of its own: sanitize.sh thread|address [arguments of swift test]
#
# With the flags of `make test`, so our targets are optimised as they are for release; fewer seeds (TILE_SEEDS), since all is several times slower.
set -euo pipefail
cd "$(dirname "$0")/.."
kind=${1:?thread or address}
shift
export TILECACHE_TOOLS=1 TILECACHE_STRICT=1 SWIFT_DETERMINISTIC_HASHING=1 TILE_SEEDS=${TILE_SEEDS:-40} SCRATCH=.build-$kind
flags=(--sanitize="$kind" -Xswiftc -Onone -debug-info-format none)
[ -n "${NO_BUILD:-}" ] || swift build -c release --build-tests --scratch-path "$SCRATCH" "${flags[@]}"
exec Scripts/run-tests.sh --sanitize="$kind" "$@"
