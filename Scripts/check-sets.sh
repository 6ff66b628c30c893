#!/usr/bin/env bash
# Reads published sets with a second reader, written from Docs/set-format.md, and compares with what tilegc says; then runs the
# commands of "Offline maps for a field team" and "Versions of a map" in Docs/operations.md as they stand there, and pulls from a plain
# server of files.
set -euo pipefail
export TILECACHE_TOOLS=1
cd "$(dirname "$0")/.."
scratch=${SCRATCH:-.build}
if [ -z "${NO_BUILD:-}" ]; then
    for product in tilegc tileproxy; do swift build -c release --product "$product" --scratch-path "$scratch"; done
fi
PATH="$(swift build -c release --scratch-path "$scratch" --show-bin-path):$PATH"
export PATH
scripts=$PWD/Scripts
work=$(mktemp -d)
servers=()
trap 'for server in "${servers[@]}"; do kill "$server"; done; rm -rf "$work"' EXIT

fail() {
    echo "check-sets: $1" >&2
    exit 1
}

# compare LISTER CACHE SET SOURCE NOTE: the reader finds in the set what the cache has of the source.
compare() {
    python3 "$scripts/read-set.py" "$3" --deltas | jq -c '{key, blob, size}' | LC_ALL=C sort >"$work/read"
    "$1" "$2" | jq -c --arg source "$4" '{key: (.key | ltrimstr($source + "/")), blob, size}' | LC_ALL=C sort >"$work/told"
    diff "$work/told" "$work/read" || fail "$5: the reader and tilegc disagree"
    [ -s "$work/read" ] || fail "$5: nothing was read"
}
tiles() { tilegc ls "$1" --json | jq -c 'select(.key | contains(":") | not)'; }

cp -r Sample/world "$work/served"
awk -v work="$work" '
    /^<!-- run: (publish and pull( again)?|versions) -->$/ { part++; marked = 1; next }
    /^```sh$/ && marked { inside = 1; marked = 0; next }
    /^```/ { inside = 0; marked = 0; next }
    inside { print >(work "/commands-" part ".sh") }
' Docs/operations.md
[ "$(cat "$work"/commands-[123].sh | wc -l)" -ge 13 ] || fail "Docs/operations.md has no commands to run"
python3 Scripts/sample-origin.py "$work/served" --max-age 0 --delay 0 --port-file "$work/port" &
servers+=($!)
for _ in $(seq 600); do
    [ -s "$work/port" ] && break
    kill -0 "${servers[0]}" || fail "the server of the sample map does not run"
    sleep 0.1
done
TILES="http://127.0.0.1:$(cat "$work/port")"
export TILES

cd "$work"
bash -euo pipefail -x commands-1.sh
compare tiles cache set world "the first edition"
compare tiles laptop stick world "what was pulled"
# One tile is other than it was.
cp served/3/0/0.png served/4/8/5.png
tilegc expire cache --source world >out
bash -euo pipefail -x commands-2.sh
compare tiles cache set world "the second edition"
compare tiles laptop stick world "what was pulled again"
jq -e '.delta and .fetchedBlobs <= 1 and .requests <= 3' pulled.json >out || fail "the second pull took more than has changed"

# Scales, formats and removals; then a plain server without ranges and entity tags.
tilegc import cache served --source world --with-format >out
tilegc rm cache --source world --zoom 1 >out
tilegc publish cache set --source world --json >edition.json
compare tiles cache set world "the third edition"
python3 - set >server.out 2>server.log <<'EOF' &
import functools, http.server, sys
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1])
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
print(server.server_address[1], flush=True)
server.serve_forever()
EOF
servers+=($!)
for _ in $(seq 600); do
    [ -s server.out ] && break
    kill -0 "${servers[1]}" || fail "the server of files does not run"
    sleep 0.1
