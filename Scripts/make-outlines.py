#!/usr/bin/env python3
"""Makes the sample of vector tiles in Sample/outlines: z/x/y.pbf, compressed by gzip, from Natural Earth (public domain).

Only needed to change the sample; the tiles themselves are in the repository.

Needs, on Debian or Ubuntu:
    apt-get install --no-install-recommends gdal-bin
    apt-get download qgis-common && dpkg-deb -x qgis-common_*.deb qgis
Then:
    Scripts/make-outlines.py qgis/usr/share/qgis/resources/data/world_map.gpkg Sample/outlines
"""
import argparse
import gzip
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

CLIP = ["-clipsrc", "-180", "-85.0511", "180", "85.0511"]
LAYERS = {
    "countries": ("SELECT NAME AS name, ISO_A3 AS iso, geom FROM countries", "MULTIPOLYGON", 0),
    "provinces": ("SELECT name, adm0_a3 AS iso, ST_Boundary(geom) AS geom FROM states_provinces "
                  "WHERE adm0_a3 IN ('AUS', 'BRA', 'CAN', 'CHN', 'IND', 'RUS', 'USA')", "MULTILINESTRING", 2),
    "centres": ("SELECT NAME AS name, ISO_A3 AS iso, ST_PointOnSurface(geom) AS geom FROM countries", "POINT", 0),
}
LAST = 2


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("geopackage", help="world_map.gpkg")
    arguments.add_argument("folder", help="where the tiles go", type=pathlib.Path)
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory() as work:
        mercator, tiles = os.path.join(work, "mercator.gpkg"), os.path.join(work, "tiles")
        for name, (query, kind, _) in LAYERS.items():
            subprocess.run(
                ["ogr2ogr", "-q", "-f", "GPKG", "-update", "-append", mercator, chosen.geopackage, "-dialect", "SQLite",
                 "-sql", query, "-nln", name, *CLIP, "-t_srs", "EPSG:3857", "-nlt", kind, "-skipfailures"],
                check=True, stderr=subprocess.DEVNULL)
        zooms = {name: {"minzoom": first, "maxzoom": LAST} for name, (_, _, first) in LAYERS.items()}
        options = {"FORMAT": "DIRECTORY", "MINZOOM": 0, "MAXZOOM": LAST, "COMPRESS": "NO", "SIMPLIFICATION": 40,
                   "SIMPLIFICATION_MAX_ZOOM": 20, "CONF": json.dumps(zooms)}
        subprocess.run(["ogr2ogr", "-f", "MVT", tiles, mercator,
                        *[part for name, value in options.items() for part in ("-dsco", f"{name}={value}")]], check=True)
        shutil.rmtree(chosen.folder, ignore_errors=True)
        for file in sorted(pathlib.Path(tiles).glob("*/*/*.pbf")):
            z, x, y = (int(part) for part in file.relative_to(tiles).with_suffix("").parts)
            # What lies beyond the world, for the sake of the margin around each tile.
            if max(x, y) >= 1 << z:
                continue
            place = chosen.folder / file.relative_to(tiles)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(gzip.compress(file.read_bytes(), 9, mtime=0))


if __name__ == "__main__":
    main()
