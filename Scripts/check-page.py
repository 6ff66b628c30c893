#!/usr/bin/env python3
"""Drives the proxy's page in Chromium over its debugging pipe: no driver and no packages needed.

    TILEPROXY_URL=http://127.0.0.1:8080 check-page.py /usr/bin/chromium [network|shared|vectors]

With `network` the page takes Leaflet from its public place, which is played here: with the files in LEAFLET_DIST, if that is
set; with wrong ones, which the browser must refuse; and with none, as without a way to the internet. With `vectors` only vector tiles are looked at. With `shared` the proxy shares a bucket, whose server is frozen for a while (TILE_TEST_S3_PID).
"""
import json
import os
import pathlib
import signal
import sys
import tempfile
import time
import urllib.request

from page_browser import Browser
from page_vectors import check_vectors

URL = os.environ["TILEPROXY_URL"]


PICTURES_SHOWN = "[...document.querySelectorAll('#map .leaflet-tile-pane img.leaflet-tile-loaded')]" \
    ".filter((i) => i.naturalWidth === 256).length"


CELLS = "[...document.querySelectorAll('.cell:not([hidden])')]"
TOLD = "[...document.querySelectorAll('.cell:not([hidden]) i')].every((i) => i.textContent !== '…')"
POPUP = "document.querySelector('.leaflet-popup-content') && document.querySelector('.leaflet-popup-content').textContent"
ASKED = "performance.getEntriesByType('resource').filter((e) => e.name.includes('states.json')).length"


def middle(browser, selector):
    """The middle of the first such element that a click there would reach."""
    return browser.run(f"""(() => {{
        for (const e of document.querySelectorAll({json.dumps(selector)})) {{
            const r = e.getBoundingClientRect(), x = r.x + r.width / 2, y = r.y + r.height / 2;
            const top = document.elementFromPoint(x, y);
            if (top && (top === e || e.contains(top))) return [x, y];
        }}
        return null;
    }})()""")


def stays(browser, script):
    """Whether something is still so after the page has asked for states twice more, as it does every two seconds."""
    before = browser.run(ASKED)
    browser.until("two more looks at the states", f"{ASKED} >= {before} + 2")
    return browser.run(script)


def focus(browser, check, theme):
    """Goes through the page with Tab: each stop must be seen, by the pixels in and around it."""
    wanted = {"a source": "#switch [aria-checked=true]", "the switch of the cache state": "#shade",
              "light or dark": "#theme", "the map": "#map", "zooming in": ".leaflet-control-zoom-in"}
    browser.run("document.activeElement.blur(); window.scrollTo(0, 0)")
    plain = {what: browser.pixels(selector) for what, selector in wanted.items()}
    seen = {}
    for _ in range(24):
        browser.press("Tab")
        for what, selector in wanted.items():
            if what not in seen and browser.run(f"document.activeElement.matches({json.dumps(selector)})"):
                pixels, edge = browser.pixels(selector)
                changed = sum(sum(abs(a - b) for a, b in zip(*pair)) > 60 for pair in zip(plain[what][0], pixels))
                seen[what] = len(pixels) == len(plain[what][0]) and changed >= edge
                browser.picture(f"7-focus-{theme}-" + what.replace(" ", "-"))
    for what in wanted:
        check(f"{theme}, {what}: the focus is seen", seen.get(what, False))


def keyboard(browser, check):
    """Sources, map and details without a mouse."""
    chosen = "document.querySelector('#switch [aria-checked=true]').dataset.source"
    focused = "document.activeElement.dataset.source"
    browser.run("document.querySelector('#switch [aria-checked=true]').focus()")
    browser.press("Home")
    check("one source is a stop for Tab", browser.run(
        "[...document.querySelectorAll('#switch button')].filter((b) => b.tabIndex === 0).length") == 1)
    for key, name in [("ArrowRight", "gaps"), ("ArrowDown", "folder"), ("ArrowLeft", "gaps"), ("End", "deep"),
                      ("ArrowRight", "world"), ("ArrowUp", "deep"), ("Home", "world")]:
        browser.press(key)
        check(f"{key} chooses {name}", browser.run(f"[{chosen}, {focused}]") == [name, name])
    browser.until("its cells", f"document.querySelectorAll('.cell').length >= 8 && {TOLD}")
    browser.run("document.getElementById('map').focus()")
    browser.press("Enter")
    browser.until("details by Enter", f"({POPUP} || '').includes('world/')")
    check("the details are said", browser.run("document.getElementById('said').textContent").startswith("world/"))
    check("details by Enter stay", stays(browser, f"({POPUP} || '').includes('world/')"))
    browser.picture("8-details-by-keyboard")
    browser.press("Escape")
    browser.until("Escape closes them", f"!({POPUP})")


