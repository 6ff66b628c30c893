#!/usr/bin/env bash
# Reads published sets with a second reader, written from Docs/set-format.md, and compares with what tilegc says; then runs the
# commands of "Offline maps for a field team" in Docs/operations.md as they stand there, and pulls from a plain server of files.
set -euo pipefail
export TILECACHE_TOOLS=1
cd "$(dirname "$0")/.."
scratch=${SCRATCH:-.build}
[ -n "${NO_BUILD:-}" ] || swift build -c release --product tilegc --scratch-path "$scratch"
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
    /^<!-- run: publish and pull( again)? -->$/ { part++; marked = 1; next }
    /^```sh$/ && marked { inside = 1; marked = 0; next }
    /^```/ { inside = 0; marked = 0; next }
    inside { print >(work "/commands-" part ".sh") }
' Docs/operations.md
[ "$(cat "$work"/commands-[12].sh | wc -l)" -ge 8 ] || fail "Docs/operations.md has no commands to run"
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
for cache in laptop other; do tilegc verify "$cache" >out; done
echo "check-sets: a reader written from Docs/set-format.md agrees with tilegc, and the commands of the chapter ran"
