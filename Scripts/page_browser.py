"""A browser without a window, driven over its debugging pipe: no driver and no packages needed."""
import base64
import json
import os
import pathlib
import select
import struct
import subprocess
import time
import zlib

PICTURES = os.environ.get("PICTURES")


class Browser:
    """The DevTools protocol over two pipes: one JSON object each way, ended by NUL."""

    def __init__(self, path, profile, *flags):
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
             "--disable-background-networking", "--disable-component-update", "--disable-sync", *flags, "about:blank"],
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
        self.click_at(*box)

    def click_at(self, x, y):
        for kind in ["mousePressed", "mouseReleased"]:
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key, shift=False):
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38,
                 "ArrowRight": 39, "ArrowDown": 40, " ": 32, "+": 187, "-": 189}
        event = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key], "modifiers": 8 if shift else 0}
        self.ask("Input.dispatchKeyEvent", type="rawKeyDown", **event)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **event)

    def pixels(self, selector, margin=6):
        """The colours of an element and a margin around it, row by row as (r, g, b), and the length of its edge there.

        Of a large element only the corner is looked at."""
        x, y, w, h = self.run(f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
                              " e.scrollIntoView({ block: 'nearest' });"
                              " const r = e.getBoundingClientRect(); return [r.x, r.y, r.width, r.height].map(Math.round); })()")
        most = 160
        edge = min(w, most) * (2 if h <= most else 1) + min(h, most) * (2 if w <= most else 1)
        clip = {"x": max(0, x - margin), "y": max(0, y - margin), "width": min(w, most) + 2 * margin,
                "height": min(h, most) + 2 * margin, "scale": 1}
        data = base64.b64decode(self.ask("Page.captureScreenshot", format="png", clip=clip)["data"])
        return decode(data), edge

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


def decode(png):
    """The pixels of a PNG file as browsers write them: eight bits, with or without transparency, not interlaced."""
    at, data = 8, b""
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at:at + 8])
        body = png[at + 8:at + 8 + size]
        if kind == b"IHDR":
            width, height, depth, colours, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            assert depth == 8 and colours in (2, 6) and not interlaced
        elif kind == b"IDAT":
            data += body
        at += 12 + size
    step = 4 if colours == 6 else 3
    raw, line, pixels = zlib.decompress(data), bytearray(width * step), []
    for y in range(height):
        start = y * (width * step + 1)
        method, above, line = raw[start], line, bytearray(raw[start + 1:start + 1 + width * step])
        for i in range(len(line)):
            left = line[i - step] if i >= step else 0
            corner = above[i - step] if i >= step else 0
            if method == 1:
                line[i] = (line[i] + left) & 255
            elif method == 2:
                line[i] = (line[i] + above[i]) & 255
            elif method == 3:
                line[i] = (line[i] + (left + above[i]) // 2) & 255
            elif method == 4:
                guess = left + above[i] - corner
                near = min((left, above[i], corner), key=lambda v: abs(guess - v))
                line[i] = (line[i] + near) & 255
        pixels += [tuple(line[i:i + 3]) for i in range(0, len(line), step)]
    return pixels