def overzoom(browser, check):
    """Past a source's last zoom, around the antimeridian, and where the world is shown more than once."""
    browser.click("#switch [data-source=deep]")
    browser.run("document.getElementById('map').focus()")

    def zoom(key, levels):
        for wanted in levels:
            browser.press(key)
            browser.until(f"cells of zoom {wanted}", "!document.querySelector('.leaflet-zoom-anim') && "
                          f"{CELLS}.length && {CELLS}.every((c) => +c.dataset.tile.split('/')[0] === {wanted})")

    zoom("+", range(4, 9))
    browser.until("states past the last zoom", f"{TOLD} && document.querySelectorAll('.cell.is-fresh').length >= 4")
    check("past the last zoom cells say what they are made from", browser.run(
        f"{CELLS}.every((c) => c.textContent.includes('from zoom 5'))"))
    browser.picture("9-overzoom")
    browser.click_at(*middle(browser, ".cell.is-fresh"))
    browser.until("what a tile is made from", f"({POPUP} || '').includes('made fromdeep/5/')")
    browser.press("Escape")

    browser.run("document.getElementById('map').focus()")
    zoom("-", range(7, 0, -1))
    browser.until("states at zoom 1", TOLD)
    check("a tile that is shown twice says its state twice", browser.run(
        f"{CELLS}.length > new Set({CELLS}.map((c) => c.dataset.tile)).size"))
    browser.picture("9-two-worlds")

    columns = f"new Set({CELLS}.map((c) => +c.dataset.tile.split('/')[1]))"
    for level in range(2, 9):
        zoom("+", [level])
        for _ in range(40):
            if browser.run(f"{columns}.has(0) && {columns}.has({2 ** level - 1})"):
                break
            browser.press("ArrowLeft" if browser.run(f"Math.min(...{columns}) < {2 ** level // 2 - 2}") else "ArrowRight")
            browser.listen(0.4)
    check("the map is at the antimeridian", browser.run(f"{columns}.has(0) && {columns}.has(255)"))
    browser.until("states at the antimeridian", TOLD)
    browser.run("performance.clearResourceTimings()")
    check("there both sides are asked for, and not all between", stays(browser, f"""
        performance.getEntriesByType('resource').filter((e) => e.name.includes('states.json')).every((e) => {{
            const [first, last] = new URL(e.name).searchParams.get('x').split('-').map(Number);
            return last - first < 16;
        }})"""))
    browser.picture("9-antimeridian")


def states(browser):
    return browser.run("[...document.querySelectorAll('.cell')].map((c) => (c.className.match(/is-(\\w+)/) || [])[1])")


def from_network(browser, check, finish):
    folder = os.environ.get("LEAFLET_DIST")
    plays = [("nothing", lambda name: None, False), ("wrong files", lambda name: b"window.L = {}; alert(1)", False)]
    if folder:
        plays.append(("the right files", lambda name: (pathlib.Path(folder) / name).read_bytes(), True))
    for what, network, works in plays:
        browser.network, browser.refused = network, []
        browser.open(URL + "/", 1360, 860)
        browser.until("figures", "document.getElementById('requests').textContent !== '–'")
        if works:
            browser.until("tiles", f"{PICTURES_SHOWN} >= 8")
            browser.click("#shade")
            browser.until("shading", "document.querySelectorAll('.cell.is-fresh').length >= 1")
        else:
            check(f"{what}: the page says what is missing", browser.run(
                "!document.getElementById('note').hidden && document.getElementById('note').textContent"
                ".includes('libjs-leaflet') && !window.L"))
        browser.picture("6-network-" + what.replace(" ", "-"))
        finish("network, " + what)
        check(f"{what}: {'nothing was' if works else 'something was'} refused", bool(browser.refused) != works)


