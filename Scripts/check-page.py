#!/usr/bin/env python3
"""Drives the proxy's page in Chromium over its debugging pipe: no driver and no packages needed.

    TILEPROXY_URL=http://127.0.0.1:8080 check-page.py /usr/bin/chromium [network]

With `network` the page takes Leaflet from its public place, which is played here: with the files in LEAFLET_DIST, if that is
set; with wrong ones, which the browser must refuse; and with none, as without a way to the internet.
"""
import base64
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.request

URL = os.environ["TILEPROXY_URL"]
PICTURES = os.environ.get("PICTURES")


class Browser:
    """The DevTools protocol over two pipes: one JSON object each way, ended by NUL."""

    def __init__(self, path, profile):
        commands, self.out = os.pipe()
        self.into, answers = os.pipe()

        def arrange():
            os.dup2(commands, 3 + 100)
            os.dup2(answers, 4 + 100)
            os.dup2(103, 3)
            os.dup2(104, 4)
            os.set_inheritable(3, True)
            os.set_inheritable(4, True)

        self.process = subprocess.Popen(
            [path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--remote-debugging-pipe", f"--user-data-dir={profile}", "--hide-scrollbars",
             "--disable-background-networking", "--disable-component-update", "--disable-sync", "about:blank"],
            preexec_fn=arrange, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(commands)
        os.close(answers)
        self.buffer = b""
        self.last = 0
        self.events = []
        self.session = None
        self.network = None
        self.refused = []

    def read(self, deadline):
        while b"\0" not in self.buffer:
            import select
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.into], [], [], left)[0]:
                return None
            part = os.read(self.into, 1 << 20)
            if not part:
                raise SystemExit("check-page: the browser is gone")
            self.buffer += part
        message, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(message)
        if message.get("method") == "Fetch.requestPaused":
            self.play(message)
        return message

    def play(self, event):
        """Answers a request to the public network in its place."""
        name = event["params"]["request"]["url"].rsplit("/", 1)[1]
        answer = {"requestId": event["params"]["requestId"]}
        body = self.network(name)
        if body is None:
            method, answer["errorReason"] = "Fetch.failRequest", "InternetDisconnected"
        else:
            method, answer["responseCode"] = "Fetch.fulfillRequest", 200
            kind = "text/css" if name.endswith("css") else "text/javascript"
            answer["responseHeaders"] = [{"name": "Access-Control-Allow-Origin", "value": "*"},
                                         {"name": "Content-Type", "value": kind}]
            answer["body"] = base64.b64encode(body).decode()
        self.last += 1
        message = {"id": self.last, "method": method, "params": answer, "sessionId": event["sessionId"]}
        os.write(self.out, json.dumps(message).encode() + b"\0")

    def ask(self, method, _session=True, **params):
        self.last += 1
        number = self.last
        message = {"id": number, "method": method, "params": params}
        if _session and self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 60
        while True:
            answer = self.read(deadline)
            if answer is None:
                raise SystemExit(f"check-page: no answer to {method}")
            if answer.get("id") == number:
                if "error" in answer:
                    raise SystemExit(f"check-page: {method}: {answer['error']}")
                return answer["result"]
            if "method" in answer:
                self.events.append(answer)

    def listen(self, seconds):
        deadline = time.monotonic() + seconds
        while (event := self.read(deadline)) is not None:
            if "method" in event:
                self.events.append(event)

    def open(self, url, width, height, dark=False, phone=False):
        target = self.ask("Target.createTarget", False, url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", False, targetId=target, flatten=True)["sessionId"]
        self.events = []
        for domain in ["Page", "Runtime", "Log", "Network"]:
            self.ask(domain + ".enable")
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height,
                 deviceScaleFactor=2 if phone else 1, mobile=phone)
        self.ask("Emulation.setEmulatedMedia",
                 features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        if self.network:
            self.ask("Fetch.enable", patterns=[{"urlPattern": "https://unpkg.com/*"}])
        self.ask("Page.navigate", url=url)
        return target

    def run(self, script, mayFail=False):
        result = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            if mayFail:
                return None
            raise SystemExit(f"check-page: {script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def until(self, what, script, seconds=40):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            # The document may not be there yet.
            value = self.run(script, mayFail=True)
            if value:
                return value
            self.listen(0.25)
        self.picture("failed")
        raise SystemExit(f"check-page: waited in vain for: {what}\n{self.complaints()}")

    def click(self, selector):
        box = self.run(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView(); "
                       "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()")
        for kind in ["mousePressed", "mouseReleased"]:
            self.ask("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def picture(self, name, full=False):
        if PICTURES:
            data = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=full)["data"]
            pathlib.Path(PICTURES).mkdir(parents=True, exist_ok=True)
            (pathlib.Path(PICTURES) / f"{name}.png").write_bytes(base64.b64decode(data))

    def complaints(self):
        found = []
        for event in self.events:
            params = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                found.append("exception: " + json.dumps(params["exceptionDetails"])[:400])
            elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                found.append(params["type"] + ": " + json.dumps(params["args"])[:400])
            elif event["method"] == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                entry = params["entry"]
                if self.network and "unpkg.com" in entry.get("url", "") + entry["text"]:
                    self.refused.append(entry["text"])
                    continue
                # A tile that does not exist is a 404, and that is what the source with gaps is for.
                if "404" in entry["text"] and "/tiles/gaps/" in entry.get("url", ""):
                    continue
                found.append(entry["level"] + ": " + entry["text"] + " " + entry.get("url", ""))
        return found

    def close(self):
        self.ask("Browser.close", False)
        self.process.wait(30)


PICTURES_SHOWN = "[...document.querySelectorAll('#map .leaflet-tile-pane img.leaflet-tile-loaded')]" \
    ".filter((i) => i.naturalWidth === 256).length"


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

    # A desk, light.
    browser.open(URL + "/", 1360, 860)
    browser.until("tiles of the first source", f"{PICTURES_SHOWN} >= 8")
    check("three sources to choose from", browser.run("document.querySelectorAll('#switch button').length") == 3)
    check("the first one is chosen", browser.run(
        "document.querySelector('#switch [aria-checked=true]').dataset.source") == "world")
    browser.until("figures", "document.getElementById('requests').textContent !== '–'")
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
    browser.run("document.querySelector('.cell.is-fresh').click()")
    browser.until("the tile's particulars", "document.querySelector('.leaflet-popup-content')"
                  " && document.querySelector('.leaflet-popup-content').textContent.includes('gaps/')")
    # Other clients, for whom there is no browser's cache.
    for _ in range(3):
        for x in range(4):
            for y in range(4):
                urllib.request.urlopen(f"{URL}/tiles/world/2/{x}/{y}.png").read()
        browser.listen(1.5)
    browser.listen(2)
    browser.picture("3-gaps")
    hit = json.load(urllib.request.urlopen(URL + "/_tileproxy/stats.json"))
    check("stats.json counts the tiles", hit["requests"] > 50 and hit["sources"][0]["hits"] > 40)
    check("the page shows them", browser.run("parseFloat(document.getElementById('hit-ratio').textContent)") > 10)

    browser.run("fetch('tiles/world/2/1/1.png').then((r) => r.blob())")
    browser.click("#shade")
    browser.until("no shading", "document.querySelectorAll('.cell').length === 0")
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
