"""What the page does with vector tiles: reads them as another reader does, survives bad ones, draws and describes them."""
import base64
import json
import os
import pathlib
import sqlite3

import vector_tiles

SAMPLE = pathlib.Path(__file__).parent.parent / "Sample/outlines"
BOXES = "[...document.querySelectorAll('.vector:not([hidden])')]"
DRAWN = f"!document.querySelector('.leaflet-zoom-anim') && {BOXES}.length > 0 " \
    f"&& {BOXES}.every((e) => e.classList.contains('is-drawn'))"
# How many pixels of the map are drawn on.
INK = f"""{BOXES}.reduce((sum, box) => {{
    const canvas = box.firstChild, copy = document.createElement('canvas');
    [copy.width, copy.height] = [canvas.width, canvas.height];
    const context = copy.getContext('2d', {{ willReadFrequently: true }});
    context.drawImage(canvas, 0, 0);
    return sum + context.getImageData(0, 0, copy.width, copy.height).data
        .reduce((n, value, i) => n + (i % 4 === 3 && value > 0), 0);
}}, 0)"""
LAYERS = "[...document.querySelectorAll('#layer-list label')].map((e) => e.textContent)"
POPUP = "(document.querySelector('.leaflet-popup-content') || document.createElement('p')).innerText"
READ = """const summaryOf = async (text) => {
    let bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    if (bytes[0] === 31 && bytes[1] === 139) {
        bytes = new Uint8Array(await new Response(
            new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).arrayBuffer());
    }
    return VectorTile.decode(bytes).map((layer) => {
        let points = 0, sumX = 0, sumY = 0, said = 0;
        const see = (x, y) => { points++; sumX += x; sumY += y; };
        for (const feature of layer.features) {
            VectorTile.walk(feature, { move: see, line: see, close() {} });
            for (const [key, value] of VectorTile.properties(layer, feature, 1000).rows) said += key.length + value.length;
        }
        return [layer.name, layer.extent, layer.features.length, points, sumX, sumY, said];
    });
};"""


def encode(data):
    return base64.b64encode(data).decode()


def real_tiles(folder):
    """The sample's tiles, and with larger archives at hand some of theirs."""
    tiles = [file.read_bytes() for file in sorted(SAMPLE.glob("*/*/*.pbf"))]
    archive = pathlib.Path(folder or "") / "ne-world_z0-5_mvt-gzip.mbtiles"
    if folder and archive.exists():
        connection = sqlite3.connect(f"file:{archive}?mode=ro", uri=True)
        rows = connection.execute("SELECT tile_data FROM tiles WHERE zoom_level < 2 OR rowid % 40 = 0")
        tiles += [row[0] for row in rows]
        connection.close()
    return tiles


def decoder(browser, check, folder):
    """The reader by itself."""
    tiles = real_tiles(folder)
    found = browser.run(f"(async () => {{ {READ} const found = []; "
                        f"for (const text of {json.dumps([encode(tile) for tile in tiles])}) found.push(await summaryOf(text)); "
                        "return found; })()")
    wanted = [vector_tiles.summary(tile) for tile in tiles]
    check(f"{len(tiles)} tiles with {sum(layer[3] for tile in wanted for layer in tile)} points are read as another reader does",
          found == wanted)

    def outcome(tiles):
        """What becomes of tiles: the number of layers, or why they cannot be read."""
        return browser.run(f"""{json.dumps([encode(tile) for tile in tiles])}.map((text) => {{
            const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
            try {{
                const layers = VectorTile.decode(bytes);
                // What is read must be safe to draw, to hit and to describe.
                for (const layer of layers) {{
                    for (const feature of layer.features) {{
                        VectorTile.walk(feature, {{ move() {{}}, line() {{}}, close() {{}} }});
                        try {{ VectorTile.properties(layer, feature, 60); }} catch (error) {{
                            if (!(error instanceof VectorTile.Unreadable)) return 'properties: ' + error;
                        }}
                    }}
                }}
                VectorTile.find(layers, 0.5, 0.5, 0.1, () => true);
                return layers.length;
            }} catch (error) {{
                return error instanceof VectorTile.Unreadable ? 'unreadable: ' + error.message : 'broken: ' + error;
            }}
        }})""")

    for (name, (tile, reason)), said in zip(vector_tiles.bad().items(), outcome([t for t, _ in vector_tiles.bad().values()])):
        check(f"{name}: cannot be read", str(said).startswith("unreadable: ") and reason in said)
    strange = {name: tile for name, (tile, _) in vector_tiles.strange().items()}
    for name, said in zip(strange, outcome(list(strange.values()))):
        check(f"{name}: can be read", isinstance(said, int))

    told = vector_tiles.told()
    said = outcome([told[:i] for i in range(len(told))])
    # Between two layers a tile may end.
    check("a tile that ends too soon is refused at each byte", all(
        isinstance(each, int) or each.startswith("unreadable: ") for each in said) and sum(isinstance(e, int) for e in said) == 3)
    seed = int(os.environ.get("TILE_SEED", 1))
    said = outcome(vector_tiles.damaged(told, seed, 4000))
    check(f"4000 damaged tiles (seed {seed}) are read or refused", all(
        isinstance(each, int) or each.startswith("unreadable: ") for each in said)
        and any(isinstance(each, int) for each in said) and any(isinstance(each, str) for each in said))
    check("a tile of more than 8 MiB is refused", "larger than 8 MiB" in browser.run(
        "(() => { try { VectorTile.decode(new Uint8Array((8 << 20) + 1)); } catch (error) { return error.message; } })()"))


