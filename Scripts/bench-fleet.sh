#!/usr/bin/env bash
# Several tileproxy on one bucket of a real S3 server (OpenStack Swift), with a counting origin and nginx, all on this
# machine: the table of "A fleet" in Docs/benchmarks.md. Takes about ten minutes; options go to bench-fleet.py (--quick for a
# look, --objects 1000000 for the million of the row about sweeping).
set -euo pipefail
export TILECACHE_TOOLS=1
cd "$(dirname "$0")/.."
for tool in nginx wrk python3; do
    command -v "$tool" >/dev/null || { echo "bench-fleet: $tool is missing (apt-get install nginx-light wrk python3)" >&2; exit 1; }
done
scratch=${SCRATCH:-.build}
if [ -z "${NO_BUILD:-}" ]; then
    swift build -c release --product tileproxy --scratch-path "$scratch" >&2
    swift build -c release --product tilegc --scratch-path "$scratch" >&2
fi
bin=$(swift build -c release --scratch-path "$scratch" --show-bin-path)
# The server's Python has botocore, with which the bucket is filled and emptied.
exec Scripts/s3-server.py sh -c 'exec "$TILE_TEST_PYTHON" Scripts/bench-fleet.py "$@"' sh "$bin" "$@"
