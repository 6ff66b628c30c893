#!/usr/bin/env bash
# Builds and runs the programs in Examples/; each ends with an error if something is not as it says.
set -euo pipefail
export TILECACHE_TOOLS=1
cd "$(dirname "$0")/.."
scratch=${SCRATCH:-.build}
for product in OfflineMap tileproxy; do
    [ -n "${NO_BUILD:-}" ] || swift build -c release --product "$product" --scratch-path "$scratch"
done
bin=$(swift build -c release --scratch-path "$scratch" --show-bin-path)
output=$("$bin/OfflineMap" Sample/world) || {
    printf '%s\n' "$output" >&2
    echo "check-examples: OfflineMap failed" >&2
    exit 1
}
printf '%s\n' "$output"

# The minimal configuration starts as it stands: in a folder that has the sample map, on a port that is free.
work=$(mktemp -d)
proxy=
trap '[ -z "$proxy" ] || kill "$proxy"; rm -rf "$work"' EXIT
ln -s "$PWD/Sample" "$work/Sample"
root=$PWD
cd "$work"
"$bin/tileproxy" serve --config "$root/Examples/tileproxy-minimal.yaml" --port 0 2>log &
proxy=$!
for _ in $(seq 600); do
    grep -q '] listening$' log && break
    kill -0 "$proxy" 2>/dev/null || break
    sleep 0.1
done
grep -q '] listening$' log || {
    cat log >&2
    echo "check-examples: tileproxy does not start with Examples/tileproxy-minimal.yaml" >&2
    exit 1
}
kill "$proxy"
wait "$proxy"
proxy=
[ -e tile-cache/tilecache.json ] || { echo "check-examples: tileproxy made no cache where the minimal configuration says" >&2; exit 1; }
echo "check-examples: ok"