def outlines(browser, check, url, hasArchive):
    """The map: layers, clicks, keys, zooms past the last one, and the states of the cache over it."""
    browser.open(url + "/#outlines", 1360, 860)
    browser.until("outlines", DRAWN)
    check("layers are named by the tiles", browser.run(f"{LAYERS}.sort()") == ["centres", "countries", "provinces"])
    check("each has a colour", browser.run(
        "new Set([...document.querySelectorAll('#layer-list i')].map((e) => e.style.background)).size") == 3)
    browser.picture("11-outlines")
    ink = browser.run(INK)

    def switch(selector):
        browser.click(selector)
        browser.until("the outlines again", DRAWN)
        return browser.run(INK)

    countries = "#layer-list [data-layer=countries]"
    without = switch(countries)
    check("a layer that is off is not drawn", 0 < without < 0.8 * ink)
    browser.picture("11-outlines-without-countries")
    check("None: nothing is drawn", switch("#layers-none") == 0)
    check("All: all is drawn", switch("#layers-all") == ink)
    browser.run(f"document.querySelector({json.dumps(countries)}).focus()")
    browser.press(" ")
    browser.until("the outlines again", DRAWN)
    check("Space does the same", browser.run(INK) == without)
    browser.click("#switch [data-source=world]")
    browser.until("no outlines", f"{BOXES}.length === 0 && document.getElementById('layers').hidden")
    browser.click("#switch [data-source=outlines]")
    browser.until("the outlines again", DRAWN)
    check("what is off stays off", browser.run(f"!document.querySelector({json.dumps(countries)}).checked"))
    check("All again", switch("#layers-all") == ink)

    # The middle of the map is in Algeria.
    browser.run("document.getElementById('map').focus()")
    browser.press("Enter")
    browser.until("what is in the middle", f"{POPUP}.includes('Algeria')")
    check("layer, geometry and properties", browser.run(
        f"['outlines/2/2/1', 'countries: polygon', 'DZA'].every((part) => {POPUP}.includes(part)) && !{POPUP}.includes('state')"))
    check("the country around the place before those beside it", browser.run(
        "document.querySelector('.found tr td:last-child').textContent") == "Algeria")
    check("it is said", "countries: polygon" in browser.run("document.getElementById('said').textContent"))
    browser.until("the outlines again", DRAWN)
    check("it is marked", browser.run(INK) > ink)
    browser.listen(0.5)
    browser.picture("11-outlines-described")
    browser.press("Escape")
    browser.until("it is not marked any more", f"{DRAWN} && {INK} === {ink}")

    for zoom in (3, 4, 5):
        browser.press("+")
        browser.until(f"outlines of zoom {zoom}", f"{DRAWN} && {BOXES}.every((e) => e.dataset.tile.startsWith('{zoom}/'))")
        check(f"zoom {zoom} is drawn larger", browser.run(INK) > 0)
        browser.press("Enter")
        browser.until("the same country", f"{POPUP}.includes('Algeria')")
        check("of the last zoom's tile", browser.run(f"{POPUP}.includes('outlines/2/2/1')"))
        browser.picture(f"11-outlines-zoom-{zoom}")
        browser.press("Escape")
    check("nothing is asked for past the last zoom", browser.run(
        "performance.getEntriesByType('resource').map((e) => e.name).filter((n) => n.includes('/tiles/outlines/'))"
        ".every((n) => Number(n.split('/tiles/outlines/')[1].split('/')[0]) <= 2)"))

    browser.click("#shade")
    browser.until("their states", "document.querySelectorAll('.cell.is-fresh, .cell.is-stale').length >= 1")
    check("a state's text is not enlarged", browser.run(
        "document.querySelector('.cell b').getBoundingClientRect().height") < 60)
    browser.run("document.getElementById('map').focus()")
    browser.press("Enter")
    browser.until("state and properties", f"{POPUP}.includes('state') && {POPUP}.includes('Algeria')")
    browser.listen(0.5)
    browser.picture("11-outlines-shaded")
    browser.press("Escape")
    browser.click("#shade")
    browser.click("#theme")
    browser.until("dark outlines", DRAWN)
    browser.picture("11-outlines-dark")
    browser.click("#theme")
    # Later pages have the system's choice.
    browser.run("localStorage.removeItem('tileproxy-theme')")

    if hasArchive:
        browser.click("#switch [data-source=archive]")
        browser.until("an archive", f"{DRAWN} && {LAYERS}.length === 3")
        check("layers are named by the TileJSON", browser.run(LAYERS) == ["countries", "states_provinces", "water"])
        browser.picture("11-archive")


