#!/usr/bin/env bash
# Measures published sets: bytes and seconds of publishing and pulling a million tiles of which 1 % change, side by side and at random.
#
#   Scripts/bench-sets.sh [SIDE]      SIDE x SIDE tiles of one zoom, a power of 2 (default: 1024)
#
# Where rsync is installed, the bytes are also those that rsync takes to renew an MBTiles file of the same tiles.
# Takes about 6 GB of disk below TMPDIR. Prints one JSON object a line.
set -euo pipefail
export TILECACHE_TOOLS=1
cd "$(dirname "$0")/.."
side=${1:-1024}
scratch=${SCRATCH:-.build}
[ -n "${NO_BUILD:-}" ] || swift build -c release --product tilegc --scratch-path "$scratch" >&2
PATH="$(swift build -c release --scratch-path "$scratch" --show-bin-path):$PATH"
export PATH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

python3 - "$side" <<'EOF'
import random, sqlite3, sys
side = int(sys.argv[1])
zoom = side.bit_length() - 1
draw = random.Random(1)

def archive(name, bodies, places):
    file = sqlite3.connect(name)
    file.execute("pragma synchronous=off")
    file.execute("create table metadata (name text, value text)")
    file.execute("create table images (id integer primary key, tile_data blob)")
    file.execute("create table map (zoom_level int, tile_column int, tile_row int, image int)")
    file.execute("create view tiles as select zoom_level, tile_column, tile_row, tile_data from map join images on id = image")
    file.executemany("insert into metadata values (?, ?)", [("name", "bench"), ("format", "png")])
    file.executemany("insert into images values (?, ?)",
                     ((i, b"\x89PNG\r\n\x1a\n" + draw.randbytes(5112)) for i in range(bodies)))
    file.executemany("insert into map values (?, ?, ?, ?)", ((zoom, x, y, image) for x, y, image in places))
    file.commit()
    file.close()

tiles = [(x, y) for x in range(side) for y in range(side)]
bodies = max(1, len(tiles) // 10)
archive("base.mbtiles", bodies, ((x, y, draw.randrange(bodies)) for x, y in tiles))
edge = max(1, side // 10)
cluster = [(side // 3 + i % edge, side // 3 + i // edge) for i in range(edge * edge)]
archive("clustered.mbtiles", len(cluster), ((x, y, i) for i, (x, y) in enumerate(cluster)))
some = draw.sample(tiles, len(cluster))
archive("random.mbtiles", len(some), ((x, y, i) for i, (x, y) in enumerate(some)))
EOF

# measure NAME COMMAND...: the command's own report with its name and its seconds.
measure() {
    local name=$1 start end
    shift
    start=$(date +%s%N)
    "$@" >report
    end=$(date +%s%N)
    jq -c --arg name "$name" --argjson seconds "$(((end - start) / 1000000))e-3" '{name: $name, seconds: $seconds} + .' report
}

# synchronize NAME: what rsync sends and receives to make a copy of the former package the present one.
synchronize() {
    command -v rsync >/dev/null || return 0
    tilegc export cache new.mbtiles --source m >report 2>messages
    rsync --no-whole-file --stats new.mbtiles copy.mbtiles |
        tr -d , | awk -v name="$1" '/^Total bytes (sent|received)/ { sum += $4 }
            END { printf "{\"name\":\"rsync of the MBTiles file, %s\",\"bytes\":%d}\n", name, sum }'
    rm new.mbtiles
}

import() { tilegc import cache "$1.mbtiles" --source m >report 2>messages; }
import base
measure "first publication" tilegc publish cache set --source m --json
measure "first pull" tilegc pull set copy --source m --json
for _ in 1 2 3; do
    start=$(date +%s%N)
    tilegc ls cache --source m >list
    end=$(date +%s%N)
    echo "{\"name\":\"ls\",\"seconds\":$(((end - start) / 1000000))e-3}"
    measure "publication, nothing new" tilegc publish cache set --source m --json
done
measure "pull, nothing new" tilegc pull set copy --source m --json
if command -v rsync >/dev/null; then tilegc export cache copy.mbtiles --source m >report 2>messages; fi
for kind in clustered random; do
    import "$kind"
    measure "publication, 1 % $kind" tilegc publish cache set --source m --json
    cp -a copy other
    measure "pull, 1 % $kind, by the delta" tilegc pull set copy --source m --json
    cp set/set.json kept
    jq -c '.deltas = []' kept >set/set.json
    measure "pull, 1 % $kind, by lists" tilegc pull set other --source m --json
    mv kept set/set.json
    rm -r other
    synchronize "1 % $kind"
done