def shared(browser, check, finish):
    """The figures of a bucket that is shared with other proxies."""
    state = "document.getElementById('shared-state')"
    figures = "Object.fromEntries([...document.querySelectorAll('#shared [data-figure]')]" \
        ".map((e) => [e.dataset.figure, Number(e.textContent.replace(/,/g, ''))]))"
    tiles = iter([f"{z}/{x}/{y}" for z in (4, 5) for x in range(2 ** z) for y in range(2 ** z)])

    def until(what, script):
        """Waits while new tiles are asked for: one of them tells the proxy whether a bucket that it left alone is back."""
        deadline = time.monotonic() + 120
        while not browser.run(script):
            if time.monotonic() > deadline:
                browser.until(what, script, 0)
            urllib.request.urlopen(f"{URL}/tiles/world/{next(tiles)}.png").read()
            browser.listen(0.5)

    browser.open(URL + "/", 1360, 860)
    browser.until("tiles", f"{PICTURES_SHOWN} >= 8")
    browser.until("the bucket's figures", f"!!{state}")
    until("tiles in a bucket that answers",
          f"{state}.textContent.startsWith('ok') && ({figures}).stores >= 4 && ({figures}).misses >= 4")
    browser.until("the figures of stats.json", f"fetch('_tileproxy/stats.json').then((r) => r.json()).then((told) => "
                  f"Object.entries({figures}).length === 6 && Object.entries({figures}).every(([n, v]) => told.shared[n] === v))")
    check("the state is seen", browser.run(f"{state}.className") == "live")
    browser.run("document.getElementById('shared').scrollIntoView()")
    browser.picture("10-shared")
    with open(os.environ["TILE_TEST_S3_PID"]) as file:
        process = int(file.read())
    os.kill(process, signal.SIGSTOP)
    try:
        browser.until("a bucket that is left alone", f"{state}.textContent.startsWith('open')", 120)
        check("that is seen too", browser.run(f"{state}.className") == "live off")
        browser.picture("10-shared-open")
    finally:
        os.kill(process, signal.SIGCONT)
    until("a bucket that is back", f"{state}.textContent.startsWith('ok')")
    finish("shared")
    browser.open(URL + "/", 390, 844, phone=True)
    browser.until("the bucket's figures on a phone", f"{state} && {state}.textContent")
    check("nothing is wider than the phone", browser.run("document.documentElement.scrollWidth <= window.innerWidth"))
    browser.picture("10-shared-phone", full=True)
    finish("shared, phone")


