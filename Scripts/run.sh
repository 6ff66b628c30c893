#!/usr/bin/env bash
# The main job on real tiles, for a person to watch: import, look, check, bound, get out again. Stops at the first
# step that does not do what it says. Everything is made in ./run, which is emptied first.
set -euo pipefail
# The second as in the Makefile: without it a later build does not find what this one has compiled.
export TILECACHE_TOOLS=1 SWIFT_DETERMINISTIC_HASHING=1
cd "$(dirname "$0")/.."
root=$PWD

step() { printf '\n== %s\n' "$1"; }
show() {
    printf '$ %s\n' "$*"
    "$@"
}
fail() {
    echo "make run: $1" >&2
    exit 1
}

if command -v sha256sum >/dev/null; then sha256=(sha256sum); else sha256=(shasum -a 256); fi

step "Building tilegc (the first time takes a few minutes)"
scratch=${SCRATCH:-.build}
# shellcheck disable=SC2086 # flags of `make run`
swift build -c release --product tilegc --scratch-path "$scratch" ${CHECKS:-}
PATH="$(swift build -c release --scratch-path "$scratch" --show-bin-path):$PATH"
rm -rf run
mkdir run
cd run
sample=$root/Sample/world
tiles=$(find "$sample" -name '*.png' | wc -l | tr -d ' ')

step "Importing the sample: the world in zooms 0 to 5, $tiles PNG tiles"
show tilegc import cache "$sample" --source world

step "What is in the cache: equal tiles are stored once"
show tilegc stats cache
tilegc stats cache --json >stats.json
[ "$(jq .entries stats.json)" = "$tiles" ] || fail "expected $tiles entries"
unique=$(find "$sample" -name '*.png' -exec "${sha256[@]}" {} + | cut -d' ' -f1 | sort -u | wc -l | tr -d ' ')
[ "$(jq .blobs stats.json)" = "$unique" ] || fail "expected $unique blobs"

step "The manifest is JSON: which blobs do most tiles share?"
show tilegc compact cache
checkpoint=$(ls cache/manifest/checkpoint-*.json)
echo "\$ jq -r '.records[].blob // empty' $checkpoint | sort | uniq -c | sort -rn"
jq -r '.records[].blob // empty' "$checkpoint" | sort | uniq -c | sort -rn | awk 'NR <= 3'
echo "\$ jq -c '.records[] | select(.key == \"world/0/0/0\")' $checkpoint"
jq -c '.records[] | select(.key == "world/0/0/0")' "$checkpoint"

step "Exporting all of it: the same bytes come out"
show tilegc export cache all --source world
show diff -r "$sample" all
echo "identical: $tiles tiles"

step "Keeping to a budget: the least recently used go; zooms 0 to 2, which are put in once more, stay"
mkdir hot
cp -r "$sample/0" "$sample/1" "$sample/2" hot
show tilegc import cache hot --source world
show tilegc gc cache --max-bytes 1MiB
tilegc stats cache --json >after.json
[ "$(jq .allocatedBytes after.json)" -le 1048576 ] || fail "more than 1 MiB is left"
left=$(jq .entries after.json)
[ "$left" -gt 0 ] || fail "nothing is left"
show tilegc ls cache --zoom 0-1
[ "$(tilegc ls cache --zoom 0-2 --json | wc -l | tr -d ' ')" = 21 ] || fail "zooms 0 to 2 should have stayed"

step "Checking everything that is left: every blob is hashed, every count compared"
show tilegc verify cache

step "Exporting what is left: again the same bytes"
show tilegc export cache left --source world
(cd left && find . -name '*.png' | sort) >left.txt
while read -r tile; do
    cmp "left/$tile" "$sample/$tile" || fail "$tile differs"
done <left.txt
[ "$(wc -l <left.txt | tr -d ' ')" = "$left" ] || fail "expected $left tiles"
echo "identical: $left tiles"

step "An accident: one byte of a blob is changed, verify finds it, --repair drops it"
blob=$(tilegc ls cache --key world/0/0/0 --json | jq -r .blob)
file=cache/objects/${blob:0:2}/$blob
chmod u+w "$file"
printf 'X' | dd of="$file" bs=1 seek=100 conv=notrunc 2>/dev/null
chmod u-w "$file"
if show tilegc verify cache; then fail "the damage was not found"; fi
show tilegc verify cache --repair
show tilegc verify cache

step "tileproxy in front of a tile server of this machine: a tile is fetched once, then it comes from the cache"
cd "$root"
ask() {
    echo "\$ curl -sI $TILEPROXY_URL/tiles/world/3/4/2.png"
    python3 - "$TILEPROXY_URL/tiles/world/3/4/2.png" <<'PYTHON'
import sys, urllib.request
answer = urllib.request.urlopen(sys.argv[1])
print(f"HTTP {answer.status}, {len(answer.read())} bytes")
for name in ["Age", "Cache-Control", "ETag", "Cache-Status"]:
    print(f"{name}: {answer.headers[name]}")
PYTHON
}
export -f ask
SCRATCH=$scratch Scripts/serve.sh bash -euo pipefail -c '
    ask | tee run/first.txt
    ask | tee run/second.txt
    grep -q "fwd=uri-miss.*stored" run/first.txt
    grep -q "hit; ttl=" run/second.txt' || fail "the proxy did not answer as it should"
echo "To look at it in a browser: make serve"

printf '\nAll steps did what they say. The cache is in ./run/cache; look around with tilegc.\n'
