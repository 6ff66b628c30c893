#!/usr/bin/env bash
# Reads a cache with a second reader, written from Docs/on-disk-format.md, and compares with what tilegc says.
set -euo pipefail
export TILECACHE_TOOLS=1
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
scratch=${SCRATCH:-.build}

[ -n "${NO_BUILD:-}" ] || swift build -c release --product tilegc --scratch-path "$scratch" >"$work/build.log" 2>&1 || {
    cat "$work/build.log" >&2
    exit 1
}
tilegc=$(swift build -c release --scratch-path "$scratch" --show-bin-path)/tilegc
cache=$work/cache

compare() {
    python3 Scripts/read-cache.py "$cache" | jq -c . | LC_ALL=C sort >"$work/read"
    # Times of tilegc are RFC 3339; those of the file are seconds since 1970.
    "$tilegc" ls "$cache" --json |
        jq -c '{key, blob, size, status, etag, expires: (.expires | fromdate), lastUsed: (.lastUsed | fromdate)}' |
        LC_ALL=C sort >"$work/told"
    diff "$work/told" "$work/read" || {
        echo "check-format: $1: the reader and tilegc disagree" >&2
        exit 1
    }
    [ -s "$work/read" ] || {
        echo "check-format: $1: nothing was read" >&2
        exit 1
    }
}

"$tilegc" import "$cache" Sample/world --source world >"$work/out"
compare "after an import"
"$tilegc" expire "$cache" --source world --zoom 3 >"$work/out"
"$tilegc" rm "$cache" --source world --zoom 2 >"$work/out"
compare "after an expiry and a removal"
"$tilegc" gc "$cache" --max-bytes 2MB >"$work/out"
"$tilegc" limit "$cache" --bytes 50MB >"$work/out"
compare "after an eviction"
"$tilegc" compact "$cache" >"$work/out"
compare "after a compaction"
"$tilegc" rm "$cache" --source world --zoom 4 >"$work/out"
compare "after a compaction and removals"
echo "check-format: a reader written from Docs/on-disk-format.md agrees with tilegc"