def main():
    profile = tempfile.TemporaryDirectory()
    browser = Browser(sys.argv[1], profile.name)
    failures = []

    def check(what, isTrue):
        print(("ok    " if isTrue else "FAIL  ") + what)
        if not isTrue:
            failures.append(what)

    def finish(name):
        complaints = browser.complaints()
        check(f"{name}: nothing in the console", not complaints)
        for complaint in complaints:
            print("      " + complaint)

    if sys.argv[2:] == ["network"]:
        from_network(browser, check, finish)
        return end(browser, profile, failures)
    if sys.argv[2:] == ["shared"]:
        shared(browser, check, finish)
        return end(browser, profile, failures)

    folder, archive = os.environ.get("TILE_TEST_DATA"), os.environ.get("ARCHIVE")
    check_vectors(browser, check, finish, URL, folder, bool(archive))
    if sys.argv[2:] == ["vectors"]:
        return end(browser, profile, failures)

    # A desk, light.
    browser.open(URL + "/", 1360, 860)
    browser.until("tiles of the first source", f"{PICTURES_SHOWN} >= 8")
    wanted = 6 if archive else 5
    check(f"{wanted} sources to choose from", browser.run("document.querySelectorAll('#switch button').length") == wanted)
    check("the first one is chosen", browser.run(
        "document.querySelector('#switch [aria-checked=true]').dataset.source") == "world")
    browser.until("figures", "document.getElementById('requests').textContent !== '–'")
    check("nothing about a bucket where there is none", browser.run(
        "document.getElementById('shared').hidden && !document.getElementById('shared-state')"))
    browser.picture("1-light")

    zoom = "document.querySelector('.cell b') && document.querySelector('.cell b').textContent"
    browser.click("#shade")
    browser.until("shading", "document.querySelectorAll('.cell.is-fresh').length >= 8")
    before = browser.run(zoom)
    check("cells carry z/x/y", before.split("fresh")[0].count("/") == 2)
    browser.picture("2-shaded")

    browser.click(".leaflet-control-zoom-in")
    browser.until("another zoom", f"({zoom}) && ({zoom}).split('/')[0] !== {json.dumps(before.split('/')[0])}")
    browser.until("tiles of that zoom", "document.querySelectorAll('.cell.is-fresh').length >= 8")
    check("zooming changes the labels", True)

    browser.click("#switch [data-source=gaps]")
    browser.until("tiles known to be absent", "document.querySelectorAll('.cell.is-negative').length >= 1")
    check("the layer switch says so", browser.run(
        "document.querySelector('#switch [aria-checked=true]').dataset.source") == "gaps")
    found = states(browser)
    check("fresh and absent tiles are told apart", "fresh" in found and "negative" in found)
    for kind in ["fresh", "negative"]:
        place = middle(browser, f".cell.is-{kind}")
        tile = browser.run(f"document.elementFromPoint(...{place}).closest('.cell').dataset.tile")
        browser.click_at(*place)
        browser.until("the tile's details", f"({POPUP} || '').includes('gaps/{tile}')")
        check(f"the details of a {kind} tile stay", stays(browser, f"({POPUP} || '').includes('gaps/{tile}')"))
    browser.picture("3-details")
    browser.press("Escape")
    # Other clients, for whom there is no browser's cache.
    for _ in range(3):
        for x in range(4):
            for y in range(4):
                urllib.request.urlopen(f"{URL}/tiles/world/2/{x}/{y}.png").read()
        browser.listen(1.5)
    browser.listen(2)
    browser.picture("3-gaps")
    hit = json.load(urllib.request.urlopen(URL + "/_tileproxy/stats.json"))
    world = hit["sources"][0]
    check("stats.json counts the tiles",
          hit["requests"] > 50 and world["hits"] + world["stale"] + world["revalidated"] > 40)
    check("the page shows them", browser.run("parseFloat(document.getElementById('hit-ratio').textContent)") > 10)

    keyboard(browser, check)
    overzoom(browser, check)
    browser.run("fetch('tiles/world/2/1/1.png').then((r) => r.blob())")
    browser.click("#shade")
    browser.until("no shading", "document.querySelectorAll('.cell').length === 0")
    focus(browser, check, "light")
    finish("desk")

    # Dark, and stale tiles: the sample's tiles are fresh for a short time.
    browser.open(URL + "/#world", 1360, 860, dark=True)
    browser.until("tiles", f"{PICTURES_SHOWN} >= 8")
    browser.click("#shade")
    browser.until("stale tiles", "document.querySelectorAll('.cell.is-stale').length >= 1", 60)
    check("tiles turn stale", True)
    for x in range(4):
        for y in range(4):
            urllib.request.urlopen(f"{URL}/tiles/world/2/{x}/{y}.png").read()
    browser.until("confirmed tiles", "document.getElementById('saved').textContent !== '0\u202fB'")
    browser.picture("4-dark-stale")
    focus(browser, check, "dark")
    browser.click("#theme")
    check("light by choice", browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(244, 245, 247)")
    browser.click("#theme")
    finish("dark")

    # A phone.
    browser.open(URL + "/_tileproxy/#folder", 390, 844, phone=True)
    browser.until("tiles", f"{PICTURES_SHOWN} >= 2")
    browser.click("#shade")
    browser.until("cells", "document.querySelectorAll('.cell.is-local').length >= 1")
    check("nothing is wider than the phone", browser.run(
        "document.documentElement.scrollWidth <= window.innerWidth"))
    browser.listen(2.5)
    browser.run("window.scrollTo(0, 0)")
    browser.picture("5-phone", full=True)
    finish("phone")

    end(browser, profile, failures)


def end(browser, profile, failures):
    browser.close()
    profile.cleanup()
    if failures:
        sys.exit(f"check-page: {len(failures)} of the checks failed")
    print("check-page: ok")


main()