def late(browser, check, url):
    """Where frames come late, Leaflet leaves tiles of the zoom before below those of the next one: they must not be seen."""
    browser.open(url + "/#outlines", 1360, 860)
    browser.until("outlines", DRAWN)
    browser.ask("Page.addScriptToEvaluateOnNewDocument",
                source="window.requestAnimationFrame = (f) => setTimeout(() => f(performance.now()), 400);"
                       "window.cancelAnimationFrame = clearTimeout;")
    browser.ask("Page.reload")
    browser.until("outlines with late frames", DRAWN)
    for key, zoom in [("+", 3), ("+", 4), ("-", 3), ("-", 2)]:
        browser.run("document.getElementById('map').focus()")
        browser.press(key)
        browser.until(f"only tiles of zoom {zoom}", f"{DRAWN} && {BOXES}.every((e) => e.dataset.tile.startsWith('{zoom}/'))")
        check(f"late frames: tiles of zoom {zoom} are drawn", browser.run(INK) > 0)


def hostile(browser, check, url):
    """Bad tiles on the map: the page tells and lives on. They are played in the browser, so that no server has to send them."""
    plays = {**vector_tiles.bad(), **vector_tiles.strange()}
    big = "new Response(new ReadableStream({ pull(c) { c.enqueue(new Uint8Array(1 << 16)); } }))"
    special = {
        "without end": (big, "larger than 8 MiB"),
        "a bomb": ("new Response((new Blob([new Uint8Array(64 << 20)])).stream().pipeThrough(new CompressionStream('gzip')))",
                   "larger than 8 MiB"),
        "damaged gzip": ("new Response(new Uint8Array([31, 139, 8, 0, 1, 2, 3, 4, 5, 6]))", "gzip data is damaged"),
        "an error": ("new Response('no', { status: 502 })", "cannot be had: HTTP 502"),
        "no answer": ("Promise.reject(new TypeError('broken off'))", "no connection"),
        "absent": ("new Response('no', { status: 404 })", ""),
        "text": ("new Response('once upon a time')", "cannot be read"),
    }
    names = list(plays) + list(special)
    for first in range(0, len(names), 16):
        group = names[first:first + 16]
        bodies = ",".join(
            f"() => {special[name][0]}" if name in special else
            f"() => new Response(Uint8Array.from(atob({json.dumps(encode(plays[name][0]))}), (c) => c.charCodeAt(0)))"
            for name in group)
        browser.open(url + "/#world", 1360, 860)
        browser.until("the page", "document.querySelectorAll('#switch button').length > 0")
        browser.run(f"""(() => {{
            const bodies = [{bodies}], real = window.fetch;
            window.fetch = (url, options) => {{
                const at = /tiles\\/outlines\\/2\\/(\\d+)\\/(\\d+)/.exec(url);
                if (!at) return real(url, options);
                const body = bodies[Number(at[1]) * 4 + Number(at[2])];
                return body ? Promise.resolve(body()) : Promise.resolve(new Response(''));
            }};
        }})()""")
        browser.click("#switch [data-source=outlines]")
        browser.until("bad tiles", DRAWN)
        said = browser.run(f"Object.fromEntries({BOXES}.map((box) => [box.dataset.tile, box.textContent]))")
        for i, name in enumerate(group):
            text, (_, reason) = said.get(f"2/{i // 4}/{i % 4}"), plays.get(name) or special[name]
            check(f"{name}: {'the page says so' if reason else 'nothing to say'}",
                  text is not None and (reason in text if reason else text == ""))
        browser.picture(f"12-bad-tiles-{first}")
        check("the list of layers has its bound", browser.run(f"{LAYERS}.length") <= 100)
        # Later figures show that the page lives on.
        browser.run("performance.clearResourceTimings()")
        browser.until("figures after bad tiles",
                      "performance.getEntriesByType('resource').some((e) => e.name.includes('stats.json'))")

    # What a tile says is shown as text.
    layers = json.dumps({"vector_layers": [{"id": "first"}, {"id": vector_tiles.SCRIPT}, {"id": 5}, {}, None]})
    browser.open(url + "/#world", 1360, 860)
    browser.until("the page", "document.querySelectorAll('#switch button').length > 0")
    browser.run(f"""(() => {{
        const real = window.fetch, told = Uint8Array.from(atob({json.dumps(encode(vector_tiles.told()))}), (c) => c.charCodeAt(0));
        window.fetch = (url, options) => (/tiles\\/outlines\\//.test(url) ? Promise.resolve(new Response(told))
            : /outlines.json/.test(url) ? Promise.resolve(new Response({json.dumps(layers)})) : real(url, options));
    }})()""")
    browser.click("#switch [data-source=outlines]")
    browser.until("tiles that say much", DRAWN)
    check("layers of the TileJSON come first, then those of the tiles", browser.run(LAYERS) == [
        "first", vector_tiles.SCRIPT, "areas", "lines"])
    spot = (f"(() => {{ const r = {BOXES}.find((e) => e.dataset.tile === '2/1/1').getBoundingClientRect();"
            " return [r.x + 128, r.y + 128]; })()")
    browser.click_at(*browser.run(spot))
    browser.until("what was clicked", f"{POPUP}.includes('18446744073709551615')")
    said = browser.run("[...document.querySelectorAll('.found h3')].map((e) => e.textContent)")
    check("points before lines before polygons, with their ids", said == [
        vector_tiles.SCRIPT + ": point 18446744073709551615", "lines: line", "areas: polygon 7"])
    rows = browser.run("[...document.querySelectorAll('.found section:first-child tr')].map((r) => r.lastChild.textContent)")
    check("values of all kinds", rows == [text for _, text in vector_tiles.VALUES])
    browser.listen(0.5)
    browser.picture("12-told")
    check("text in tiles is no script", browser.run(
        "window.taken === undefined && !document.querySelector('.found img, #layers img, .found script, #layers script')"))
    browser.click(".leaflet-popup-close-button")
    browser.click("#layer-list label:nth-child(2) input")
    browser.until("the outlines again", DRAWN)
    browser.until("no description", "!document.querySelector('.leaflet-popup')")
    browser.click_at(*browser.run(spot))
    browser.until("what is below", f"{POPUP}.includes('lines: line')")
    check("layers that are off are not described", browser.run(f"!{POPUP}.includes('point')"))


def check_vectors(browser, check, finish, url, folder, hasArchive):
    outlines(browser, check, url, hasArchive)
    decoder(browser, check, folder)
    late(browser, check, url)
    finish("outlines")
    hostile(browser, check, url)
    finish("bad tiles")
    browser.open(url + "/_tileproxy/#outlines", 390, 844, phone=True)
    browser.until("outlines on a phone", DRAWN)
    check("nothing is wider than the phone", browser.run("document.documentElement.scrollWidth <= window.innerWidth"))
    browser.run("window.scrollTo(0, 0)")
    browser.picture("13-outlines-phone")
    finish("outlines, phone")