done
url="http://127.0.0.1:$(cat server.out)/"
root=$(jq -r .root edition.json)
tilegc pull "$url" laptop --source world --expect "$root" --json >pulled.json
jq -e '.delta' pulled.json >out || fail "no delta was taken from the server"
compare tiles laptop set world "what was pulled from a server"
tilegc pull "$url" other --source map --expect "$root" >out
compare tiles other set map "what was pulled anew from a server"
# The root names the tiles, wherever they are published from.
[ "$(tilegc publish other again --source map --json | jq -r .root)" = "$root" ] || fail "the same tiles have another root"
[ -w set/set.json ] && [ "$(stat -c %a set/set.json)" != 444 ] || fail "a copy of set.json could not be copied over"

# A proxy of a set, with a cache of its own; its URL is in `address`.
start_proxy() {
    tileproxy serve --cache "$1" --port 0 --source "world=$2" 2>"$1.log" &
    local process=$!
    servers+=("$process")
    for _ in $(seq 600); do
        grep -q 'listening$' "$1.log" && break
        kill -0 "$process" || fail "the proxy of $2 does not run"
        sleep 0.1
    done
    address="http://127.0.0.1:$(sed -nE 's/.*address=[^ ]*:([0-9]+) .*listening$/\1/p' "$1.log")"
}

# The latest version and a former one, side by side; then back to the former one.
sets_root() { jq -r .root set/set.json; }
start_proxy proxy set/set.json
PROXY=$address
export PROXY
latest=$(sets_root)
curl -sf "$PROXY/tiles/world/3/0/0.png" >latest.png
cmp -s latest.png served/3/0/0.png || fail "the proxy does not serve the latest version"
cp served/2/1/1.png served/3/0/0.png
tilegc import cache served --source world >out
tilegc publish cache set --source world >out
for _ in $(seq 600); do
    curl -sf "$PROXY/tiles/world/3/0/0.png" | cmp -s - served/3/0/0.png && break
    sleep 0.1
done
bash -euo pipefail -x commands-3.sh
cmp -s former.png latest.png || fail "the former version is not what it was"
[ "$(sets_root)" = "$latest" ] || fail "rolling back did not lead to the former root"
grep -q '^3/0/0' changed.txt || fail "the difference of two versions lacks a tile"
for _ in $(seq 600); do
    curl -sf "$PROXY/tiles/world/3/0/0.png" | cmp -s - latest.png && break
    sleep 0.1
done
curl -sf "$PROXY/tiles/world/3/0/0.png" | cmp - latest.png || fail "the proxy did not go back"

# The same set from the server of files, without a copy of it: all tiles, a new version, and a former one beside it.
start_proxy elsewhere "${url}set.json"
ELSEWHERE=$address
for path in 0/0/0 2/1/1 3/0/0 3/5/2 5/16/10; do
    status=$(curl -s -o got -w '%{http_code}' "$ELSEWHERE/tiles/world/$path.png")
    expected=$(curl -s -o expected -w '%{http_code}' "$PROXY/tiles/world/$path.png")
    [ "$status" = "$expected" ] || fail "the server's set answers $status for $path, and not $expected"
    [ "$status" != 200 ] || cmp -s got expected || fail "the server's set has another tile at $path"
done
former=$(sets_root)
cp served/2/1/1.png served/3/0/0.png
tilegc import cache served --source world >out
tilegc publish cache set --source world >out
for _ in $(seq 600); do
    curl -sf "$ELSEWHERE/tiles/world/3/0/0.png" | cmp -s - served/3/0/0.png && break
    sleep 0.1
done
curl -sf "$ELSEWHERE/tiles/world/3/0/0.png" | cmp - served/3/0/0.png || fail "the server's new version is not taken up"
curl -sf "$ELSEWHERE/tiles/world@${former:0:8}/3/0/0.png" | cmp - latest.png || fail "the server's former version is another one"
tilegc verify elsewhere >out
for cache in laptop other; do tilegc verify "$cache" >out; done
echo "check-sets: a reader written from Docs/set-format.md agrees with tilegc, the commands of both chapters ran, and a proxy serves a set from a server of files"
