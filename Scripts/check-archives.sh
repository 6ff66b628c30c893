#!/usr/bin/env bash
# A region seeded from a server, exported, and read tile for tile by programs that are not ours: PyPI's pmtiles, SQLite's own
# shell, GDAL. What is not installed is left out and named; PYTHON chooses the interpreter that has pmtiles.
set -euo pipefail
export TILECACHE_TOOLS=1
cd "$(dirname "$0")/.."
scratch=${SCRATCH:-.build}
configuration=${CONFIGURATION:-release}
python=${PYTHON:-python3}
[ -n "${NO_BUILD:-}" ] || swift build -c "$configuration" --product tilegc --scratch-path "$scratch" >&2
tilegc=$(swift build -c "$configuration" --scratch-path "$scratch" --show-bin-path)/tilegc
tiles=$PWD/Sample/world
count=$(find "$tiles" -name '*.png' | wc -l)

work=$(mktemp -d)
origin=""
finish() {
    [ -z "$origin" ] || { kill "$origin" 2>/dev/null || true; wait "$origin" 2>/dev/null || true; }
    rm -rf "$work"
}
trap finish EXIT
has() { command -v "$1" >/dev/null; }
fail() { echo "check-archives: $*" >&2; exit 1; }
skip() { echo "check-archives: left out: $*"; }

python3 Scripts/sample-origin.py "$tiles" --port-file "$work/port" 2>/dev/null &
origin=$!
for _ in $(seq 1 200); do [ -s "$work/port" ] && break; sleep 0.1; done
address=http://127.0.0.1:$(cat "$work/port")
"$tilegc" seed "$work/cache" --source world --url "$address/{z}/{x}/{y}.png" \
    --bbox -180,-85.0511,180,85.0511 --zoom 0-5 --region world >/dev/null
for kind in pmtiles mbtiles; do
    "$tilegc" export "$work/cache" "$work/world.$kind" --region world --attribution 'Made with Natural Earth' >/dev/null
done

if "$python" -c 'import pmtiles' 2>/dev/null; then
    "$python" - "$work/world.pmtiles" "$tiles" "$count" <<'PYTHON'
import pathlib, sys
from pmtiles.reader import MmapSource, Reader, all_tiles

path, folder, count = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
with open(path, "rb") as file:
    source = MmapSource(file)
    reader = Reader(source)
    for tile in folder.glob("*/*/*.png"):
        z, x, y = (int(part) for part in tile.with_suffix("").parts[-3:])
        if reader.get(z, x, y) != tile.read_bytes():
            sys.exit(f"check-archives: pmtiles reads another tile {z}/{x}/{y}")
    header = reader.header()
    assert header["addressed_tiles_count"] == count == sum(1 for _ in all_tiles(source)), header
    assert header["clustered"] and header["min_zoom"] == 0 and header["max_zoom"] == 5, header
    assert reader.metadata()["attribution"] == "Made with Natural Earth", reader.metadata()
PYTHON
    echo "check-archives: PyPI's pmtiles reads all $count tiles of the PMTiles file"
else
    skip "PyPI's pmtiles (python3 -m venv v && v/bin/pip install pmtiles, then PYTHON=v/bin/python)"
fi

if has sqlite3; then
    mkdir -p "$work/out"
    (cd "$tiles" && find . -mindepth 2 -type d) | (cd "$work/out" && xargs mkdir -p)
    sqlite3 -readonly "$work/world.mbtiles" "SELECT count(writefile('$work/out/' || zoom_level || '/' || tile_column || '/' ||
        ((1 << zoom_level) - 1 - tile_row) || '.png', tile_data)) FROM tiles" >"$work/written"
    [ "$(cat "$work/written")" = "$count" ] || fail "sqlite3 reads $(cat "$work/written") of $count tiles"
    diff -r "$tiles" "$work/out" >&2 || fail "sqlite3 reads other tiles"
    [ "$(sqlite3 "$work/world.mbtiles" 'PRAGMA integrity_check')" = ok ] || fail "SQLite finds the file damaged"
    echo "check-archives: sqlite3 reads all $count tiles of the MBTiles file"
else
    skip "sqlite3 (apt sqlite3)"
fi

if has gdal_translate && has gdalinfo; then
    gdalinfo "$work/world.mbtiles" >"$work/info"
    grep -q '^Driver: MBTiles' "$work/info" || fail "GDAL does not take it for MBTiles: $(cat "$work/info")"
    grep -q '^Size is 8192, 8192' "$work/info" || fail "GDAL reads another size: $(grep '^Size' "$work/info")"
    for z in 0 1 2 3 4 5; do
        # The same pixels, put together by GDAL from the pictures that the server has.
        python3 - "$tiles" "$z" >"$work/$z.vrt" <<'PYTHON'
import sys

folder, z = sys.argv[1], int(sys.argv[2])
edge = 256 << z
print(f'<VRTDataset rasterXSize="{edge}" rasterYSize="{edge}">')
for band, colour in enumerate(["Red", "Green", "Blue", "Alpha"], 1):
    print(f'<VRTRasterBand dataType="Byte" band="{band}"><ColorInterp>{colour}</ColorInterp>')
    for x in range(1 << z):
        for y in range(1 << z):
            print(
                f'<ComplexSource><SourceFilename shared="0">{folder}/{z}/{x}/{y}.png</SourceFilename>'
                f'<SourceBand>1</SourceBand><SrcRect xOff="0" yOff="0" xSize="256" ySize="256"/>'
                f'<DstRect xOff="{x * 256}" yOff="{y * 256}" xSize="256" ySize="256"/>'
                f"<ColorTableComponent>{band}</ColorTableComponent></ComplexSource>")
    print("</VRTRasterBand>")
print("</VRTDataset>")
PYTHON
        gdal_translate -q -of ENVI -co INTERLEAVE=BSQ "$work/$z.vrt" "$work/ours.raw" 2>"$work/errors" || fail "$(cat "$work/errors")"
        gdal_translate -q -of ENVI -co INTERLEAVE=BSQ -oo "ZOOM_LEVEL=$z" -oo BAND_COUNT=4 "$work/world.mbtiles" "$work/theirs.raw" \
            2>"$work/errors" || fail "$(cat "$work/errors")"
        cmp "$work/ours.raw" "$work/theirs.raw" || fail "GDAL reads other pixels at zoom $z"
        rm "$work"/*.raw
    done
    echo "check-archives: GDAL reads the pixels of all $count tiles of the MBTiles file"
else
    skip "GDAL (apt gdal-bin)"
fi
echo "check-archives: ok"
