#!/usr/bin/env bash
# The transports against curl: 5,461 tiles of 5 KB from one local origin, 16 requests at once. Best of some rounds.
set -euo pipefail
cd "$(dirname "$0")/.."
bench=${1:?usage: Scripts/bench-transport.sh PATH-OF-transport-bench [ZOOM] [ROUNDS]}
zoom=${2:-6} rounds=${3:-5}
work=$(mktemp -d)
"$bench" serve "$zoom" >"$work/address" &
origin=$!
trap 'kill "$origin"; rm -rf "$work"' EXIT
until [ -s "$work/address" ]; do sleep 0.1; done
address=$(cat "$work/address")
"$bench" urls "$address" "$zoom" >"$work/curl"
count=$(grep -c '^url' "$work/curl")
for _ in $(seq "$rounds"); do
    TIMEFORMAT='%R %U %S'
    times=$( { time curl --silent --parallel --parallel-max 16 --config "$work/curl" >/dev/null 2>&1; } 2>&1)
    awk -v n="$count" '{ printf "curl:       %d requests/s, %d µs of processor a request\n", n/$1, ($2+$3)/n*1e6 }' \
        <<<"$times"
    printf 'nio:        %s\n' "$("$bench" fetch nio "$address" "$zoom" 16)"
done
printf 'urlsession: %s\n' "$("$bench" fetch urlsession "$address" "$zoom" 16)"
