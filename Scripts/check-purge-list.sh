#!/usr/bin/env bash
# Runs the commands of "From renderer to CDN" in Docs/operations.md as they stand there, against a server of the sample map that
# draws one of the listed tiles anew, and looks whether the list for the CDN is right.
set -euo pipefail
export TILECACHE_TOOLS=1
cd "$(dirname "$0")/.."
scratch=${SCRATCH:-.build}
[ -n "${NO_BUILD:-}" ] || swift build -c release --product tilegc --scratch-path "$scratch"
PATH="$(swift build -c release --scratch-path "$scratch" --show-bin-path):$PATH"
export PATH
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$work"' EXIT

fail() {
    echo "check-purge-list: $1" >&2
    exit 1
}

awk '
    /^<!-- run: purge list -->$/ { marked = 1; next }
    /^```sh$/ && marked { inside = 1; marked = 0; next }
    /^```/ { inside = 0; marked = 0; next }
    inside { print }
' Docs/operations.md >"$work/commands.sh"
[ "$(wc -l <"$work/commands.sh")" -ge 3 ] || fail "Docs/operations.md has no commands to run"

cp -r Sample/world "$work/served"
python3 Scripts/sample-origin.py "$work/served" --max-age 3600 --delay 0 --port-file "$work/port" &
server=$!
for _ in $(seq 600); do
    [ -s "$work/port" ] && break
    kill -0 "$server" || fail "the server of the sample map does not run"
    sleep 0.1
done
TILES="http://127.0.0.1:$(cat "$work/port")"
export TILES

cd "$work"
tilegc seed cache --source world --url "$TILES/{z}/{x}/{y}.png" --bbox -180,-85,180,85 --zoom 0-3
# One tile is other than it was, and its neighbours are not. The tile above it is, too.
cp served/3/0/0.png served/3/4/2.png
cp served/3/0/0.png served/2/2/1.png
printf '3/4/2\n3/4/3\n3/5/2\n' >expired.list
bash -euo pipefail -x commands.sh
printf 'world/2/2/1\nworld/3/4/2\n' | diff - <(sort changed.keys) || fail "changed.keys is not as it should be"
grep -qx 'https://tiles.example.org/tiles/world/3/4/2.png' changed.urls || fail "changed.urls is not as it should be"
tilegc verify cache >verified
echo "check-purge-list: the commands of the chapter ran, and the list for the CDN is right"
