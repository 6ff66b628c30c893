#!/usr/bin/python3
"""Draws the sample pyramid in Sample/world: z/x/y PNG tiles of the whole world, from Natural Earth (public domain).

Only needed to change the sample; the tiles themselves are in the repository.

Needs, on Debian or Ubuntu (run it with /usr/bin/python3):
    apt-get install --no-install-recommends python3-mapnik gdal-bin fonts-dejavu-core
    apt-get download qgis-common && dpkg-deb -x qgis-common_*.deb qgis
Then:
    Scripts/make-sample.py qgis/usr/share/qgis/resources/data/world_map.gpkg Sample/world --zooms 0-5

The file of the QGIS package is Natural Earth 1:10m, countries and provinces, slightly generalised.
The same versions of Mapnik, libpng, zlib and FreeType give the same bytes.
"""
import argparse
import os
import subprocess
import tempfile

import mapnik

HALF_WORLD = 20037508.342789244  # metres from the middle of the map to its edge, in web mercator
TILE = 256
BLOCK = 8  # tiles are drawn in squares of 8 x 8, as tile servers do, so that labels cross tile edges
MARGIN = 128  # pixels drawn around each square, for the same reason
FORMAT = "png8:m=h:c=24:z=9"  # 24 colours are enough for a flat map and keep the sample small

MERCATOR = "+proj=merc +a=6378137 +b=6378137 +lat_ts=0 +lon_0=0 +x_0=0 +y_0=0 +k=1 +units=m +nadgrids=@null +no_defs"

# What is drawn, from the bottom up: style name, layer, largest scale denominator at which it shows, symbolizers.
STYLES = [
    ("land", "countries", None,
     '<PolygonSymbolizer fill="#efece4"/><LineSymbolizer stroke="#efece4" stroke-width="0.6"/>'),
    ("provinces", "states_provinces", 35_000_000,
     '<LineSymbolizer stroke="#c3b3c4" stroke-width="0.6" stroke-dasharray="4,3"/>'),
    ("borders", "countries", None,
     '<LineSymbolizer stroke="#8d6a8b" stroke-width="0.9"/>'),
    ("names", "countries", 150_000_000,
     '<TextSymbolizer face-name="DejaVu Sans Bold" size="10" fill="#5f4a5e" halo-fill="#efece4" halo-radius="1"'
     ' wrap-width="70" minimum-distance="20">[NAME]</TextSymbolizer>'),
]


def to_mercator(geopackage, layer, folder):
    """Projects one layer into a shapefile that Mapnik draws quickly."""
    out = os.path.join(folder, layer + ".shp")
    subprocess.run(
        ["ogr2ogr", "-q", "-f", "ESRI Shapefile", out, geopackage, layer, "-clipsrc", "-180", "-85.06", "180", "85.06",
         "-t_srs", "EPSG:3857", "-nlt", "MULTIPOLYGON", "-lco", "ENCODING=UTF-8", "-skipfailures"],
        check=True, stderr=subprocess.DEVNULL)
    return out


def map_xml(files):
    """The style sheet, over the given shapefiles by layer name."""
    parts = []
    for name, _, limit, symbolizers in STYLES:
        scale = f"<MaxScaleDenominator>{limit}</MaxScaleDenominator>" if limit else ""
        parts.append(f'<Style name="{name}"><Rule>{scale}{symbolizers}</Rule></Style>')
    for name, layer, _, _ in STYLES:
        parts.append(
            f'<Layer name="{name}" srs="{MERCATOR}"><StyleName>{name}</StyleName><Datasource>'
            f'<Parameter name="type">shape</Parameter><Parameter name="file">{files[layer]}</Parameter>'
            '<Parameter name="encoding">utf-8</Parameter></Datasource></Layer>')
    return f'<Map background-color="#aad3df" srs="{MERCATOR}">{"".join(parts)}</Map>'


def draw_zoom(xml, zoom, folder):
    """Writes all tiles of one zoom as folder/z/x/y.png."""
    edge = 1 << zoom
    block = min(BLOCK, edge)
    metres = 2 * HALF_WORLD / edge
    canvas = mapnik.Map(TILE * block, TILE * block)
    mapnik.load_map_from_string(canvas, xml)
    canvas.buffer_size = MARGIN
    for left in range(0, edge, block):
        for top in range(0, edge, block):
            west, north = left * metres - HALF_WORLD, HALF_WORLD - top * metres
            canvas.zoom_to_box(mapnik.Box2d(west, north - block * metres, west + block * metres, north))
            image = mapnik.Image(TILE * block, TILE * block)
            mapnik.render(canvas, image)
            for x in range(block):
                column = os.path.join(folder, str(zoom), str(left + x))
                os.makedirs(column, exist_ok=True)
                for y in range(block):
                    with open(os.path.join(column, f"{top + y}.png"), "wb") as file:
                        file.write(image.view(x * TILE, y * TILE, TILE, TILE).tostring(FORMAT))


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("geopackage", help="world_map.gpkg")
    arguments.add_argument("folder", help="where the tiles go")
    arguments.add_argument("--zooms", default="0-5", help="such as 0-5")
    chosen = arguments.parse_args()
    first, last = (int(zoom) for zoom in (chosen.zooms.split("-") * 2)[:2])
    mapnik.register_fonts("/usr/share/fonts/truetype/dejavu")
    with tempfile.TemporaryDirectory() as work:
        files = {layer: to_mercator(chosen.geopackage, layer, work) for layer in {style[1] for style in STYLES}}
        for zoom in range(first, last + 1):
            draw_zoom(map_xml(files), zoom, chosen.folder)


if __name__ == "__main__":
    main()
