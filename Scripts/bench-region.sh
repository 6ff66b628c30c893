#!/usr/bin/env bash
# A region through `tilegc seed` against curl fetching the same tiles from the same local origin, 16 at once; then the same
# region again, all of it stale. Prints the median of some rounds and the ratio that Docs/benchmarks.md reports.
set -euo pipefail
export TILECACHE_TOOLS=1
cd "$(dirname "$0")/.."
rounds=${1:-5}
scratch=${SCRATCH:-.build}
swift build -c release --product tilegc --scratch-path "$scratch" >/dev/null
swift build -c release --product transport-bench --scratch-path "$scratch" >/dev/null
bin=$(swift build -c release --scratch-path "$scratch" --show-bin-path)
work=$(mktemp -d)
"$bin/transport-bench" serve 6 >"$work/address" &
origin=$!
trap 'kill "$origin"; rm -rf "$work"' EXIT
until [ -s "$work/address" ]; do sleep 0.1; done
address=$(cat "$work/address")
"$bin/transport-bench" urls "$address" 6 >"$work/curl"
count=$(grep -c '^url' "$work/curl")

seed() {
    "$bin/tilegc" seed "$work/cache-$1" --source bench --url "$address/{z}/{x}/{y}.png" \
        --bbox -180,-85.0511,180,85.0511 --zoom 0-6 --concurrency 16 --json
}
journal() { cat "$work/cache-1"/manifest/journal-*.jsonl "$work/cache-1"/manifest/checkpoint-*.json | wc -c; }
median() { sort -n | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }

TIMEFORMAT='%R %U %S'
# A cache of its own for each round: ext4 is slow for minutes where many files have just been deleted.
for round in $(seq "$rounds"); do
    { time curl --silent --parallel --parallel-max 16 --config "$work/curl" >/dev/null 2>&1; } 2>>"$work/curl.times"
    { time seed "$round" >"$work/seed.json"; } 2>>"$work/seed.times"
    [ "$(jq .fetched "$work/seed.json")" = "$count" ] || { cat "$work/seed.json"; exit 1; }
done
curl=$(cut -d' ' -f1 "$work/curl.times" | median)
seeded=$(cut -d' ' -f1 "$work/seed.times" | median)
cpu() { awk '{ print ($2 + $3) * 1e6 / '"$count"' }' "$work/$1.times" | median; }
# Of the two in the same round, as a machine may be slower in one round than in the next.
ratio=$(paste -d' ' "$work/seed.times" "$work/curl.times" | awk '{ print ($2 + $3) / ($5 + $6) }' | median)
awk -v c="$curl" -v s="$seeded" -v n="$count" -v a="$(cpu curl)" -v b="$(cpu seed)" -v r="$ratio" 'BEGIN {
    printf "region: %d tiles, curl %.2f s (%.0f/s), tilegc seed %.2f s (%.0f/s): %.2fx\n", n, c, n / c, s, n / s, c / s
    printf "processor: curl %.0f µs a tile, tilegc seed %.0f: %.2fx\n", a, b, r }'

"$bin/tilegc" expire "$work/cache-1" --all >/dev/null
blobs=$("$bin/tilegc" stats "$work/cache-1" --json | jq .blobs)
before=$(journal)
again=$(seed 1)
after=$(journal)
[ "$(jq .revalidated <<<"$again")" = "$count" ] && [ "$(jq .bytes <<<"$again")" = 0 ] || { echo "$again"; exit 1; }
[ "$("$bin/tilegc" stats "$work/cache-1" --json | jq .blobs)" = "$blobs" ]
awk -v n="$count" -v b="$((after - before))" 'BEGIN {
    printf "again, all stale: %d conditional requests, 0 bytes of bodies, no new blob, manifest + %.0f B a tile\n", n, b / n }'
