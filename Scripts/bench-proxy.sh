#!/usr/bin/env bash
# tileproxy beside nginx's proxy_cache, both in front of one nginx with static tiles, all on this machine: the table of
# "The proxy" in Docs/benchmarks.md. Takes about ten minutes; options go to bench-proxy.py (--quick for a look).
set -euo pipefail
export TILECACHE_TOOLS=1
cd "$(dirname "$0")/.."
for tool in nginx wrk python3; do
    command -v "$tool" >/dev/null || { echo "bench-proxy: $tool is missing (apt-get install nginx-light wrk python3)" >&2; exit 1; }
done
scratch=${SCRATCH:-.build}
[ -n "${NO_BUILD:-}" ] || swift build -c release --product tileproxy --scratch-path "$scratch" >&2
bin=$(swift build -c release --scratch-path "$scratch" --show-bin-path)
exec python3 Scripts/bench-proxy.py "$bin/tileproxy" "$@"
