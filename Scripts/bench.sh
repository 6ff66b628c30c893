#!/usr/bin/env bash
# All benchmarks: one table, one JSON file, one picture. Takes about half an hour, with --ten-million an hour and 30 GB of
# disk; --quick is a look of some minutes. Options go to bench.py; --work DIR chooses the file system.
set -euo pipefail
export TILECACHE_TOOLS=1
cd "$(dirname "$0")/.."
# LMDB is a peer where it is installed.
if [ -z "${BENCH_LMDB:-}" ]; then
    BENCH_LMDB=0
    if pkg-config --exists lmdb 2>/dev/null; then BENCH_LMDB=1; fi
fi
export BENCH_LMDB
scratch=${BENCH_SCRATCH:-Benchmarks/.build}
[ -n "${NO_BUILD:-}" ] || swift build -c release --package-path Benchmarks --scratch-path "$scratch" >&2
proxy=()
# The proxy is measured beside nginx, with wrk; without both there is no need to build it.
[ "$BENCH_LMDB" = 1 ] || echo "bench: without LMDB (liblmdb-dev is not installed)" >&2
if command -v nginx >/dev/null && command -v wrk >/dev/null; then
    main=${SCRATCH:-.build}
    [ -n "${NO_BUILD:-}" ] || swift build -c release --product tileproxy --scratch-path "$main" >&2
    [ ! -x "$main/release/tileproxy" ] || proxy=(--tileproxy "$main/release/tileproxy")
fi
exec python3 Scripts/bench.py "$scratch/release" ${proxy[@]+"${proxy[@]}"} "$@"
