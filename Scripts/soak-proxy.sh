#!/usr/bin/env bash
# tileproxy for MINUTES (30) at half of what it can do, with a budget that makes it evict all the time and an origin that
# fails one time in twenty. Fails if an error was served that the cache could have answered, if a body was wrong, if memory
# or descriptors grow, or if `tilegc verify` finds anything at the end.
set -euo pipefail
export TILECACHE_TOOLS=1
cd "$(dirname "$0")/.."
minutes=${1:-30}
[ $# = 0 ] || shift
scratch=${SCRATCH:-.build}
configuration=${CONFIGURATION:-release}
if [ -z "${NO_BUILD:-}" ]; then
    swift build -c "$configuration" --product tileproxy --scratch-path "$scratch" >&2
    swift build -c "$configuration" --product tilegc --scratch-path "$scratch" >&2
fi
bin=$(swift build -c "$configuration" --scratch-path "$scratch" --show-bin-path)
exec python3 Scripts/soak-proxy.py "$bin" --minutes "$minutes" "$@"
